//! The times of signatures, by the service's clock.

use std::time::{Duration, SystemTime};

use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use hyper::HeaderMap;
use hyper::header::HeaderValue;

use super::{Call, Reply};

/// How far the clock of the services is ahead of this host's, or behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Skew {
    /// Negative where it is behind.
    pub(crate) seconds: i64,
}

impl Skew {
    /// The time of the services.
    pub(crate) fn now(self) -> SystemTime {
        let (now, by) = (SystemTime::now(), Duration::from_secs(self.seconds.unsigned_abs()));
        if self.seconds < 0 { now - by } else { now + by }
    }

    /// The time as the header `Date` of an answer.
    pub(crate) fn date(self) -> Option<HeaderValue> {
        DateTime::from(self.now()).fmt(DateTimeFormat::HttpDate).ok()?.parse().ok()
    }
}

/// The refusal of a signature that was made too long before or after the service's time.
///
/// AWS documents: a request has to reach AWS within five minutes of the time in it
/// (<https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>).
/// Its services have different codes for it: EC2 has RequestExpired
/// (<https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html>), the other
/// services of the query protocol SignatureDoesNotMatch, and those with JSON
/// InvalidSignatureException. moto ignores the time.
pub(super) fn expired(call: &Call, headers: &HeaderMap, now: SystemTime) -> Option<Reply> {
    let signed = headers.get("x-amz-date")?.to_str().ok()?;
    let at = seconds(signed)?;
    let now = DateTime::from(now).secs();
    if now.abs_diff(at) <= WINDOW.as_secs() {
        return None;
    }
    let service = DateTime::from_secs(now).fmt(DateTimeFormat::DateTime).unwrap_or_default();
    let order = if at < now { "expired" } else { "not yet current" };
    let message = format!("Signature {order}: {signed} is not within 5 minutes of {service}.");
    Some(match call.service.as_str() {
        "ec2" => Reply::error(call, 400, "RequestExpired", "Request has expired."),
        _ if call.is_json() => Reply::error(call, 400, "InvalidSignatureException", &message),
        _ => Reply::error(call, 403, "SignatureDoesNotMatch", &message),
    })
}

/// A time such as `20260131T235959Z`, in seconds.
fn seconds(text: &str) -> Option<i64> {
    let part = |from: usize, to: usize| text.get(from..to);
    let [year, month, day] = [part(0, 4)?, part(4, 6)?, part(6, 8)?];
    let [hour, minute, second] = [part(9, 11)?, part(11, 13)?, part(13, 15)?];
    let text = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    Some(DateTime::from_str(&text, DateTimeFormat::DateTime).ok()?.secs())
}

/// How far the time of a signature may be from the service's.
const WINDOW: Duration = Duration::from_secs(5 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_as_old_as_its_time_says() {
        assert_eq!(seconds("19700102T000001Z"), Some(86_401));
        assert_eq!(seconds("19700102"), None);
        let ahead = Skew { seconds: 3600 };
        assert!(ahead.now() > SystemTime::now() + Duration::from_secs(3500));
        assert!(Skew { seconds: -3600 }.now() < SystemTime::now());
        assert!(ahead.date().unwrap().to_str().unwrap().ends_with(" GMT"));
    }
}
