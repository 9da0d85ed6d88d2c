//! The times of reading files, by what they bound.

use std::time::Duration;

/// How long a followed file without new bytes is left alone at first; twice as long each time.
pub(super) const FIRST_TAIL_PAUSE: Duration = Duration::from_millis(20);
/// The longest time for which a followed file is left alone.
pub(super) const LONGEST_TAIL_PAUSE: Duration = Duration::from_millis(500);
/// The time between two reports of how far a copy is.
pub(super) const PROGRESS_PAUSE: Duration = Duration::from_millis(500);
