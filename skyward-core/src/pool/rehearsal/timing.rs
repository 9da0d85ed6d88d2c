//! The times of rehearsals, by what they bound.

use std::time::Duration;

use crate::scheduler::timing::{STACKS, SUSPICION};

/// How long to wait for the last events after the pool has ended.
pub(crate) const LAST_EVENTS: Duration = Duration::from_secs(5);
/// How long the other ranks get to fail after one rank has failed: a little longer than the
/// scheduler takes to distinguish a cause from its consequences.
pub(crate) const OTHER_RANKS_FAIL: Duration = SUSPICION.saturating_mul(2);
/// The shortest limit that is accepted. A sign of progress arrives up to 0.2 s late.
pub(crate) const SHORTEST_LIMIT: Duration = Duration::from_secs(1);
/// How late the end of a gang without progress may be, because its ranks report where they are.
pub(crate) const STALL_END: Duration = STACKS.saturating_add(Duration::from_secs(1));
