//! Values on the wire: serde to MessagePack and back.
//!
//! Any serde type can come back from a payload: structs from what has names (dicts, dataclasses, namedtuples) and never by position, tuples and `Vec` from lists
//! and namedtuples, enums externally tagged, `()` and `Option` from None, floats from ints that they can hold (never the reverse), and types with a text form
//! (`uuid`, `chrono`, addresses) from text. A NumPy, JAX or torch array comes back as
//!
//! * nested sequences (`Vec<Vec<f32>>`, `[f64; 3]`, a number for an array without dimensions), element by element;
//! * a [`Tensor`], which shares the bytes that arrived, whatever their dtype;
//! * with the feature `ndarray`, `skyward_core::payload::Array`: an `ndarray::Array` filled by one copy.
//!
//! As a whole result, `Vec<u8>`, `bytes::Bytes` and `Vec` of an array's own element type are filled by one copy too; inside of other types, `bytes::Bytes` and
//! `serde_bytes` types are, and `Vec<u8>` is read byte by byte.

mod byte_list;
mod decode;
mod describe;
mod dtype;
mod elements;
mod encode;
mod encode_error;
mod error;
mod floats;
mod key;
#[cfg(feature = "ndarray")]
mod ndarray;
mod path;
mod reader;
mod record;
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

/// Writes a value behind what the buffer holds.
pub(crate) fn encode_into<T: Serialize + ?Sized>(buffer: &mut Vec<u8>, value: &T) -> Result<(), EncodeError> {
    value.serialize(&mut Encoder::new(buffer))
}

/// Writes a value that is one sequence of `u8`, or None, as bytes.
pub(crate) fn encode_bytes_into<T: Serialize + ?Sized>(buffer: &mut Vec<u8>, value: &T) -> Result<(), EncodeError> {
    value.serialize(&mut Encoder::of_bytes(buffer))
}

/// Reads a value of this type.
///
/// ```
/// use bytes::Bytes;
/// use skyward_core::payload::value;
///
/// let wire = Bytes::from_static(b"\x82\xa4loss\xcb\x3f\xe0\0\0\0\0\0\0\xa4node\x01");
///
/// #[derive(serde::Deserialize)]
/// struct Report { node: usize, loss: f64 }
/// let report: Report = value::decode(&wire)?;
/// assert_eq!((report.node, report.loss), (1, 0.5));
///
/// #[derive(Debug, serde::Deserialize)]
/// struct Strict { loss: u32 }
/// let error = value::decode::<Strict>(&wire).unwrap_err();
/// assert_eq!(error.message(), "the payload's value cannot be decoded into `Strict`: expected u32, found the float 0.5");
/// assert_eq!(error.context(), [("path", ".loss".to_owned())]);
/// # Ok::<(), skyward_core::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::Decode`](crate::error::ErrorKind::Decode) with the path in the value, what was expected and what was found.
pub fn decode<T: DeserializeOwned + 'static>(bytes: &Bytes) -> Result<T> {
    let read = || {
        if let Some(value) = decode_whole(bytes) {
            return Ok(value);
        }
        let mut decoder = Decoder::new(bytes);
        let value = T::deserialize(&mut decoder).map_err(|error| error.in_value(Reader::new(bytes)))?;
        decoder.finish()?;
        Ok(value)
    };
    read().map_err(|error: DecodeError| error.into_error(std::any::type_name::<T>()))
}

/// The types for which serde would go element by element, when they are the whole value. Whatever does not fit exactly is left to serde.
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
