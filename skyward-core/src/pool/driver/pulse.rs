//! Measures how late the runtime of the embedding program runs its timers: while the runtime is
//! blocked, no lease is renewed.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::event::PoolEvent;
use crate::pool::tasks::shared::Shared;

/// Checks the runtime again and again, and reports when it was blocked.
pub(crate) async fn watch_runtime(shared: Arc<Shared>) {
    let lease = shared.limits.lease;
    loop {
        let due = Instant::now() + lease / LOOKS;
        sleep_until(due).await;
        let Some(late) = blocked(Instant::now() - due, lease) else { continue };
        shared.emit(PoolEvent::RuntimeBlocked { late, lease });
    }
}

/// How long the runtime was blocked, if that is long enough to report.
fn blocked(late: Duration, lease: Duration) -> Option<Duration> {
    (late > lease / TOLERATED).then_some(late)
}

/// The number of checks in the time of one lease; a block between two checks is noticed by the
/// second.
const LOOKS: u32 = 16;
/// A renewal is due every quarter of the lease, so a delay of a quarter means a missed renewal.
const TOLERATED: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_of_more_than_a_quarter_of_the_lease_is_reported() {
        let lease = Duration::from_secs(60);
        for (late, reported) in [(0, false), (1, false), (15, false), (16, true), (45, true), (600, true)] {
            let late = Duration::from_secs(late);
            assert_eq!(blocked(late, lease), reported.then_some(late), "{late:?}");
        }
    }
}
