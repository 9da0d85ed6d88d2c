//! Decodes the items of lists and the entries of dicts.

use serde::de::{DeserializeSeed, MapAccess, SeqAccess};

use super::decode::Decoder;
use super::error::DecodeError;
use super::keys::Key;
use super::path::Segment;
use super::reader::Reader;

pub(super) struct List<'a, 'de> {
    pub(super) decoder: &'a mut Decoder<'de>,
    pub(super) next: u32,
    pub(super) length: u32,
}

impl<'de> SeqAccess<'de> for List<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        if self.next == self.length {
            return Ok(None);
        }
        let (index, start) = (self.next, self.decoder.reader);
        self.next += 1;
        self.decoder.shared.take::<S::Value>()?;
        let value = seed.deserialize(&mut *self.decoder).map(Some);
        value.map_err(|error| error.in_value(start).inside(Segment::Index(index.into())))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(bounded(self.length - self.next, self.decoder))
    }
}

pub(super) struct Dict<'a, 'de> {
    pub(super) decoder: &'a mut Decoder<'de>,
    /// The position of the present entry's key.
    pub(super) key: Reader<'de>,
    pub(super) keys: Vec<Key<'de>>,
    pub(super) next: u32,
    pub(super) length: u32,
}

impl<'de> MapAccess<'de> for Dict<'_, 'de> {
    type Error = DecodeError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        if self.next == self.length {
            return Ok(None);
        }
        self.next += 1;
        self.key = self.decoder.reader;
        self.decoder.shared.take::<S::Value>()?;
        self.decoder.named_by_int = false;
        let key = seed.deserialize(&mut *self.decoder)?;
        let length = self.decoder.reader.position() - self.key.position();
        self.keys.push(Key::read(self.key, length, self.decoder.named_by_int));
        Ok(Some(key))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DecodeError> {
        let (key, start) = (self.key, self.decoder.reader);
        self.decoder.shared.take::<S::Value>()?;
        let value = seed.deserialize(&mut *self.decoder);
        value.map_err(|error| error.in_value(start).inside(Segment::key(key)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(bounded(self.length - self.next, self.decoder))
    }
}

/// The number of elements by the header, but at most the number of the remaining bytes, because
/// each element has at least one.
fn bounded(elements: u32, decoder: &Decoder<'_>) -> usize {
    (elements as usize).min(decoder.reader.remaining())
}
