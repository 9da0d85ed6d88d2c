//! The times of the terminal, by what they bound.

use std::time::Duration;

/// How long rendering waits at its end for a terminal that does not accept text.
pub(crate) const LAST_WRITE: Duration = Duration::from_secs(1);
/// How often the spinners of the rows move.
pub(crate) const SPINNER_PAUSE: Duration = Duration::from_millis(120);
