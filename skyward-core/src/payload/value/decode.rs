//! Decodes the wire form to any serde type.

use bytes::Bytes;
use serde::de::{Deserializer, Error as _, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::MAX_DEPTH;
use super::byte_list::ByteList;
use super::describe::{ARRAY, describe};
use super::doubt::Trial;
use super::elements::{ArrayView, Elements};
use super::error::DecodeError;
use super::floats;
use super::items::{Dict, List};
use super::keys::repeated;
use super::reader::{Reader, Token};
use super::record::{self, Order, Record};
use super::shared::Shared;
use super::tensor::{self, Tensor};
use super::variant::{NameAlone, OneKey, Variant};

/// Reads values from a frame.
pub(super) struct Decoder<'de> {
    pub(super) reader: Reader<'de>,
    pub(super) shared: Shared,
    frame: &'de Bytes,
    depth: u32,
    /// The last key was an int, and was read as the name of a field.
    pub(super) named_by_int: bool,
}

impl<'de> Decoder<'de> {
    pub(super) fn new(frame: &'de Bytes, trial: Option<Trial>) -> Self {
        Self {
            reader: Reader::new(frame),
            shared: Shared::new(frame.len(), trial),
            frame,
            depth: 0,
            named_by_int: false,
        }
    }

    /// Checks that no bytes follow the value.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        match self.reader.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::expected("one value", format!("{left} more bytes after it"))
                .with_hint("the bytes were damaged, or the node runs another version of the worker")),
        }
    }

    /// Reads one value and visits it by its own type.
    pub(super) fn value<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, DecodeError> {
        let start = self.reader;
        let value = match self.reader.token()? {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Unsigned(value) => visitor.visit_u64(value),
            Token::Signed(value) => visitor.visit_i64(value),
            Token::F32(value) => floats::visit_single(value, start.rest(), &self.shared, visitor),
            Token::F64(value) => floats::visit_double(value, start.rest(), &self.shared, visitor),
            Token::Str(bytes) => text(bytes).and_then(|text| visitor.visit_borrowed_str(text)),
            Token::Bin(bytes) => visitor.visit_borrowed_bytes(bytes),
            Token::List(length) => match record::names(self.reader, length) {
                Some(names) => self.record(names, length, Order::Name, visitor),
                None => self.list(length, visitor),
            },
            Token::Dict(length) => self.dict(length, visitor),
            Token::Ext(ARRAY, body) => ArrayView::parse(body).and_then(|view| {
                self.check_depth(view.levels())?;
                view.as_sequences(&self.shared)?.deserialize_any(visitor)
            }),
            Token::Ext(..) => Err(DecodeError::custom("the extension has no known type")),
        };
        value.map_err(|error| error.in_value(start))
    }

    fn list<V: Visitor<'de>>(&mut self, length: u32, visitor: V) -> Result<V::Value, DecodeError> {
        self.nested(|decoder| {
            let mut list = List { decoder, next: 0, length };
            let value = visitor.visit_seq(&mut list)?;
            all_taken(list.next, length)?;
            Ok(value)
        })
    }

    fn record<V: Visitor<'de>>(
        &mut self,
        names: Reader<'de>,
        length: u32,
        order: Order,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.nested(|decoder| Record::visit(decoder, names, length, order, visitor))
    }

    fn dict<V: Visitor<'de>>(&mut self, length: u32, visitor: V) -> Result<V::Value, DecodeError> {
        self.nested(|decoder| {
            let key = decoder.reader;
            let mut dict = Dict { decoder, key, keys: Vec::new(), next: 0, length };
            let value = visitor.visit_map(&mut dict)?;
            all_taken(dict.next, length)?;
            match repeated(&dict.keys) {
                None => Ok(value),
                Some(key) => Err(DecodeError::expected("one entry for each key", format!("{} twice", key.describe()))
                    .with_hint("in Python, 1 and '1' are two keys, and in Rust one field; rename one of them")),
            }
        })
    }

    /// Checks that this many more levels are not too deep.
    fn check_depth(&self, levels: usize) -> Result<(), DecodeError> {
        if self.depth as usize + levels <= MAX_DEPTH as usize {
            return Ok(());
        }
        Err(DecodeError::expected(format_args!("at most {MAX_DEPTH} levels"), "more")
            .with_hint("return a flatter value from Python"))
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        self.check_depth(1)?;
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    /// Reads a sequence. Bytes become a sequence of `u8` only, so that they are never read as other
    /// numbers. A tuple with names is read by position.
    pub(super) fn sequence<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, DecodeError> {
        let start = self.reader;
        let value = match self.reader.token() {
            Ok(Token::Bin(bytes)) => ByteList::visit(bytes, &self.shared, visitor),
            Ok(Token::List(length)) if let Some(names) = record::names(self.reader, length) => {
                self.record(names, length, Order::Position, visitor)
            }
            _ => {
                self.reader = start;
                return self.value(visitor);
            }
        };
        value.map_err(|error| error.in_value(start))
    }

    /// Reads the fields of a struct, and refuses a list: its items have no names, and the order of
    /// fields in Rust may differ from the order in Python.
    pub(super) fn fields<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, DecodeError> {
        let mut ahead = self.reader;
        let nameless = match ahead.token() {
            Ok(Token::List(length)) => record::names(ahead, length).is_none(),
            Ok(Token::Ext(ARRAY, _)) => true,
            _ => false,
        };
        if nameless {
            return Err(record::nameless());
        }
        self.value(visitor)
    }

    /// Reads a float, if the next value is a number.
    fn float<T>(
        &mut self,
        read: impl FnOnce(&Token<'de>) -> Option<Result<T, DecodeError>>,
    ) -> Result<Option<T>, DecodeError> {
        let start = self.reader;
        match self.reader.token().ok().as_ref().and_then(read) {
            Some(float) => float.map(Some).map_err(|error| error.in_value(start)),
            None => {
                self.reader = start;
                Ok(None)
            }
        }
    }

    fn tensor<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, DecodeError> {
        let start = self.reader;
        let Token::Ext(ARRAY, body) = self.reader.token()? else {
            return Err(DecodeError::expected("an array", describe(start)).in_value(start));
        };
        let end = self.reader.position();
        let value = ArrayView::parse(body).and_then(|view| {
            let bytes = self.frame.slice(end - view.data().len()..end);
            tensor::hand_over(Tensor::checked(view.dtype().to_owned(), view.into_shape(), bytes), || {
                visitor.visit_unit()
            })
        });
        value.map_err(|error| error.in_value(start))
    }
}

impl<'de> Deserializer<'de> for &mut Decoder<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.value(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.reader.peek() == Some(NIL) {
            self.reader.token()?;
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.float(floats::single)? {
            Some(float) => visitor.visit_f32(float),
            None => self.value(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.float(floats::double)? {
            Some(float) => visitor.visit_f64(float),
            None => self.value(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.sequence(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let start = self.reader;
        self.fields(visitor).map_err(|error| error.in_value(start))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        self.sequence(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        if name == tensor::TOKEN { self.tensor(visitor) } else { self.sequence(visitor) }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let start = self.reader;
        if let Ok(Token::Ext(ARRAY, body)) = self.reader.token() {
            let value =
                ArrayView::parse(body).and_then(|view| view.as_sequences(&self.shared)?.deserialize_bytes(visitor));
            return value.map_err(|error| error.in_value(start));
        }
        self.reader = start;
        self.value(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_bytes(visitor)
    }

    /// Refuses bytes. Serde would read them as a string if they happen to be UTF-8, and fail
    /// otherwise.
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let start = self.reader;
        if let Ok(Token::Bin(bytes)) = self.reader.token() {
            return Err(DecodeError::invalid_type(Unexpected::Bytes(bytes), &visitor).in_value(start));
        }
        self.reader = start;
        self.value(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_string(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let start = self.reader;
        let value = match self.reader.token()? {
            Token::Str(_) => {
                self.reader = start;
                visitor.visit_enum(NameAlone(self))
            }
            Token::Dict(1) => self.nested(|decoder| visitor.visit_enum(Variant::new(decoder))),
            Token::Dict(_) => Err(DecodeError::invalid_type(Unexpected::Map, &OneKey)),
            _ => {
                self.reader = start;
                Err(DecodeError::expected("the name of a variant", describe(start)))
            }
        };
        value.map_err(|error| error.in_value(start))
    }

    /// Reads the name of a struct's field. An int key becomes a text, because Serde would read an
    /// int as the index of the field, which a Python dict does not mean.
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let start = self.reader;
        match self.reader.token()? {
            Token::Unsigned(number) => {
                self.named_by_int = true;
                visitor.visit_string(number.to_string())
            }
            Token::Signed(number) => {
                self.named_by_int = true;
                visitor.visit_string(number.to_string())
            }
            _ => {
                self.reader = start;
                self.value(visitor)
            }
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.reader.skip()?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char unit unit_struct map
    }
}

pub(super) fn all_taken(taken: u32, length: u32) -> Result<(), DecodeError> {
    if taken == length { Ok(()) } else { Err(DecodeError::invalid_length(length as usize, &Elements(taken as usize))) }
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|error| DecodeError::custom(format_args!("a str that is not UTF-8: {error}")))
}

/// MessagePack's nil.
const NIL: u8 = 0xc0;
