//! The times of the scheduler, by what they bound.

use std::time::Duration;

/// A task without a caller that has waited for this long takes turns with calls.
pub(crate) const AGED: Duration = Duration::from_secs(1);
/// For how long the tasks of a worker may last together, if its round trip is short.
pub(crate) const AHEAD: Duration = Duration::from_millis(2);
/// For how long a call waits for another worker before it falls back.
pub(crate) const FALLBACK: Duration = Duration::from_millis(200);
/// The time until the first repeated interrupt; each later pause is twice as long.
pub(crate) const INTERRUPT_PAUSE: Duration = Duration::from_millis(50);
/// A task that has run for this long, and two round trips, is long.
pub(crate) const LONG_TASK: Duration = Duration::from_millis(50);
/// How long a task that has passed its timeout goes on until its worker has answered where it is; an
/// agent takes up to 2 seconds.
pub(crate) const LOCATED: Duration = Duration::from_secs(3);
/// The longest round trip that is taken into account. A larger value shows a paused machine, not a slow
/// network.
pub(crate) const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(500);
/// The time until a worker that has not returned its tasks is asked again.
pub(crate) const RECALL_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait for stacks.
pub(crate) const STACKS: Duration = Duration::from_secs(5);
/// How much later than a peer's error the report of an ended process may arrive.
pub(crate) const SUSPICION: Duration = Duration::from_secs(1);
