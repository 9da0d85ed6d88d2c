//! The times of connections to movers, by what they bound.

use std::time::Duration;

/// How long a mover may be silent while an answer is due. Then the connection counts as lost.
pub(super) const MOVER_SILENCE: Duration = Duration::from_secs(20);
