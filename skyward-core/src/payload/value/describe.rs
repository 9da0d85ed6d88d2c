//! Describes a value in a few words, for an error.

use std::fmt::Write;

use super::elements::ArrayView;
use super::path::shorten;
use super::reader::{Reader, Token};
use super::record;

/// Describes the value that begins at the reader: `None`, `the str "abc"`,
/// `a dict with the keys "node", "loss"`, `an array float32[3, 4]`.
pub(super) fn describe(mut reader: Reader<'_>) -> String {
    match reader.token() {
        Ok(Token::Nil) => "None".to_owned(),
        Ok(Token::Bool(value)) => boolean(value).to_owned(),
        Ok(Token::Unsigned(value)) => format!("the int {value}"),
        Ok(Token::Signed(value)) => format!("the int {value}"),
        Ok(Token::F32(value)) => format!("the float {value:?}"),
        Ok(Token::F64(value)) => format!("the float {value:?}"),
        Ok(Token::Str(bytes)) => string(&String::from_utf8_lossy(bytes)),
        Ok(Token::Bin(bytes)) => byte_string(bytes),
        Ok(Token::List(length)) if let Some(names) = record::names(reader, length) => named(names),
        Ok(Token::List(0)) => "an empty list".to_owned(),
        Ok(Token::List(length)) => format!("a list of {length}"),
        Ok(Token::Dict(0)) => "an empty dict".to_owned(),
        Ok(Token::Dict(length)) => format!("a dict with the {}", keys(reader, length)),
        Ok(Token::Ext(ARRAY, body)) => match ArrayView::parse(body) {
            Ok(view) => array(view.dtype(), view.shape()),
            Err(_) => "a malformed array".to_owned(),
        },
        Ok(Token::Ext(kind, body)) => format!("a MessagePack extension of type {kind} and {} bytes", body.len()),
        Err(_) => "nothing".to_owned(),
    }
}

pub(super) fn boolean(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

pub(super) fn string(text: &str) -> String {
    format!("the str {:?}", shorten(text))
}

pub(super) fn byte_string(bytes: &[u8]) -> String {
    format!("bytes of length {}", bytes.len())
}

/// `an array float32[3, 4]`.
pub(super) fn array(dtype: &str, shape: &[usize]) -> String {
    format!("an array {}{shape:?}", shorten(dtype))
}

/// `keys "a", "b"`. The existing keys are the best hint for a misspelled one.
fn keys(mut reader: Reader<'_>, length: u32) -> String {
    let mut text = String::from(if length == 1 { "key" } else { "keys" });
    for index in 0..length {
        if index == MAX_KEYS {
            let _ = write!(text, " and {} more", length - index);
            break;
        }
        let separator = if index == 0 { " " } else { ", " };
        let _ = match reader.token() {
            Ok(Token::Str(key)) => write!(text, "{separator}{:?}", shorten(&String::from_utf8_lossy(key))),
            Ok(Token::Unsigned(key)) => write!(text, "{separator}{key}"),
            Ok(Token::Signed(key)) => write!(text, "{separator}{key}"),
            _ => break,
        };
        if reader.skip().is_err() {
            break;
        }
    }
    text
}

/// `a tuple with the names "a", "b"`.
fn named(mut names: Reader<'_>) -> String {
    let mut text = String::from("a tuple with the names");
    let count = if let Ok(Token::List(count)) = names.token() { count } else { 0 };
    for index in 0..count.min(MAX_KEYS) {
        let Ok(Token::Str(name)) = names.token() else { break };
        let separator = if index == 0 { " " } else { ", " };
        let _ = write!(text, "{separator}{:?}", shorten(&String::from_utf8_lossy(name)));
    }
    if count > MAX_KEYS {
        let _ = write!(text, " and {} more", count - MAX_KEYS);
    }
    text
}

/// The MessagePack extension type of an array.
pub(super) const ARRAY: i8 = 1;

const MAX_KEYS: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_has_a_description() {
        for (bytes, words) in [
            (&b"\xc0"[..], "None"),
            (b"\xc3", "True"),
            (b"\xff", "the int -1"),
            (b"\xcb\x3f\xf0\0\0\0\0\0\0", "the float 1.0"),
            (b"\xa3a\"b", r#"the str "a\"b""#),
            (b"\xc4\x02ab", "bytes of length 2"),
            (b"\x90", "an empty list"),
            (b"\x93\x01\x02\x03", "a list of 3"),
            (b"\x82\xa1a\x91\x01\x07\x02", r#"a dict with the keys "a", 7"#),
            (b"\x81\xa1a", r#"a dict with the key "a""#),
            (b"\x93\xc7\x05\x02\x92\xa1a\xa1b\x01\x07", r#"a tuple with the names "a", "b""#),
            (b"\xc7\x0c\x01\x92\xa5uint8\x92\x02\x01\x05\x06", "an array uint8[2, 1]"),
            (b"\xc7\x01\x01\x92", "a malformed array"),
            (b"\xd4\x05\0", "a MessagePack extension of type 5 and 1 bytes"),
            (b"", "nothing"),
        ] {
            assert_eq!(describe(Reader::new(bytes)), words);
        }
        let long = format!("the str {:?}", "ä".repeat(60) + "…");
        assert_eq!(string(&"ä".repeat(61)), long);
    }

    #[test]
    fn only_some_of_many_keys_are_listed() {
        let mut bytes = vec![0xde, 0, 14];
        for key in 0..14 {
            bytes.extend([key, 0xc0]);
        }
        assert!(describe(Reader::new(&bytes)).ends_with("10, 11 and 2 more"));
    }
}
