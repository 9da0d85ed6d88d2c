//! Reads externally tagged enums.

use serde::de::{self, DeserializeSeed, EnumAccess, Error as _, Unexpected, VariantAccess, Visitor};

use super::decode::Decoder;
use super::error::DecodeError;
use super::path::Segment;
use super::reader::Reader;

/// A variant's name without content.
pub(super) struct NameAlone<'a, 'de>(pub(super) &'a mut Decoder<'de>);

impl<'de> EnumAccess<'de> for NameAlone<'_, 'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), DecodeError> {
        Ok((seed.deserialize(&mut *self.0)?, self))
    }
}

impl<'de> VariantAccess<'de> for NameAlone<'_, 'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, _: S) -> Result<S::Value, DecodeError> {
        Err(name_alone())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, DecodeError> {
        Err(name_alone())
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, DecodeError> {
        Err(name_alone())
    }
}

/// A dict of one entry: a variant's name and its content.
pub(super) struct Variant<'a, 'de> {
    decoder: &'a mut Decoder<'de>,
    key: Reader<'de>,
}

impl<'a, 'de> Variant<'a, 'de> {
    /// The entry that begins at the position of the decoder.
    pub(super) fn new(decoder: &'a mut Decoder<'de>) -> Self {
        Self { key: decoder.reader, decoder }
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = DecodeError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), DecodeError> {
        Ok((seed.deserialize(&mut *self.decoder)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = DecodeError;

    fn unit_variant(self) -> Result<(), DecodeError> {
        let key = self.key;
        de::Deserialize::deserialize(self.decoder).map_err(|error: DecodeError| error.inside(Segment::key(key)))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, DecodeError> {
        let (key, start) = (self.key, self.decoder.reader);
        seed.deserialize(self.decoder).map_err(|error| error.in_value(start).inside(Segment::key(key)))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DecodeError> {
        let key = self.key;
        self.decoder.sequence(visitor).map_err(|error| error.inside(Segment::key(key)))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, DecodeError> {
        let (key, start) = (self.key, self.decoder.reader);
        self.decoder.fields(visitor).map_err(|error| error.in_value(start).inside(Segment::key(key)))
    }
}

/// What a variant with content expects of a dict.
pub(super) struct OneKey;

impl de::Expected for OneKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a dict with one key, the name of a variant")
    }
}

#[cold]
fn name_alone() -> DecodeError {
    DecodeError::invalid_type(Unexpected::UnitVariant, &"a dict of the variant's name and its content")
}
