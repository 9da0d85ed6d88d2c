//! Limits in the forms of serde: durations in seconds, and `"unlimited"` for what has no limit.
//! JSON and TOML have no infinity, and TOML has no number as large as `u64::MAX`.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use super::Limits;

/// The word for no limit.
const UNLIMITED: &str = "unlimited";

/// A duration: a number of seconds.
pub(crate) mod seconds {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        if *duration >= Limits::LONGEST {
            return serializer.serialize_str(UNLIMITED);
        }
        serializer.serialize_f64(duration.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "a duration is a number of seconds, or \"unlimited\"")]
        enum Form {
            Seconds(f64),
            Word(Unlimited),
        }
        match Form::deserialize(deserializer)? {
            Form::Seconds(seconds) => Duration::try_from_secs_f64(seconds)
                .map_err(|error| D::Error::custom(format!("{seconds} seconds are no duration: {error}"))),
            Form::Word(_) => Ok(Duration::MAX),
        }
    }
}

/// The same for a duration that may be missing.
pub(crate) mod optional_seconds {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => seconds::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        #[derive(serde::Deserialize)]
        struct Form(#[serde(with = "seconds")] Duration);
        Ok(Option::<Form>::deserialize(deserializer)?.map(|form| form.0))
    }
}

/// A count: a whole number, of which the largest one of its type means no limit.
pub(crate) mod count {
    use super::*;

    pub(crate) fn serialize<T: Count, S: Serializer>(count: &T, serializer: S) -> Result<S::Ok, S::Error> {
        if *count == T::MAX { serializer.serialize_str(UNLIMITED) } else { count.serialize(serializer) }
    }

    pub(crate) fn deserialize<'de, T: Count, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "a limit is a whole number, or \"unlimited\"")]
        enum Form {
            Number(u64),
            Word(Unlimited),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(number) => T::try_from(number)
                .map_err(|_| D::Error::custom(format!("{number} is too large; `\"unlimited\"` sets no limit"))),
            Form::Word(_) => Ok(T::MAX),
        }
    }
}

/// A whole number of a limit.
pub(crate) trait Count: Copy + PartialEq + Serialize + TryFrom<u64> {
    const MAX: Self;
}

impl Count for u32 {
    const MAX: Self = Self::MAX;
}

impl Count for u64 {
    const MAX: Self = Self::MAX;
}

impl Count for usize {
    const MAX: Self = Self::MAX;
}

/// The word `unlimited`.
struct Unlimited;

impl<'de> Deserialize<'de> for Unlimited {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;
        impl serde::de::Visitor<'_> for Word {
            type Value = Unlimited;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"unlimited\"")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Unlimited, E> {
                if word == UNLIMITED {
                    Ok(Unlimited)
                } else {
                    Err(E::invalid_value(serde::de::Unexpected::Str(word), &self))
                }
            }
        }
        deserializer.deserialize_str(Word)
    }
}
