//! Encodes lists, dicts, bytes and arrays, element by element.

use std::ops::Range;

use rmp::encode as wire;
use serde::ser::{self, Serialize};

use super::describe::{ARRAY, describe};
use super::encode::{Encoder, length, unwritten};
use super::encode_error::EncodeError;
use super::key::KeyEncoder;
use super::keys::repeated;
use super::path::Segment;
use super::reader::Reader;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    List,
    Dict,
    /// A sequence of `u8`, written as bytes.
    Bytes,
    /// The extension for arrays: dtype, shape, elements.
    Array,
}

impl Container {
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
    container: Container,
    /// The position of the header.
    header: usize,
    declared: Option<u32>,
    count: usize,
    /// The depth of the elements.
    depth: u32,
    /// The positions of the keys of a map.
    keys: Vec<Range<usize>>,
}

impl<'a, 'b> Compound<'a, 'b> {
    /// Begins a list, dict, bytes or an array at the encoder's depth. Without a declared length,
    /// the header is set at the end.
    pub(super) fn begin(
        encoder: &'a mut Encoder<'b>,
        container: Container,
        declared: Option<usize>,
    ) -> Result<Self, EncodeError> {
        let header = encoder.out.len();
        let container = if std::mem::take(&mut encoder.bytes) { Container::Bytes } else { container };
        if matches!(container, Container::List | Container::Dict) {
            encoder.deeper()?;
        }
        let declared = declared.map(|elements| length(elements, container.name())).transpose()?;
        match (container, declared) {
            (Container::List, Some(elements)) => {
                wire::write_array_len(encoder.out, elements).map(drop).map_err(unwritten)?
            }
            (Container::Dict, Some(elements)) => {
                wire::write_map_len(encoder.out, elements).map(drop).map_err(unwritten)?
            }
            (Container::Bytes, Some(elements)) => {
                wire::write_bin_len(encoder.out, elements).map(drop).map_err(unwritten)?
            }
            (Container::Bytes, None) => encoder.out.extend([BIN32, 0, 0, 0, 0]),
            (Container::List, None) => encoder.out.extend([ARRAY32, 0, 0, 0, 0]),
            (Container::Dict, None) => encoder.out.extend([MAP32, 0, 0, 0, 0]),
            (Container::Array, _) => encoder.out.extend([EXT32, 0, 0, 0, 0, ARRAY.cast_unsigned(), FIXARRAY2]),
        }
        let depth = encoder.depth;
        Ok(Self { encoder, container, header, declared, count: 0, depth, keys: Vec::new() })
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        let index = self.count;
        self.count += 1;
        self.encoder.depth = self.depth;
        self.encoder.raw = self.container == Container::Bytes || (self.container == Container::Array && index == 2);
        value.serialize(&mut *self.encoder).map_err(|error| match self.container {
            Container::List | Container::Bytes => error.inside(Segment::Index(index as u64)),
            _ => error,
        })
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), EncodeError> {
        self.count += 1;
        self.encoder.depth = self.depth;
        self.encoder.text(name)?;
        value.serialize(&mut *self.encoder).map_err(|error| error.inside(Segment::Key(name.to_owned())))
    }

    fn finish(self) -> Result<(), EncodeError> {
        let keys: Vec<_> = self.keys.iter().map(|key| &self.encoder.out[key.clone()]).collect();
        if let Some(key) = repeated(&keys) {
            let key = describe(Reader::new(key));
            return Err(ser::Error::custom(format_args!(
                "two entries have the key {key}, and one of them would be lost: a field and an entry of \
                 `#[serde(flatten)]`, or two keys with one text"
            )));
        }
        let number = match self.container {
            Container::Array => self.encoder.out.len() - self.header - EXT32_HEADER,
            _ => self.count,
        };
        let number = length(number, self.container.name())?;
        match (self.container, self.declared) {
            (Container::List | Container::Dict | Container::Bytes, Some(declared)) if declared == number => Ok(()),
            (Container::List | Container::Dict | Container::Bytes, Some(declared)) => {
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
        let start = self.encoder.out.len();
        key.serialize(KeyEncoder(&mut *self.encoder))?;
        self.keys.push(start..self.encoder.out.len());
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        self.encoder.depth = self.depth;
        let key = self.keys.last().map_or(0, |key| key.start);
        value
            .serialize(&mut *self.encoder)
            .map_err(|error| error.inside(Segment::key(Reader::new(self.encoder.out).at(key))))
    }

    fn end(self) -> Result<(), EncodeError> {
        self.finish()
    }
}

const BIN32: u8 = 0xc6;
const ARRAY32: u8 = 0xdd;
const MAP32: u8 = 0xdf;
const EXT32: u8 = 0xc9;
const FIXARRAY2: u8 = 0x92;
/// The size of an extension's marker, length and type.
const EXT32_HEADER: usize = 6;
