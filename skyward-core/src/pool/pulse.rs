//! Measures how late the embedding program's runtime runs what is due: while it is blocked, no lease is renewed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::shared::Shared;
use crate::event::PoolEvent;

/// Looks again and again, and reports a runtime that was blocked.
pub(super) async fn watch_runtime(shared: Arc<Shared>) {
    let lease = shared.limits.lease;
    loop {
        let due = Instant::now() + lease / LOOKS;
        sleep_until(due).await;
        let Some(late) = blocked(Instant::now() - due, lease) else { continue };
        tracing::warn!(
            pool = %shared.pool, ?late, ?lease,
            "the runtime was blocked, and leases were renewed late: machines end themselves when a renewal is late by three quarters of the lease; \
             run what blocks in `spawn_blocking`, or the pool in a runtime of its own",
        );
        shared.emit(PoolEvent::RuntimeBlocked { late, lease });
    }
}

/// How long the runtime was blocked, if that is long enough to be reported.
fn blocked(late: Duration, lease: Duration) -> Option<Duration> {
    (late > lease / TOLERATED).then_some(late)
}

/// Looks in the time of one lease: what is blocked between two of them is seen by one.
const LOOKS: u32 = 16;
/// A renewal is due every quarter of the lease, so one that is late by as much is one that was left out.
const TOLERATED: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_by_more_than_a_quarter_of_the_lease_is_reported() {
        let lease = Duration::from_secs(60);
        for (late, reported) in [(0, false), (1, false), (15, false), (16, true), (45, true), (600, true)] {
            let late = Duration::from_secs(late);
            assert_eq!(blocked(late, lease), reported.then_some(late), "{late:?}");
        }
    }
}
