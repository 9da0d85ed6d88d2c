//! The time of EC2, in which all absolute times are.
//!
//! The clock of this client may be wrong by hours: the SDK signs its calls with the time of the
//! service, which it takes from the service's answers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_sdk_ec2::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::BoxError;
use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use skyward_core::provider::clock as elapsed;

/// The time of the services of an account, from the `Date` of their answers. Clones are the same.
///
/// Between two answers it goes on by [`elapsed`], so a step of this client's clock does not change
/// it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Arc<Mutex<Option<Answer>>>);

/// The time in an answer, and when the answer came.
#[derive(Debug, Clone, Copy)]
struct Answer {
    time: SystemTime,
    at: Instant,
}

impl Clock {
    /// The time of the services. Before their first answer, it is that of this client.
    pub(crate) fn now(&self) -> SystemTime {
        self.at(elapsed::now(), SystemTime::now())
    }

    /// The moment of this time by the clock of this client.
    pub(crate) fn local(&self, time: SystemTime) -> SystemTime {
        moved(SystemTime::now(), self.now(), time)
    }

    /// A clock that got this `Date` now.
    #[cfg(test)]
    pub(crate) fn told(date: &str) -> Self {
        let clock = Self::default();
        clock.on_answer(date, elapsed::now());
        clock
    }

    /// The time of the services at `now`, when this client's clock has `local`.
    fn at(&self, now: Instant, local: SystemTime) -> SystemTime {
        let answer = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |answer: Answer| answer.time.checked_add(now.saturating_duration_since(answer.at));
        answer.and_then(since).unwrap_or(local)
    }

    /// Records the `Date` of an answer that has come now.
    fn on_answer(&self, date: &str, at: Instant) {
        let date = DateTime::from_str(date, DateTimeFormat::HttpDate).ok();
        let time = date.and_then(|date| SystemTime::try_from(date).ok());
        // The header leaves out the part of a second. The latest time that it can mean counts, so
        // that no machine ends too early.
        if let Some(time) = time.and_then(|time| time.checked_add(Duration::from_secs(1))) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Answer { time, at });
        }
    }
}

/// Reads the `Date` of each answer, also of refusals.
impl Intercept for Clock {
    fn name(&self) -> &'static str {
        "Clock"
    }

    fn read_after_transmit(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(date) = context.response().headers().get("date") {
            self.on_answer(date, elapsed::now());
        }
        Ok(())
    }
}

/// A time that is as far from `to` as `time` is from `from`.
fn moved(to: SystemTime, from: SystemTime, time: SystemTime) -> SystemTime {
    let moved = match time.duration_since(from) {
        Ok(later) => to.checked_add(later),
        Err(earlier) => to.checked_sub(earlier.duration()),
    };
    moved.unwrap_or(time)
}

#[cfg(test)]
mod tests;
