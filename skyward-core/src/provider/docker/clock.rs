//! Times in the format of an engine.

use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Parses a time such as `2026-02-28T09:30:00.123456789+02:00`. An engine writes the year 1 for an
/// unknown time, which is none here.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    (time >= OffsetDateTime::UNIX_EPOCH).then(|| time.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_engines_are_parsed() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-11-22T13:17:21.123456789Z", 1_795_353_441),
            ("2026-11-22T15:17:21.5+02:00", 1_795_353_441),
            ("2026-11-22T07:47:21-05:30", 1_795_353_441),
        ] {
            let read = parse(text).map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs());
            assert_eq!(read, Some(seconds), "{text}");
        }
        for bad in [
            "",
            "2026-11-22",
            "0001-01-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-30T00:00:00Z",
            "2026-11-22T25:00:00Z",
            "2026-11-22T00:00:00",
            "x-y-zT1:2:3Z",
            "2026-11-22T00:00:00+",
            "2026-11-22T00:00:00+2:00:00",
            "+T+",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
