//! The content of a stand-in: the entries of a struct or dict, the items of a sequence, the content
//! of a variant.

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer as _, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::Structure;
use super::probe::{Fault, Probe};

/// The entries of a struct.
pub(super) struct Fields<'k> {
    pub(super) probe: Probe<'k>,
    pub(super) fields: Vec<(&'static str, Structure)>,
    pub(super) next: usize,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let Some((name, _)) = self.fields.get(self.next) else { return Ok(None) };
        self.next += 1;
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let Some((name, structure)) = self.next.checked_sub(1).and_then(|at| self.fields.get(at)) else {
            return Err(Fault::GaveUp);
        };
        let inner = self.probe.inner(format_args!(".{name}"), *structure);
        let path = inner.path.clone();
        seed.deserialize(inner).map_err(|fault| fault.rejected_at(&path))
    }
}

/// The one entry of a dict.
pub(super) struct Entry<'k> {
    pub(super) probe: Probe<'k>,
    pub(super) structure: Structure,
    pub(super) given: bool,
}

impl<'de> MapAccess<'de> for Entry<'_> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        if std::mem::replace(&mut self.given, true) {
            return Ok(None);
        }
        let inner = self.probe.inner(format_args!("{{}}"), Structure::Unknown);
        let path = inner.path.clone();
        seed.deserialize(inner).map(Some).map_err(|fault| fault.rejected_at(&path))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let inner = self.probe.inner(format_args!("[…]"), self.structure);
        let path = inner.path.clone();
        seed.deserialize(inner).map_err(|fault| fault.rejected_at(&path))
    }
}

/// The items of a sequence.
pub(super) struct Items<'k> {
    pub(super) probe: Probe<'k>,
    pub(super) structure: Structure,
    pub(super) next: usize,
    pub(super) length: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        if self.next == self.length {
            return Ok(None);
        }
        let inner = self.probe.inner(format_args!("[{}]", self.next), self.structure);
        let path = inner.path.clone();
        self.next += 1;
        seed.deserialize(inner).map(Some).map_err(|fault| fault.rejected_at(&path))
    }
}

/// A variant of an enum.
pub(super) struct One<'k> {
    pub(super) probe: Probe<'k>,
    pub(super) variant: &'static str,
}

impl<'de, 'k> EnumAccess<'de> for One<'k> {
    type Error = Fault;
    type Variant = Probe<'k>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Probe<'k>), Fault> {
        let variant = seed.deserialize(StrDeserializer::new(self.variant))?;
        let content = self.probe.inner(format_args!(".{}", self.variant), Structure::Unknown);
        Ok((variant, content))
    }
}

impl<'de> VariantAccess<'de> for Probe<'_> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        let path = self.path.clone();
        seed.deserialize(self).map_err(|fault| fault.rejected_at(&path))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, Fault> {
        self.named("", visitor)
    }
}
