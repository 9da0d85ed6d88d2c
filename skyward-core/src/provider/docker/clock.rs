//! Times as an engine writes them.

use std::time::{Duration, SystemTime};

/// A time such as `2026-02-28T09:30:00.123456789+02:00`, to the second.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_once('T')?;
    let (time, offset) = rest.split_at(rest.find(['Z', '+', '-'])?);
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    let ahead = match offset.split_at(1) {
        ("Z", "") => 0,
        (sign, offset) => {
            let [hours, minutes] = numbers(offset, ':')?;
            (hours * 3600 + minutes * 60) * if sign == "-" { -1 } else { 1 }
        }
    };
    let in_range = (1970..10_000).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 || ahead.abs() >= 86_400 {
        return None;
    }
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - ahead;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Numbers of a few digits each.
fn numbers<const N: usize>(text: &str, separator: char) -> Option<[i64; N]> {
    let plain = |part: &str| {
        let digits = (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        if digits { part.parse::<i64>().ok() } else { None }
    };
    text.split(separator).map(plain).collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// Days since 1970 in the Gregorian calendar, whose years are counted from March on.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leaps = year / 4 - year / 100 + year / 400;
    // From 1 March of the year 0 to 1 January 1970.
    year * 365 + leaps + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_engines_are_read() {
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
