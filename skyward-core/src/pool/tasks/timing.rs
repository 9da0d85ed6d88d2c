//! The times of tasks and their workers, by what they bound.

use std::time::Duration;

/// The time until a worker that does not answer is made to look at its connection for the first
/// time; then twice as long each time.
pub(crate) const ATTEND_PAUSE: Duration = Duration::from_millis(20);
/// How long a worker may take to answer on the connection for its calls.
pub(crate) const CALLER_ANSWER: Duration = Duration::from_secs(10);
/// The first pause between two tries to reach a worker for its calls; each later pause is twice as
/// long.
pub(crate) const CALLER_PAUSE: Duration = Duration::from_millis(5);
/// How long to try to reach a worker for its calls.
pub(crate) const CALLER_REACHED: Duration = Duration::from_secs(60);
/// How long the last answers of a worker may be under way when its end is known.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_millis(500);
/// The longest pause between two tries to reach a worker for its calls.
pub(crate) const LONGEST_CALLER_PAUSE: Duration = Duration::from_secs(2);
/// How long outcomes wait while no output of their worker arrives.
pub(crate) const OUTPUT_SILENCE: Duration = Duration::from_secs(2);
/// The pause before a request to a mover is repeated; twice as long each time.
pub(crate) const FIRST_MOVER_PAUSE: Duration = Duration::from_millis(50);
/// How long to try to reach the mover of a node that is there.
pub(crate) const MOVER_REACHABLE: Duration = Duration::from_secs(60);
/// The longest pause before a request to a mover is repeated.
pub(crate) const LONGEST_MOVER_PAUSE: Duration = Duration::from_secs(2);
/// How often to check whether a machine is still queued.
pub(crate) const QUEUED_CHECK: Duration = Duration::from_secs(1);
/// The time from the first change of the calls below a task to the report, which includes all
/// changes up to then.
pub(crate) const REPORT_DELAY: Duration = Duration::from_millis(500);
/// The longest time until a worker that does not answer is made to look at its connection again.
pub(crate) const LONGEST_ATTEND_PAUSE: Duration = Duration::from_secs(1);
