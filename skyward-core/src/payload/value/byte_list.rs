//! Bytes read as a sequence of `u8`.

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::elements::Elements;
use super::error::DecodeError;
use super::shared::Shared;

/// A sequence of the bytes.
pub(super) struct ByteList<'a, 'de> {
    bytes: &'de [u8],
    shared: &'a Shared,
    next: usize,
}

impl<'a, 'de> ByteList<'a, 'de> {
    pub(super) fn visit<V: Visitor<'de>>(
        bytes: &'de [u8],
        shared: &'a Shared,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let mut list = Self { bytes, shared, next: 0 };
        let value = visitor.visit_seq(&mut list)?;
        if list.next < bytes.len() {
            return Err(DecodeError::invalid_length(bytes.len(), &Elements(list.next)));
        }
        Ok(value)
    }
}

impl<'de> SeqAccess<'de> for ByteList<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        let Some(byte) = self.bytes.get(self.next) else { return Ok(None) };
        self.next += 1;
        self.shared.take::<S::Value>()?;
        seed.deserialize(Byte { byte: *byte, all: self.bytes }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.bytes.len() - self.next)
    }
}

/// One byte, which becomes only a `u8`. A visitor of any other type receives all bytes, so that its
/// error describes them.
struct Byte<'de> {
    byte: u8,
    all: &'de [u8],
}

impl<'de> Deserializer<'de> for Byte<'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_borrowed_bytes(self.all)
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_u8(self.byte)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map
        struct enum identifier
    }
}
