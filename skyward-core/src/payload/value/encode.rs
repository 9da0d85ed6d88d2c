//! Encodes any serde type to the wire form.

use rmp::encode as wire;
use serde::ser::{self, Serialize};

use super::describe::ARRAY;
use super::encode_error::EncodeError;
use super::key::KeyEncoder;
use super::path::Segment;
use super::reader::Reader;
use super::tensor;

/// Appends values to a buffer.
pub(super) struct Encoder<'b> {
    out: &'b mut Vec<u8>,
    /// The next bytes are the elements of an array, and get no header of their own.
    raw: bool,
    /// The next sequence is of `u8`, and is written as bytes.
    bytes: bool,
}

impl<'b> Encoder<'b> {
    pub(super) fn new(out: &'b mut Vec<u8>) -> Self {
        Self { out, raw: false, bytes: false }
    }

    /// Writes a sequence of `u8` as bytes. Serde shows only the elements of a sequence, so the
    /// caller must know the type.
    pub(super) fn of_bytes(out: &'b mut Vec<u8>) -> Self {
        Self { out, raw: false, bytes: true }
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

    fn entry(&mut self, name: &str) -> Result<(), EncodeError> {
        wire::write_map_len(self.out, 1).map_err(unwritten)?;
        self.text(name)
    }

    /// Begins a list, dict, bytes or an array. Without a declared length, the header is set at the
    /// end.
    fn begin(&mut self, shape: Shape, declared: Option<usize>) -> Result<Compound<'_, 'b>, EncodeError> {
        let header = self.out.len();
        let shape = if std::mem::take(&mut self.bytes) { Shape::Bytes } else { shape };
        let declared = declared.map(|elements| length(elements, shape.name())).transpose()?;
        match (shape, declared) {
            (Shape::List, Some(elements)) => wire::write_array_len(self.out, elements).map(drop).map_err(unwritten)?,
            (Shape::Dict, Some(elements)) => wire::write_map_len(self.out, elements).map(drop).map_err(unwritten)?,
            (Shape::Bytes, Some(elements)) => wire::write_bin_len(self.out, elements).map(drop).map_err(unwritten)?,
            (Shape::Bytes, None) => self.out.extend([BIN32, 0, 0, 0, 0]),
            (Shape::List, None) => self.out.extend([ARRAY32, 0, 0, 0, 0]),
            (Shape::Dict, None) => self.out.extend([MAP32, 0, 0, 0, 0]),
            (Shape::Array, _) => self.out.extend([EXT32, 0, 0, 0, 0, ARRAY.cast_unsigned(), FIXARRAY2]),
        }
        Ok(Compound { encoder: self, shape, header, declared, count: 0, key: header })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    List,
    Dict,
    /// A sequence of `u8`, written as bytes.
    Bytes,
    /// The extension for arrays: dtype, shape, elements.
    Array,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::List | Self::Array => "a list",
            Self::Dict => "a dict",
            Self::Bytes => "bytes",
        }
    }
}

/// A list, dict, bytes or array that is being written.
pub(super) struct Compound<'a, 'b> {
    encoder: &'a mut Encoder<'b>,
    shape: Shape,
    /// The position of the header.
    header: usize,
    declared: Option<u32>,
    count: usize,
    /// The position of the present entry's key.
    key: usize,
}

impl Compound<'_, '_> {
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        let index = self.count;
        self.count += 1;
        self.encoder.raw = self.shape == Shape::Bytes || (self.shape == Shape::Array && index == 2);
        value.serialize(&mut *self.encoder).map_err(|error| match self.shape {
            Shape::List | Shape::Bytes => error.inside(Segment::Index(index as u64)),
            _ => error,
        })
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), EncodeError> {
        self.count += 1;
        self.encoder.text(name)?;
        value.serialize(&mut *self.encoder).map_err(|error| error.inside(Segment::Key(name.to_owned())))
    }

    fn finish(self) -> Result<(), EncodeError> {
        let number = match self.shape {
            Shape::Array => self.encoder.out.len() - self.header - EXT32_HEADER,
            _ => self.count,
        };
        let number = length(number, self.shape.name())?;
        match (self.shape, self.declared) {
            (Shape::List | Shape::Dict | Shape::Bytes, Some(declared)) if declared == number => Ok(()),
            (Shape::List | Shape::Dict | Shape::Bytes, Some(declared)) => {
                Err(ser::Error::custom(format_args!("its `Serialize` declared {declared} elements and wrote {number}")))
            }
            _ => {
                let place = &mut self.encoder.out[self.header + 1..self.header + 5];
                place.copy_from_slice(&number.to_be_bytes());
                Ok(())
            }
        }
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

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), EncodeError> {
        value.serialize(self)
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
        self.begin(Shape::List, elements)
    }

    fn serialize_tuple(self, elements: usize) -> Result<Compound<'a, 'b>, EncodeError> {
        self.begin(Shape::List, Some(elements))
    }

    fn serialize_tuple_struct(self, name: &'static str, elements: usize) -> Result<Compound<'a, 'b>, EncodeError> {
        let shape = if name == tensor::TOKEN { Shape::Array } else { Shape::List };
        self.begin(shape, Some(elements))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        elements: usize,
    ) -> Result<Compound<'a, 'b>, EncodeError> {
        self.entry(variant)?;
        self.begin(Shape::List, Some(elements))
    }

    fn serialize_map(self, entries: Option<usize>) -> Result<Compound<'a, 'b>, EncodeError> {
        self.begin(Shape::Dict, entries)
    }

    fn serialize_struct(self, _: &'static str, fields: usize) -> Result<Compound<'a, 'b>, EncodeError> {
        self.begin(Shape::Dict, Some(fields))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        fields: usize,
    ) -> Result<Compound<'a, 'b>, EncodeError> {
        self.entry(variant)?;
        self.begin(Shape::Dict, Some(fields))
    }
}

macro_rules! elements {
    ($($access:ident $method:ident),+) => {$(
        impl ser::$access for Compound<'_, '_> {
            type Ok = ();
            type Error = EncodeError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
                self.element(value)
            }

            fn end(self) -> Result<(), EncodeError> {
                self.finish()
            }
        }
    )+};
}

macro_rules! fields {
    ($($access:ident),+) => {$(
        impl ser::$access for Compound<'_, '_> {
            type Ok = ();
            type Error = EncodeError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), EncodeError> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), EncodeError> {
                self.finish()
            }
        }
    )+};
}

elements!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);
fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Compound<'_, '_> {
    type Ok = ();
    type Error = EncodeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), EncodeError> {
        self.count += 1;
        self.key = self.encoder.out.len();
        key.serialize(KeyEncoder(&mut *self.encoder))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        value
            .serialize(&mut *self.encoder)
            .map_err(|error| error.inside(Segment::key(Reader::new(self.encoder.out).at(self.key))))
    }

    fn end(self) -> Result<(), EncodeError> {
        self.finish()
    }
}

/// A length as MessagePack writes it, in 32 bits.
fn length(number: usize, what: &str) -> Result<u32, EncodeError> {
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
fn unwritten(error: impl std::fmt::Display) -> EncodeError {
    ser::Error::custom(error)
}

const BIN32: u8 = 0xc6;
const ARRAY32: u8 = 0xdd;
const MAP32: u8 = 0xdf;
const EXT32: u8 = 0xc9;
const FIXARRAY2: u8 = 0x92;
/// The size of an extension's marker, length and type.
const EXT32_HEADER: usize = 6;
