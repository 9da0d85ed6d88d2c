//! The error of a value that cannot be decoded: the path in the value, what was expected, what was
//! found.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use super::describe::{self, describe};
use super::path::{Path, Segment};
use super::reader::{Malformed, Reader, Token};
use crate::error::{Error, ErrorKind};

/// Why a value cannot be decoded to a Rust type.
#[derive(Debug)]
pub(super) struct DecodeError(Box<Fault>);

#[derive(Debug)]
struct Fault {
    reason: Reason,
    found: Found,
    hint: Option<&'static str>,
    path: Path,
    /// Whether the value in which the error happened was examined.
    placed: bool,
}

#[derive(Debug)]
enum Reason {
    Expected(String),
    Other(String),
}

/// What was found. Serde describes a value only roughly, so lists, dicts and unknown values are
/// described again from the wire form.
#[derive(Debug)]
enum Found {
    Unknown,
    Exactly(String),
    List(String),
    Dict(String),
}

impl DecodeError {
    pub(super) fn expected(expected: impl fmt::Display, found: impl Into<String>) -> Self {
        Self::new(Reason::Expected(expected.to_string()), Found::Exactly(found.into()))
    }

    #[must_use]
    pub(super) fn with_hint(mut self, hint: &'static str) -> Self {
        self.0.hint.get_or_insert(hint);
        self
    }

    /// Adds the element or entry in which the error happened to the path.
    #[must_use]
    pub(super) fn inside(mut self, segment: Segment) -> Self {
        self.0.path.prepend(segment);
        self
    }

    /// Records the value in which the error happened, which begins at the reader. Only the first
    /// call, that of the innermost value, has an effect.
    #[must_use]
    pub(super) fn in_value(mut self, reader: Reader<'_>) -> Self {
        let fault = &mut *self.0;
        if fault.placed {
            return self;
        }
        fault.placed = true;
        let token = reader.at(reader.position()).token();
        let better = match (&fault.found, &token) {
            (Found::Unknown, _)
            | (Found::List(_), Ok(Token::List(_) | Token::Bin(_) | Token::Ext(..)))
            | (Found::Dict(_), Ok(Token::Dict(_) | Token::List(_))) => Some(describe(reader)),
            (Found::Exactly(found), Ok(Token::Ext(..))) if !found.starts_with("an array") => {
                Some(format!("{found} in {}", describe(reader)))
            }
            _ => None,
        };
        if let Some(better) = better {
            fault.found = Found::Exactly(better);
        }
        self
    }

    /// Converts to the error that callers see.
    pub(super) fn into_error(self, rust_type: &str) -> Error {
        let Fault { reason, found, hint, path, .. } = *self.0;
        let found = match found {
            Found::Unknown => None,
            Found::Exactly(text) | Found::List(text) | Found::Dict(text) => Some(text),
        };
        let hint = hint.unwrap_or_else(|| suggestion(&reason, found.as_deref(), &path));
        let reason = match (reason, found) {
            (Reason::Expected(expected), Some(found)) => format!("expected {expected}, found {found}"),
            (Reason::Expected(expected), None) => format!("expected {expected}"),
            (Reason::Other(text), Some(found)) => format!("{text}, found {found}"),
            (Reason::Other(text), None) => text,
        };
        let message = format!("the payload's value cannot be decoded into `{}`: {reason}", short_name(rust_type));
        let error = Error::new(ErrorKind::Decode, message).with_hint(hint);
        if path.is_root() { error } else { error.with_context("path", path) }
    }

    fn new(reason: Reason, found: Found) -> Self {
        Self(Box::new(Fault { reason, found, hint: None, path: Path::default(), placed: false }))
    }
}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(Reason::Other(message.to_string()), Found::Unknown)
    }

    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(Reason::Expected(expected.to_string()), unexpected.into())
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(Reason::Expected(expected.to_string()), unexpected.into())
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::new(Reason::Expected(expected.to_string()), Found::List(format!("{length} items")))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Reason::Expected(one_of("variants", expected)), Found::Exactly(describe::string(variant)))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Reason::Expected(one_of("keys", expected)), Found::Exactly(format!("the key {field:?}")))
            .with_hint("leave the key out in Python, add the field in Rust, or remove `#[serde(deny_unknown_fields)]`")
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Reason::Expected(format!("the key {field:?}")), Found::Unknown).with_hint(
            "return the key from Python, or mark the Rust field `#[serde(default)]`, or rename it with `#[serde(rename = \"…\")]`",
        )
    }
}

impl From<Malformed> for DecodeError {
    fn from(malformed: Malformed) -> Self {
        let mut error =
            Self::new(Reason::Other(format!("it is not MessagePack: {}", malformed.text())), Found::Unknown);
        error.0.placed = true;
        error.with_hint("the bytes were damaged, or the node runs another version of the worker")
    }
}

impl From<Unexpected<'_>> for Found {
    fn from(unexpected: Unexpected<'_>) -> Self {
        match unexpected {
            Unexpected::Unit | Unexpected::Option => Self::Exactly("None".to_owned()),
            Unexpected::Bool(value) => Self::Exactly(describe::boolean(value).to_owned()),
            Unexpected::Unsigned(value) => Self::Exactly(format!("the int {value}")),
            Unexpected::Signed(value) => Self::Exactly(format!("the int {value}")),
            Unexpected::Float(value) => Self::Exactly(format!("the float {value:?}")),
            Unexpected::Char(value) => Self::Exactly(describe::string(value.encode_utf8(&mut [0; 4]))),
            Unexpected::Str(value) => Self::Exactly(describe::string(value)),
            Unexpected::Bytes(value) => Self::Exactly(describe::byte_string(value)),
            Unexpected::Seq => Self::List("a list".to_owned()),
            Unexpected::Map => Self::Dict("a dict".to_owned()),
            Unexpected::UnitVariant => Self::Exactly("a str alone".to_owned()),
            Unexpected::NewtypeVariant | Unexpected::TupleVariant | Unexpected::StructVariant => {
                Self::Exactly("a variant with content".to_owned())
            }
            other => Self::Exactly(other.to_string()),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.reason {
            Reason::Expected(expected) => write!(f, "expected {expected}"),
            Reason::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The name of a type without its modules, also inside `<…>`: `Report` for `my_crate::Report`.
pub(super) fn short_name(rust_type: &str) -> String {
    let mut name = String::with_capacity(rust_type.len());
    let mut start = 0;
    for (at, character) in rust_type.char_indices() {
        if !(character.is_alphanumeric() || character == '_' || character == ':') {
            name.push_str(last_segment(&rust_type[start..at]));
            name.push(character);
            start = at + character.len_utf8();
        }
    }
    name.push_str(last_segment(&rust_type[start..]));
    name
}

fn last_segment(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

fn one_of(what: &str, names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    match names.as_slice() {
        [] => format!("none, because there are no {what}"),
        [name] => name.clone(),
        _ => format!("one of the {what} {}", names.join(", ")),
    }
}

fn suggestion(reason: &Reason, found: Option<&str>, path: &Path) -> &'static str {
    let expected = match reason {
        Reason::Expected(expected) => expected.as_str(),
        Reason::Other(_) => {
            return "make the Rust type match the value that the Python function returns, or the reverse";
        }
    };
    let found = found.unwrap_or_default();
    let integer = INTEGERS.contains(&expected);
    if found == "None" && path.is_root() {
        "the Python function returned None: `return` a value on every path, or use `Option<…>` as the result in Rust"
    } else if found == "None" {
        "make the Rust field an `Option<…>`, or never return None here from Python"
    } else if integer && found.starts_with("the float") {
        "convert it in Python with `int(…)`, or use `f64` in Rust"
    } else if integer && found.starts_with("the int") {
        "use a wider or a signed integer in Rust"
    } else if expected.starts_with("an array") && found.starts_with("an array") {
        "convert it in Python (`array.astype(…)`, `array.reshape(…)`), or change the Rust type"
    } else if expected.starts_with("an array") {
        "return a NumPy array (`numpy.asarray(…)`), or use `Vec<…>` in Rust for a list"
    } else if expected.contains("string") && found.starts_with("bytes") {
        "decode it in Python with `.decode()`, or use `Vec<u8>` in Rust"
    } else {
        "make the Rust type match the value that the Python function returns, or the reverse"
    }
}

/// Serde's names for integer types.
const INTEGERS: [&str; 12] = ["i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128", "usize"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_lose_their_modules() {
        assert_eq!(
            short_name("alloc::vec::Vec<(f64, core::option::Option<my_crate::a::Report>)>"),
            "Vec<(f64, Option<Report>)>"
        );
        assert_eq!(short_name("[u8; 3]"), "[u8; 3]");
    }
}
