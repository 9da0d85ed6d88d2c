//! Encodes keys of dicts. A key is a str or an int, because both Rust and Python can read these.

use serde::ser::{self, Error as _, Impossible, Serialize};

use super::encode::Encoder;
use super::encode_error::EncodeError;

/// Writes a key.
pub(super) struct KeyEncoder<'a, 'b>(pub(super) &'a mut Encoder<'b>);

macro_rules! integers {
    ($($method:ident $rust:ty => $write:ident),+ $(,)?) => {$(
        fn $method(self, value: $rust) -> Result<(), EncodeError> {
            self.0.$write(value.into())
        }
    )+};
}

macro_rules! refused {
    ($($method:ident($($type:ty),*) -> $ok:ty: $name:literal;)+) => {$(
        fn $method(self, $(_: $type),*) -> Result<$ok, EncodeError> {
            Err(refuse($name))
        }
    )+};
}

impl ser::Serializer for KeyEncoder<'_, '_> {
    type Ok = ();
    type Error = EncodeError;
    type SerializeSeq = Impossible<(), EncodeError>;
    type SerializeTuple = Impossible<(), EncodeError>;
    type SerializeTupleStruct = Impossible<(), EncodeError>;
    type SerializeTupleVariant = Impossible<(), EncodeError>;
    type SerializeMap = Impossible<(), EncodeError>;
    type SerializeStruct = Impossible<(), EncodeError>;
    type SerializeStructVariant = Impossible<(), EncodeError>;

    integers! {
        serialize_i8 i8 => signed,
        serialize_i16 i16 => signed,
        serialize_i32 i32 => signed,
        serialize_i64 i64 => signed,
        serialize_u8 u8 => unsigned,
        serialize_u16 u16 => unsigned,
        serialize_u32 u32 => unsigned,
        serialize_u64 u64 => unsigned,
    }

    fn serialize_char(self, value: char) -> Result<(), EncodeError> {
        self.0.text(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Result<(), EncodeError> {
        self.0.text(value)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), EncodeError> {
        self.0.text(variant)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), EncodeError> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), EncodeError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: &T,
    ) -> Result<(), EncodeError> {
        Err(refuse(&format!("the variant {name}::{variant} with content")))
    }

    refused! {
        serialize_bool(bool) -> (): "a bool";
        serialize_i128(i128) -> (): "an i128";
        serialize_u128(u128) -> (): "a u128";
        serialize_f32(f32) -> (): "a float";
        serialize_f64(f64) -> (): "a float";
        serialize_bytes(&[u8]) -> (): "bytes";
        serialize_none() -> (): "None";
        serialize_unit() -> (): "None";
        serialize_unit_struct(&'static str) -> (): "None";
        serialize_seq(Option<usize>) -> Self::SerializeSeq: "a list";
        serialize_tuple(usize) -> Self::SerializeTuple: "a tuple";
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct: "a tuple";
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant: "a variant with content";
        serialize_map(Option<usize>) -> Self::SerializeMap: "a dict";
        serialize_struct(&'static str, usize) -> Self::SerializeStruct: "a struct";
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant: "a variant with content";
    }
}

#[cold]
fn refuse(what: &str) -> EncodeError {
    EncodeError::custom(format_args!("a key of a dict must be a str or an int, not {what}"))
}
