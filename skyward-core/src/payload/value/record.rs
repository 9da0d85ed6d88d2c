//! A tuple whose items have names, such as a namedtuple: a list whose first element is extension 2,
//! which holds the names.
//!
//! A struct or map reads it by name, and a sequence by position.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Error as _, Expected, MapAccess, SeqAccess, Unexpected, Visitor};

use super::decode::{Decoder, all_taken};
use super::error::DecodeError;
use super::path::Segment;
use super::reader::{Reader, Token};

/// The names, if this list is a tuple with names. `list` is after the header of the list, which has
/// `length` elements.
pub(super) fn names<'de>(mut list: Reader<'de>, length: u32) -> Option<Reader<'de>> {
    // Most lists begin with another element, which the first byte shows.
    if length == 0 || !matches!(list.peek(), Some(0xc7..=0xc9 | 0xd4..=0xd8)) {
        return None;
    }
    match list.token() {
        Ok(Token::Ext(RECORD, body)) => Some(Reader::new(body)),
        _ => None,
    }
}

/// The error for a list, an array or a row of an array in the place of a struct. Its items have no
/// names, and the order of fields in Rust may differ from the order in Python.
#[cold]
pub(super) fn nameless() -> DecodeError {
    DecodeError::invalid_type(Unexpected::Seq, &Names)
        .with_hint("return a dict, a dataclass or a NamedTuple from Python, or make the Rust type a tuple")
}

/// What a struct expects.
struct Names;

impl Expected for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("named fields: a dict, a dataclass or a NamedTuple")
    }
}

/// The items of a tuple with names.
pub(super) struct Record<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    names: Reader<'de>,
    /// The name of the present item.
    name: &'de str,
    next: u32,
    length: u32,
}

/// Whether a tuple is read by name or by position.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Name,
    Position,
}

impl<'a, 'de> Record<'a, 'de> {
    /// Reads a tuple. The decoder is at its first element, the names, which `length` includes.
    pub(super) fn visit<V: Visitor<'de>>(
        decoder: &'a mut Decoder<'de>,
        mut names: Reader<'de>,
        length: u32,
        order: Order,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        decoder.reader.skip()?;
        let length = length - 1;
        if names.token()? != Token::List(length) {
            return Err(malformed());
        }
        let mut record = Self { decoder, names, name: "", next: 0, length };
        let value = match order {
            Order::Name => visitor.visit_map(&mut record)?,
            Order::Position => visitor.visit_seq(&mut record)?,
        };
        all_taken(record.next, length)?;
        Ok(value)
    }

    fn advance(&mut self) -> Result<bool, DecodeError> {
        if self.next == self.length {
            return Ok(false);
        }
        self.next += 1;
        let Token::Str(name) = self.names.token()? else { return Err(malformed()) };
        self.name = std::str::from_utf8(name).map_err(|_| malformed())?;
        Ok(true)
    }

    fn item<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DecodeError> {
        let start = self.decoder.reader;
        self.decoder.shared.take::<S::Value>()?;
        let value = seed.deserialize(&mut *self.decoder);
        value.map_err(|error| error.in_value(start).inside(Segment::Key(self.name.to_owned())))
    }
}

impl<'de> SeqAccess<'de> for Record<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        if self.advance()? { self.item(seed).map(Some) } else { Ok(None) }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(((self.length - self.next) as usize).min(self.names.remaining()))
    }
}

impl<'de> MapAccess<'de> for Record<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        if self.advance()? { seed.deserialize(BorrowedStrDeserializer::new(self.name)).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DecodeError> {
        self.item(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(((self.length - self.next) as usize).min(self.names.remaining()))
    }
}

#[cold]
fn malformed() -> DecodeError {
    <DecodeError as serde::de::Error>::custom("a malformed tuple: it needs one name, a text, for each item")
        .with_hint("the bytes were damaged, or the node runs another version of the worker")
}

/// The MessagePack extension type of the names.
const RECORD: i8 = 2;
