//! Measures the round trip to an agent by the answers to its pings. No I/O.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The round trip of one connection: the least time that the answer to a ping has taken. Other
/// answers came later because a machine was busy.
#[derive(Debug, Default)]
pub(crate) struct RoundTrip(Mutex<Measured>);

#[derive(Debug, Default)]
struct Measured {
    /// The last ping.
    sent: Option<(u64, Instant)>,
    least: Option<Duration>,
}

impl RoundTrip {
    /// A ping with this number is sent.
    pub(crate) fn on_ping(&self, number: u64, now: Instant) {
        self.lock().sent = Some((number, now));
    }

    /// The answer to a ping has arrived.
    pub(crate) fn on_pong(&self, number: u64, now: Instant) {
        let mut measured = self.lock();
        if let Some((_, sent)) = measured.sent.take_if(|(last, _)| *last == number) {
            let took = now.saturating_duration_since(sent);
            measured.least = Some(measured.least.map_or(took, |least| least.min(took)));
        }
    }

    /// The round trip; zero until an answer has arrived.
    pub(crate) fn least(&self) -> Duration {
        self.lock().least.unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, Measured> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_time_of_an_answer_counts() {
        let trip = RoundTrip::default();
        assert_eq!(trip.least(), Duration::ZERO);
        let now = Instant::now();
        for (number, millis, least) in [(1, 30, 30), (2, 20, 20), (3, 40, 20)] {
            trip.on_ping(number, now);
            trip.on_pong(number, now + Duration::from_millis(millis));
            assert_eq!(trip.least(), Duration::from_millis(least));
        }
    }

    #[test]
    fn answers_to_earlier_pings_do_not_count() {
        let trip = RoundTrip::default();
        let now = Instant::now();
        trip.on_ping(1, now);
        trip.on_ping(2, now + Duration::from_millis(25));
        trip.on_pong(1, now + Duration::from_millis(30));
        assert_eq!(trip.least(), Duration::ZERO);
        trip.on_pong(2, now + Duration::from_millis(55));
        trip.on_pong(2, now + Duration::from_millis(55));
        assert_eq!(trip.least(), Duration::from_millis(30));
    }
}
