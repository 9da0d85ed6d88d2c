//! The times of the nodes of a pool, by what they bound.

use std::time::Duration;

/// The time, in addition to the shutdown, that a pool keeps of its budget for its end.
pub(crate) const ENDING_MARGIN: Duration = Duration::from_secs(120);
/// The pause after the first machine that could not be made ready; each further failure doubles it.
pub(crate) const GROWTH_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause after machines that could not be made ready.
pub(crate) const LONGEST_GROWTH_PAUSE: Duration = Duration::from_secs(600);
/// The longest time between two looks at the load.
pub(crate) const LONGEST_LOAD_PAUSE: Duration = Duration::from_millis(500);
/// How long an offer is excluded after a refusal that is temporary.
pub(crate) const REFUSAL_LASTS: Duration = Duration::from_secs(300);
/// Two notices whose times differ by no more than this are the same notice.
pub(crate) const SAME_NOTICE: Duration = Duration::from_secs(2);
/// The shortest time between two looks at the load.
pub(crate) const SHORTEST_LOAD_PAUSE: Duration = Duration::from_millis(10);
/// A node or a worker that was ready for this long was sound: earlier losses no longer count.
pub(crate) const SOUND: Duration = Duration::from_secs(600);
/// How long tasks must wait before the pool grows.
pub(crate) const SUSTAINED: Duration = Duration::from_secs(1);
