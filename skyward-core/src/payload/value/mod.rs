//! Values on the wire: serde types as MessagePack.
//!
//! A payload can return any serde type:
//!
//! - Structs are read from values with named fields (dicts, dataclasses, namedtuples), never by
//!   position.
//! - Tuples and `Vec` are read from lists and namedtuples.
//! - Enums are externally tagged.
//! - `()` and `Option` are read from None.
//! - Floats are also read from ints that they can hold; integers are never read from floats.
//! - A dict in which two keys are equal for Rust is an error.
//! - Types with a text form (`uuid`, `chrono`, addresses) are read from texts.
//!
//! A NumPy, JAX or torch array is read as one of these:
//!
//! - nested sequences (`Vec<Vec<f32>>`, `[f64; 3]`, a number for an array without dimensions),
//!   element by element;
//! - a [`Tensor`], which shares the bytes that arrived, whatever their dtype;
//! - with the feature `ndarray`, a `skyward::payload::Array`: an `ndarray::Array` that is filled by
//!   one copy.
//!
//! As a whole result, `Vec<u8>`, `bytes::Bytes` and a `Vec` of the array's own element type are
//! also filled by one copy. Inside other types, so are `bytes::Bytes` and types of `serde_bytes`,
//! and `Vec<u8>` is read byte by byte.

mod byte_list;
mod compound;
mod decode;
mod describe;
mod doubt;
mod dtype;
mod elements;
mod encode;
mod encode_error;
mod error;
mod floats;
mod items;
mod key;
mod keys;
#[cfg(feature = "ndarray")]
mod ndarray;
mod path;
mod reader;
mod record;
mod shared;
mod tensor;
#[cfg(test)]
mod tests;
mod variant;

use std::any::Any;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::decode::Decoder;
use self::describe::ARRAY;
use self::doubt::Trial;
use self::elements::ArrayView;
use self::encode::Encoder;
pub(crate) use self::encode_error::EncodeError;
use self::error::DecodeError;
#[cfg(feature = "ndarray")]
pub use self::ndarray::Array;
use self::reader::{Reader, Token};
pub(in crate::payload) use self::tensor::empty_tensor;
pub use self::tensor::{Element, Tensor};
use crate::error::Result;

/// Appends a value to the buffer.
pub(crate) fn encode_into<T: Serialize + ?Sized>(buffer: &mut Vec<u8>, value: &T) -> Result<(), EncodeError> {
    value.serialize(&mut Encoder::new(buffer))
}

/// Appends a value that is one sequence of `u8`, or `None`, as bytes.
pub(crate) fn encode_bytes_into<T: Serialize + ?Sized>(buffer: &mut Vec<u8>, value: &T) -> Result<(), EncodeError> {
    value.serialize(&mut Encoder::of_bytes(buffer))
}

/// Decodes a value to this type.
///
/// ```
/// # use skyward_core as skyward;
/// use bytes::Bytes;
/// use skyward::payload::value;
///
/// let wire = Bytes::from_static(b"\x82\xa4loss\xcb\x3f\xe0\0\0\0\0\0\0\xa4node\x01");
///
/// #[derive(serde::Deserialize)]
/// struct Report { node: usize, loss: f64 }
/// let report: Report = value::decode(&wire)?;
/// assert_eq!(report.node, 1);
/// assert_eq!(report.loss, 0.5);
///
/// #[derive(Debug, serde::Deserialize)]
/// struct Strict { loss: u32 }
/// let error = value::decode::<Strict>(&wire).unwrap_err();
/// let expected = "the payload's value cannot be decoded into `Strict`: expected u32, found the float 0.5";
/// assert_eq!(error.message(), expected);
/// assert_eq!(error.context(), [("path", ".loss".to_owned())]);
/// # Ok::<(), skyward::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::Decode`](crate::error::ErrorKind::Decode) if the value does not fit the type, with
/// the path in the value, what was expected, and what was found.
pub fn decode<T: DeserializeOwned + 'static>(bytes: &Bytes) -> Result<T> {
    let read = || {
        if let Some(value) = decode_whole(bytes) {
            return Ok(value);
        }
        let (value, doubtful) = decode_parts(bytes, None)?;
        if doubt::is_lost(doubtful, bytes.len(), |trial| decode_parts::<T>(bytes, Some(trial)).is_ok()) {
            return Err(floats::not_json("a NaN or an infinity"));
        }
        Ok(value)
    };
    read().map_err(|error: DecodeError| error.into_error(std::any::type_name::<T>()))
}

/// The value of this name in a dict whose keys are texts.
#[cfg(feature = "testkit")]
pub(crate) fn entry(dict: &Bytes, name: &str) -> Option<Bytes> {
    let mut reader = Reader::new(dict);
    let Ok(Token::Dict(count)) = reader.token() else { return None };
    for _ in 0..count {
        let key = reader.token().ok()?;
        let start = reader.position();
        reader.skip().ok()?;
        if key == Token::Str(name.as_bytes()) {
            return Some(dict.slice(start..reader.position()));
        }
    }
    None
}

/// Decodes a value by serde. Returns it with the floats whose readers are not known.
fn decode_parts<T: DeserializeOwned>(bytes: &Bytes, trial: Option<Trial>) -> Result<(T, Vec<usize>), DecodeError> {
    let mut decoder = Decoder::new(bytes, trial);
    let value = T::deserialize(&mut decoder).map_err(|error| error.in_value(Reader::new(bytes)))?;
    decoder.finish()?;
    Ok((value, decoder.shared.into_doubtful()))
}

/// Decodes a whole value by one copy, for types that serde would decode element by element. `None`
/// for all other types and values, which serde decodes.
fn decode_whole<T: 'static>(frame: &Bytes) -> Option<T> {
    let mut reader = Reader::new(frame);
    let mut whole: Option<T> = None;
    match reader.token().ok()? {
        _ if reader.remaining() > 0 => return None,
        Token::Bin(bytes) => {
            let slot = &mut whole as &mut dyn Any;
            if let Some(slot) = slot.downcast_mut::<Option<Vec<u8>>>() {
                *slot = Some(bytes.to_vec());
            } else if let Some(slot) = slot.downcast_mut::<Option<Bytes>>() {
                *slot = Some(frame.slice(frame.len() - bytes.len()..));
            }
        }
        Token::Ext(ARRAY, body) => {
            let view = ArrayView::parse(body).ok()?;
            if view.shape().len() == 1 {
                tensor::fill_vec(view.dtype(), view.data(), &mut whole);
            }
        }
        _ => {}
    }
    whole
}

/// The most levels of lists and dicts in a value, in both directions: enough for data, and not
/// enough to overflow a stack.
const MAX_DEPTH: u32 = 128;
