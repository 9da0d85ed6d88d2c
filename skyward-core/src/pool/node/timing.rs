//! The times of what happens on one node, by what they bound.

use std::time::Duration;

/// How long an agent may take to answer; it does no more for an answer than fork.
pub(crate) const AGENT_ANSWER: Duration = Duration::from_secs(30);
/// The pauses between attempts to connect to an agent that was just started.
pub(crate) const AGENT_START_PAUSES: [Duration; 3] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1)];
/// How often to check whether a worker that does not answer runs something.
pub(crate) const BUSY_CHECK: Duration = Duration::from_secs(15);
/// The pauses after the first renewals of a lease.
pub(crate) const FIRST_RENEWAL_PAUSES: [Duration; 3] =
    [Duration::from_millis(30), Duration::from_millis(60), Duration::from_millis(120)];
/// The first pause between two attempts to greet a worker that is being started; each later pause
/// is twice as long.
pub(crate) const GREET_PAUSE: Duration = Duration::from_millis(10);
/// How long to look for an agent on the client's own host.
pub(crate) const LOCAL_AGENT: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to greet a worker that is being started.
pub(crate) const LONGEST_GREET_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause between two attempts to reconnect.
pub(crate) const LONGEST_RECONNECT_PAUSE: Duration = Duration::from_secs(5);
/// How long a connection is kept at most on which a worker does not answer.
pub(crate) const LONGEST_UNANSWERED: Duration = Duration::from_secs(900);
/// The longest time between two looks whether another node of a world may be lost.
pub(crate) const LOOK_AT_LOSSES: Duration = Duration::from_millis(100);
/// How long it may take to reach a mover, which the agent may have to start.
pub(super) const MOVER_REACHED: Duration = Duration::from_secs(20);
/// The first pause between two attempts to reconnect; each later pause is twice as long.
pub(crate) const RECONNECT_PAUSE: Duration = Duration::from_millis(10);
/// The time that an agent gets to end process trees, in addition to the grace.
pub(crate) const STOP_MARGIN: Duration = Duration::from_secs(10);
/// How long a connection is kept at first on which a worker does not answer; then twice as long
/// each time.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(60);
