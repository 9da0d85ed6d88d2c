//! The times of the suites, by what they bound.

use std::time::Duration;

/// How long a command whose caller dropped it may take to end.
pub(super) const DROPPED_COMMAND_END: Duration = Duration::from_secs(10);
/// The first pause between two looks at something that changes.
pub(super) const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// How long a machine may take to answer.
pub(super) const REMOTE_ANSWER: Duration = Duration::from_secs(60);
