//! Encodes any serde type to the wire form.

use rmp::encode as wire;
use serde::ser::{self, Serialize};

use super::MAX_DEPTH;
use super::compound::{Compound, Container};
use super::encode_error::EncodeError;
use super::path::Segment;
use super::tensor;

/// Appends values to a buffer.
pub(super) struct Encoder<'b> {
    pub(super) out: &'b mut Vec<u8>,
    /// The next bytes are the elements of an array, and get no header of their own.
    pub(super) raw: bool,
    /// The next sequence is of `u8`, and is written as bytes.
    pub(super) bytes: bool,
    /// The number of lists and dicts around the next value.
    pub(super) depth: u32,
}

impl<'b> Encoder<'b> {
    pub(super) fn new(out: &'b mut Vec<u8>) -> Self {
        Self { out, raw: false, bytes: false, depth: 0 }
    }

    /// Writes a sequence of `u8` as bytes. Serde shows only the elements of a sequence, so the
    /// caller must know the type.
    pub(super) fn of_bytes(out: &'b mut Vec<u8>) -> Self {
        Self { out, raw: false, bytes: true, depth: 0 }
    }

    pub(super) fn unsigned(&mut self, value: u64) -> Result<(), EncodeError> {
        wire::write_uint(self.out, value).map(drop).map_err(unwritten)
    }

    pub(super) fn signed(&mut self, value: i64) -> Result<(), EncodeError> {
        wire::write_sint(self.out, value).map(drop).map_err(unwritten)
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), EncodeError> {
        length(text.len(), "a str")?;
        wire::write_str(self.out, text).map_err(unwritten)
    }

    /// Begins a dict of one entry, whose value follows.
    fn entry(&mut self, name: &str) -> Result<(), EncodeError> {
        self.deeper()?;
        wire::write_map_len(self.out, 1).map_err(unwritten)?;
        self.text(name)
    }

    /// Goes one level down.
    pub(super) fn deeper(&mut self) -> Result<(), EncodeError> {
        if self.depth == MAX_DEPTH {
            return Err(ser::Error::custom(format_args!(
                "it is nested more than {MAX_DEPTH} levels deep; send a flatter value"
            )));
        }
        self.depth += 1;
        Ok(())
    }
}

impl<'a, 'b> ser::Serializer for &'a mut Encoder<'b> {
    type Ok = ();
    type Error = EncodeError;
    type SerializeSeq = Compound<'a, 'b>;
    type SerializeTuple = Compound<'a, 'b>;
    type SerializeTupleStruct = Compound<'a, 'b>;
    type SerializeTupleVariant = Compound<'a, 'b>;
    type SerializeMap = Compound<'a, 'b>;
    type SerializeStruct = Compound<'a, 'b>;
    type SerializeStructVariant = Compound<'a, 'b>;

    fn serialize_bool(self, value: bool) -> Result<(), EncodeError> {
        wire::write_bool(self.out, value).map_err(unwritten)
    }

    fn serialize_i8(self, value: i8) -> Result<(), EncodeError> {
        self.signed(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), EncodeError> {
        self.signed(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), EncodeError> {
        self.signed(value.into())
    }

    fn serialize_i64(self, value: i64) -> Result<(), EncodeError> {
        self.signed(value)
    }

    fn serialize_i128(self, _: i128) -> Result<(), EncodeError> {
        Err(too_wide("i128"))
    }

    fn serialize_u8(self, value: u8) -> Result<(), EncodeError> {
        if std::mem::take(&mut self.raw) {
            self.out.push(value);
            return Ok(());
        }
        self.unsigned(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), EncodeError> {
        self.unsigned(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), EncodeError> {
        self.unsigned(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), EncodeError> {
        self.unsigned(value)
    }

    fn serialize_u128(self, _: u128) -> Result<(), EncodeError> {
        Err(too_wide("u128"))
    }

    fn serialize_f32(self, value: f32) -> Result<(), EncodeError> {
        wire::write_f32(self.out, value).map_err(unwritten)
    }

    fn serialize_f64(self, value: f64) -> Result<(), EncodeError> {
        wire::write_f64(self.out, value).map_err(unwritten)
    }

    fn serialize_char(self, value: char) -> Result<(), EncodeError> {
        self.text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), EncodeError> {
        self.text(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), EncodeError> {
        if std::mem::take(&mut self.raw) {
            self.out.extend_from_slice(value);
            return Ok(());
        }
        length(value.len(), "bytes")?;
        wire::write_bin(self.out, value).map_err(unwritten)
    }

    fn serialize_none(self) -> Result<(), EncodeError> {
        self.serialize_unit()
    }

    /// Refuses a content that is written as None, which would be read as the other `None`.
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), EncodeError> {
        let start = self.out.len();
        value.serialize(&mut *self)?;
        if self.out.get(start..) == Some(&[NIL]) {
            return Err(ser::Error::custom(
                "`Some` of a value that is None in Python cannot be told from `None`; send an enum or a list instead",
            ));
        }
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), EncodeError> {
        wire::write_nil(self.out).map_err(unwritten)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), EncodeError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), EncodeError> {
        self.text(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), EncodeError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        self.entry(variant)?;
        value.serialize(self).map_err(|error| error.inside(Segment::Key(variant.to_owned())))
    }

    fn serialize_seq(self, elements: Option<usize>) -> Result<Compound<'a, 'b>, EncodeError> {
        Compound::begin(self, Container::List, elements)
    }

    fn serialize_tuple(self, elements: usize) -> Result<Compound<'a, 'b>, EncodeError> {
        Compound::begin(self, Container::List, Some(elements))
    }

    fn serialize_tuple_struct(self, name: &'static str, elements: usize) -> Result<Compound<'a, 'b>, EncodeError> {
        let container = if name == tensor::TOKEN { Container::Array } else { Container::List };
        Compound::begin(self, container, Some(elements))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        elements: usize,
    ) -> Result<Compound<'a, 'b>, EncodeError> {
        self.entry(variant)?;
        Compound::begin(self, Container::List, Some(elements))
    }

    fn serialize_map(self, entries: Option<usize>) -> Result<Compound<'a, 'b>, EncodeError> {
        Compound::begin(self, Container::Dict, entries)
    }

    fn serialize_struct(self, _: &'static str, fields: usize) -> Result<Compound<'a, 'b>, EncodeError> {
        Compound::begin(self, Container::Dict, Some(fields))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        fields: usize,
    ) -> Result<Compound<'a, 'b>, EncodeError> {
        self.entry(variant)?;
        Compound::begin(self, Container::Dict, Some(fields))
    }
}

/// A length as MessagePack writes it, in 32 bits.
pub(super) fn length(number: usize, what: &str) -> Result<u32, EncodeError> {
    u32::try_from(number)
        .map_err(|_| ser::Error::custom(format_args!("{what} of length {number} is longer than a value can hold")))
}

#[cold]
fn too_wide(name: &str) -> EncodeError {
    ser::Error::custom(format_args!(
        "{name} is wider than the 64 bits of an int in a value; send it as an `i64`, a `u64` or text"
    ))
}

#[cold]
pub(super) fn unwritten(error: impl std::fmt::Display) -> EncodeError {
    ser::Error::custom(error)
}

const NIL: u8 = 0xc0;
