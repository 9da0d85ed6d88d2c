//! The clock by which the phases of instances pass. A test can make it go ahead.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;

/// A clock that counts from its start.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// By how much it was put forward.
    ahead: watch::Sender<Duration>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { began: Instant::now(), ahead: watch::Sender::new(Duration::ZERO) }
    }
}

impl Clock {
    /// The time since its start.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed() + *self.ahead.borrow()
    }

    /// Puts it forward.
    pub(crate) fn pass(&self, time: Duration) {
        self.ahead.send_modify(|ahead| *ahead += time);
    }

    /// Waits until it shows a time.
    pub(crate) async fn until(&self, time: Duration) {
        let mut ahead = self.ahead.subscribe();
        loop {
            let left = time.saturating_sub(self.now());
            if left.is_zero() {
                return;
            }
            // Either the time is over, or the clock was put forward: both are looked at again.
            let _ = timeout(left, ahead.changed()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_clock_that_is_put_forward_wakes_who_waits() {
        let clock = std::sync::Arc::new(Clock::default());
        let hour = Duration::from_secs(3600);
        let own = std::sync::Arc::clone(&clock);
        let waiting = tokio::spawn(async move { own.until(hour).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        clock.pass(hour);
        waiting.await.unwrap();
        assert!(clock.now() >= hour);
    }
}
