//! The times of calls of providers, by what they bound.

use std::time::Duration;

/// How long a provider may take to answer a question.
pub(crate) const ANSWER: Duration = Duration::from_secs(60);
/// How long a machine that was launched may take to start, and one that runs to be reached.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(600);
/// How long a provider may take to report states. The wait for a turn is a part of it.
pub(crate) const INSPECTION: Duration = Duration::from_secs(20);
/// How long a launch may take.
pub(crate) const LAUNCH: Duration = Duration::from_secs(600);
/// The longest pause between two tries to connect to a booting machine.
pub(crate) const LONGEST_BOOTING_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two inspections.
pub(crate) const LONGEST_INSPECT_PAUSE: Duration = Duration::from_secs(15);
/// The longest pause between two tries of a call.
pub(crate) const LONGEST_TRY_PAUSE: Duration = Duration::from_secs(10);
/// The longest time that a call waits for one before it.
pub(crate) const LONGEST_TURN_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long it may take to prepare what the machines of a pool share, or to remove it.
pub(crate) const PREPARATION: Duration = Duration::from_secs(300);
/// The first pause before an inspection while a machine is being connected to, and the pause before
/// the inspection for the reason of an end.
pub(crate) const SHORTEST_INSPECT_PAUSE: Duration = Duration::from_secs(1);
/// How long it may take to terminate machines.
pub(crate) const TERMINATION: Duration = Duration::from_secs(120);
/// The pause after a throttled call for which the provider named none.
pub(crate) const THROTTLED_PAUSE: Duration = Duration::from_secs(1);
/// The pause after the first failed try of a call; each later pause is twice as long.
pub(crate) const TRY_PAUSE: Duration = Duration::from_millis(100);
