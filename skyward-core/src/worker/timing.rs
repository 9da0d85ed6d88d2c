//! The times of connections to a node, by what they bound.

use std::time::Duration;

/// How long the rest of a frame may make no progress.
pub(crate) const FRAME_STALLED: Duration = Duration::from_secs(15);
