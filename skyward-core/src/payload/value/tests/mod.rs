//! Values, malformed values, and values of other types.

mod arrays;
mod decoding;
mod encoding;
mod properties;
mod records;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind};

/// The wire form, written by `rmp_serde`.
fn wire(value: &impl Serialize) -> Bytes {
    let mut bytes = Vec::new();
    value.serialize(&mut rmp_serde::Serializer::new(&mut bytes).with_struct_map().with_human_readable()).unwrap();
    bytes.into()
}

fn ours(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    super::encode_into(&mut bytes, value).unwrap();
    bytes
}

fn decode<T: DeserializeOwned + 'static>(bytes: &[u8]) -> Result<T, Error> {
    super::decode(&Bytes::copy_from_slice(bytes))
}

/// The error's path, and its message after the name of the type.
fn failure<T: DeserializeOwned + 'static>(bytes: &[u8]) -> (String, String) {
    let Err(error) = decode::<T>(bytes) else { panic!("{bytes:?} became a {}", std::any::type_name::<T>()) };
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.hint().is_some());
    let path = error.context().iter().find(|(key, _)| *key == "path").map_or(String::new(), |(_, path)| path.clone());
    let (_, reason) = error.message().split_once("`: ").unwrap();
    (path, reason.to_owned())
}

/// An array, in extension 1.
fn array(dtype: &str, shape: &[u64], elements: &[u8]) -> Vec<u8> {
    let mut body = wire(&(dtype, shape)).to_vec();
    body.extend(elements);
    let mut bytes = Vec::new();
    rmp::encode::write_ext_meta(&mut bytes, body.len() as u32, 1).unwrap();
    bytes.extend(body);
    bytes
}
