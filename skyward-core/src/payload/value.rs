//! Values on the wire: serde to MessagePack and back.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};

/// Writes a value behind what the buffer holds.
pub(crate) fn encode_into<T: Serialize>(
    buffer: &mut Vec<u8>,
    value: &T,
) -> std::result::Result<(), rmp_serde::encode::Error> {
    let mut serializer = rmp_serde::Serializer::new(buffer).with_struct_map().with_human_readable();
    value.serialize(&mut serializer)
}

/// Reads a value of this type.
///
/// # Errors
///
/// [`ErrorKind::Decode`] with the path in the value, what was expected and what was found.
pub fn decode<T: DeserializeOwned + 'static>(bytes: &Bytes) -> Result<T> {
    rmp_serde::from_slice(bytes).map_err(|error| Error::new(ErrorKind::Decode, error.to_string()))
}
