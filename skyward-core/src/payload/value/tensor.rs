//! Arrays in their wire form, and the element types that Rust has.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use bytes::Bytes;
use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeTupleStruct, Serializer};

use super::{describe, elements};
use crate::error::{Error, ErrorKind, Result};

/// An n-dimensional array in its wire form: dtype, shape and bytes. It is a NumPy array in Python.
///
/// A tensor can have any dtype, including those without a Rust type (`bfloat16`, `complex64`). A
/// tensor that a payload returns shares the bytes of the message that arrived: nothing is copied,
/// and the message stays in memory for as long as the tensor lives. [`to_vec`](Self::to_vec)
/// returns the elements if their dtype has a Rust type.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::payload::{Args, Tensor};
///
/// let images = Tensor::from_elements([2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(images.dtype(), "float32");
/// assert_eq!(images.shape(), &[2, 3][..]);
/// assert_eq!(images.to_vec::<f32>()?[5], 6.0);
///
/// let weights = Tensor::new("bfloat16", [2], vec![0x80, 0x3f, 0x00, 0x40])?;
/// let args = Args::new().with("images", &images).with("weights", &weights);
/// # args.encode()?;
/// # Ok::<(), skyward::Error>(())
/// ```
///
/// A tensor is serialised as a tuple struct of its three parts. It cannot be deserialised inside
/// `#[serde(flatten)]` and untagged enums, where serde converts values to a form of its own.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    dtype: Cow<'static, str>,
    shape: Vec<usize>,
    bytes: Bytes,
}

/// A Rust type for the elements of an array: the integers, the floats and `bool`.
pub trait Element: sealed::Element {
    /// NumPy's name of the type.
    const DTYPE: &'static str;
}

impl Tensor {
    /// An array of this dtype (NumPy's name) and shape. `bytes` has the elements in C order,
    /// little-endian.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the number of bytes does not match the dtype and shape.
    pub fn new(
        dtype: impl Into<Cow<'static, str>>,
        shape: impl Into<Vec<usize>>,
        bytes: impl Into<Bytes>,
    ) -> Result<Self> {
        let (dtype, shape, bytes) = (dtype.into(), shape.into(), bytes.into());
        if !elements::fits(&dtype, &shape, bytes.len()) {
            return Err(misfit(&dtype, &shape, &format!("{} bytes", bytes.len())));
        }
        Ok(Self { dtype, shape, bytes })
    }

    /// An array of this shape and these elements, in C order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the number of elements does not match the shape.
    pub fn from_elements<T: Element>(shape: impl Into<Vec<usize>>, elements: &[T]) -> Result<Self> {
        let shape = shape.into();
        if elements::count(&shape) != Some(elements.len()) {
            return Err(misfit(T::DTYPE, &shape, &format!("{} elements", elements.len())));
        }
        let mut bytes = Vec::new();
        sealed::Element::write(elements, &mut bytes);
        Ok(Self { dtype: T::DTYPE.into(), shape, bytes: bytes.into() })
    }

    /// NumPy's name of the element type: `float32`.
    pub fn dtype(&self) -> &str {
        &self.dtype
    }

    /// The length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in C order, little-endian.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The elements in C order, by one copy.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`] if the dtype is not that of `T`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype != T::DTYPE {
            let message = format!("expected an array of {}, found {}", T::DTYPE, self.describe());
            return Err(Error::new(ErrorKind::Decode, message)
                .with_hint(format!("convert it in Python: `array.astype(\"{}\")`", T::DTYPE)));
        }
        Ok(sealed::Element::read(&self.bytes))
    }

    /// A tensor of parts that were checked already.
    pub(super) fn checked(dtype: impl Into<Cow<'static, str>>, shape: Vec<usize>, bytes: Bytes) -> Self {
        Self { dtype: dtype.into(), shape, bytes }
    }

    pub(super) fn describe(&self) -> String {
        describe::array(&self.dtype, &self.shape)
    }
}

/// Shows the dtype and the shape, without the elements.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{:?})", self.dtype, self.shape)
    }
}

impl Serialize for Tensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_parts(serializer, &self.dtype, &self.shape, &self.bytes)
    }
}

impl<'de> Deserialize<'de> for Tensor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple_struct(TOKEN, 3, TensorVisitor)
    }
}

struct TensorVisitor;

impl<'de> Visitor<'de> for TensorVisitor {
    type Value = Tensor;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Tensor, E> {
        HANDED_OVER.take().ok_or_else(|| E::invalid_type(de::Unexpected::Unit, &self))
    }

    /// Reads the three parts from other formats than the wire form.
    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Tensor, A::Error> {
        let missing = |at| <A::Error as de::Error>::invalid_length(at, &self);
        let dtype: String = parts.next_element()?.ok_or_else(|| missing(0))?;
        let shape: Vec<usize> = parts.next_element()?.ok_or_else(|| missing(1))?;
        let bytes: Bytes = parts.next_element()?.ok_or_else(|| missing(2))?;
        Tensor::new(dtype, shape, bytes).map_err(|error| de::Error::custom(error.message()))
    }
}

/// Serialises the parts of an array so that the wire encoder recognises an array.
pub(super) fn serialize_parts<S: Serializer>(
    serializer: S,
    dtype: &str,
    shape: &[usize],
    bytes: &[u8],
) -> Result<S::Ok, S::Error> {
    let mut parts = serializer.serialize_tuple_struct(TOKEN, 3)?;
    parts.serialize_field(dtype)?;
    parts.serialize_field(shape)?;
    parts.serialize_field(&RawBytes(bytes))?;
    parts.end()
}

/// Passes a tensor to the visitor that `call` calls, without a copy of the elements. Serde has no
/// way to pass it.
pub(super) fn hand_over<T>(tensor: Tensor, call: impl FnOnce() -> T) -> T {
    HANDED_OVER.set(Some(tensor));
    let value = call();
    HANDED_OVER.set(None);
    value
}

/// Visits an array without elements, if `name`, the tuple struct that the visitor asks for, is that
/// of a tensor. Returns any other visitor as the error.
pub(in crate::payload) fn empty_tensor<'de, V: Visitor<'de>, E: de::Error>(
    name: &'static str,
    visitor: V,
) -> Result<Result<V::Value, E>, V> {
    if name != TOKEN {
        return Err(visitor);
    }
    let tensor = Tensor::checked("float32", vec![0], Bytes::new());
    Ok(hand_over(tensor, || visitor.visit_unit()))
}

/// Fills the slot if its type is a `Vec` of exactly this element type.
pub(super) fn fill_vec<T: 'static>(dtype: &str, data: &[u8], slot: &mut Option<T>) {
    fn fill<E: Element, T: 'static>(dtype: &str, data: &[u8], slot: &mut Option<T>) {
        if let Some(slot) = (slot as &mut dyn Any).downcast_mut::<Option<Vec<E>>>()
            && dtype == E::DTYPE
        {
            *slot = Some(sealed::Element::read(data));
        }
    }
    fill::<f32, T>(dtype, data, slot);
    fill::<f64, T>(dtype, data, slot);
    fill::<i64, T>(dtype, data, slot);
    fill::<i32, T>(dtype, data, slot);
    fill::<i16, T>(dtype, data, slot);
    fill::<i8, T>(dtype, data, slot);
    fill::<u64, T>(dtype, data, slot);
    fill::<u32, T>(dtype, data, slot);
    fill::<u16, T>(dtype, data, slot);
    fill::<u8, T>(dtype, data, slot);
    fill::<bool, T>(dtype, data, slot);
}

struct RawBytes<'a>(&'a [u8]);

impl Serialize for RawBytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

mod sealed {
    use std::fmt::Debug;

    pub trait Element: Copy + Debug + Send + Sync + 'static {
        /// Reads little-endian elements.
        fn read(bytes: &[u8]) -> Vec<Self>;
        /// Appends little-endian elements.
        fn write(elements: &[Self], bytes: &mut Vec<u8>);
    }
}

macro_rules! element {
    ($($rust:ty: $dtype:literal),+ $(,)?) => {$(
        impl Element for $rust {
            const DTYPE: &'static str = $dtype;
        }

        /// On little-endian machines the compiler turns each loop into one copy.
        impl sealed::Element for $rust {
            fn read(bytes: &[u8]) -> Vec<Self> {
                bytes.as_chunks().0.iter().map(|chunk| Self::from_le_bytes(*chunk)).collect()
            }

            fn write(elements: &[Self], bytes: &mut Vec<u8>) {
                let start = bytes.len();
                bytes.resize(start + size_of_val(elements), 0);
                for (chunk, element) in bytes[start..].as_chunks_mut().0.iter_mut().zip(elements) {
                    *chunk = element.to_le_bytes();
                }
            }
        }
    )+};
}

element!(
    f32: "float32", f64: "float64", i8: "int8", i16: "int16", i32: "int32", i64: "int64", u8: "uint8", u16: "uint16", u32: "uint32", u64: "uint64",
);

impl Element for bool {
    const DTYPE: &'static str = "bool";
}

impl sealed::Element for bool {
    fn read(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|byte| *byte != 0).collect()
    }

    fn write(elements: &[Self], bytes: &mut Vec<u8>) {
        bytes.extend(elements.iter().map(|element| u8::from(*element)));
    }
}

/// Reads the elements from bytes whose number was checked.
#[cfg(feature = "ndarray")]
pub(super) fn read<T: Element>(bytes: &[u8]) -> Vec<T> {
    sealed::Element::read(bytes)
}

/// The elements as bytes.
#[cfg(feature = "ndarray")]
pub(super) fn write<T: Element>(elements: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    sealed::Element::write(elements, &mut bytes);
    bytes
}

fn misfit(dtype: &str, shape: &[usize], found: &str) -> Error {
    Error::new(ErrorKind::Argument, format!("{} cannot be made of {found}", describe::array(dtype, shape)))
        .with_hint("the number of bytes is the product of the lengths in the shape, times the size of an element")
}

thread_local! {
    static HANDED_OVER: Cell<Option<Tensor>> = const { Cell::new(None) };
}

/// The name of a tuple struct that the wire encoder and decoder treat as an array.
pub(super) const TOKEN: &str = "$skyward::Tensor";
