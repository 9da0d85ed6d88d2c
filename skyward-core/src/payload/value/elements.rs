//! Reads arrays as nested sequences.

use serde::de::{self, DeserializeSeed, Deserializer, Error as _, SeqAccess, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use super::dtype::{DType, bfloat_to_f32, half_to_f32};
use super::error::DecodeError;
use super::floats;
use super::path::Segment;
use super::reader::{Reader, Token};
use super::record;
use super::shared::Shared;

/// An array on the wire. The number of its bytes was checked against its dtype and shape.
#[derive(Debug)]
pub(super) struct ArrayView<'de> {
    dtype: &'de str,
    shape: Vec<usize>,
    data: &'de [u8],
}

impl<'de> ArrayView<'de> {
    /// Reads the body of the extension.
    pub(super) fn parse(body: &'de [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let (Token::List(2), Token::Str(dtype), Token::List(rank)) =
            (reader.token()?, reader.token()?, reader.token()?)
        else {
            return Err(malformed("it does not begin with a dtype and a shape"));
        };
        if rank > MAX_RANK {
            return Err(malformed("it has more dimensions than NumPy allows"));
        }
        let dtype = std::str::from_utf8(dtype).map_err(|_| malformed("its dtype is not UTF-8"))?;
        let mut shape = Vec::with_capacity(rank as usize);
        for _ in 0..rank {
            let Token::Unsigned(length) = reader.token()? else {
                return Err(malformed("a length in its shape is not a natural number"));
            };
            shape.push(usize::try_from(length).map_err(|_| malformed("its shape is beyond this machine's memory"))?);
        }
        let view = Self { dtype, shape, data: reader.rest() };
        if !fits(view.dtype, &view.shape, view.data.len()) {
            return Err(malformed("the number of its bytes does not match its dtype and shape"));
        }
        Ok(view)
    }

    pub(super) fn dtype(&self) -> &'de str {
        self.dtype
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of levels of its nested sequences.
    pub(super) fn levels(&self) -> usize {
        self.shape.len() + usize::from(self.dtype.starts_with("complex"))
    }

    pub(super) fn into_shape(self) -> Vec<usize> {
        self.shape
    }

    pub(super) fn data(&self) -> &'de [u8] {
        self.data
    }

    /// The elements as nested sequences, for Rust types that are not arrays themselves.
    pub(super) fn as_sequences<'a>(&'a self, shared: &'a Shared) -> Result<Part<'a, 'de>, DecodeError> {
        let Some(dtype) = DType::from_name(self.dtype) else {
            return Err(DecodeError::expected("elements of a type that Rust has", format!("dtype {}", self.dtype))
                .with_hint(
                    "use a `skyward::payload::Tensor`, which has the bytes, or convert it in Python with `.astype(…)`",
                ));
        };
        Ok(Part { dtype, shape: &self.shape, data: self.data, shared })
    }
}

/// Whether an array of this dtype and shape has this number of bytes.
pub(super) fn fits(dtype: &str, shape: &[usize], bytes: usize) -> bool {
    let Some(elements) = count(shape) else { return false };
    match DType::from_name(dtype) {
        Some(dtype) => elements.checked_mul(dtype.size()) == Some(bytes),
        None if elements == 0 => bytes == 0,
        None => bytes > 0 && bytes.is_multiple_of(elements),
    }
}

/// The number of elements of this shape; `None` if it overflows.
pub(super) fn count(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_usize, |all, length| all.checked_mul(*length))
}

/// An array, a row of an array, or an element.
#[derive(Clone, Copy)]
pub(super) struct Part<'a, 'de> {
    dtype: DType,
    shape: &'a [usize],
    data: &'de [u8],
    shared: &'a Shared,
}

/// The rows of an array, or the elements of its last dimension.
struct Rows<'a, 'de> {
    dtype: DType,
    inner: &'a [usize],
    left: &'de [u8],
    shared: &'a Shared,
    stride: usize,
    next: usize,
    length: usize,
}

impl<'de> Part<'_, 'de> {
    fn scalar<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.dtype {
            DType::Float32 => self.single(f32::from_le_bytes(element(self.data)?), visitor),
            DType::Float64 => {
                let float = f64::from_le_bytes(element(self.data)?);
                floats::visit_double(float, self.data, self.shared, visitor)
            }
            DType::Int64 => visitor.visit_i64(i64::from_le_bytes(element(self.data)?)),
            DType::Int32 => visitor.visit_i32(i32::from_le_bytes(element(self.data)?)),
            DType::Int16 => visitor.visit_i16(i16::from_le_bytes(element(self.data)?)),
            DType::Int8 => visitor.visit_i8(i8::from_le_bytes(element(self.data)?)),
            DType::UInt8 => visitor.visit_u8(u8::from_le_bytes(element(self.data)?)),
            DType::UInt16 => visitor.visit_u16(u16::from_le_bytes(element(self.data)?)),
            DType::UInt32 => visitor.visit_u32(u32::from_le_bytes(element(self.data)?)),
            DType::UInt64 => visitor.visit_u64(u64::from_le_bytes(element(self.data)?)),
            DType::Bool => visitor.visit_bool(element::<1>(self.data)? != [0]),
            DType::Float16 => self.single(half_to_f32(u16::from_le_bytes(element(self.data)?)), visitor),
            DType::BFloat16 => self.single(bfloat_to_f32(u16::from_le_bytes(element(self.data)?)), visitor),
            DType::Complex64 => sequence(Part { dtype: DType::Float32, shape: &[2], ..self }, visitor),
            DType::Complex128 => sequence(Part { dtype: DType::Float64, shape: &[2], ..self }, visitor),
        }
    }
}

impl<'de> Part<'_, 'de> {
    fn single<V: Visitor<'de>>(self, float: f32, visitor: V) -> Result<V::Value, DecodeError> {
        floats::visit_single(float, self.data, self.shared, visitor)
    }

    /// An element of a type whose conversion to a float may lose digits or overflow.
    fn number(self) -> Result<Option<Token<'de>>, DecodeError> {
        if !self.shape.is_empty() {
            return Ok(None);
        }
        Ok(match self.dtype {
            DType::Int64 => Some(Token::Signed(i64::from_le_bytes(element(self.data)?))),
            DType::Int32 => Some(Token::Signed(i32::from_le_bytes(element(self.data)?).into())),
            DType::UInt64 => Some(Token::Unsigned(u64::from_le_bytes(element(self.data)?))),
            DType::UInt32 => Some(Token::Unsigned(u32::from_le_bytes(element(self.data)?).into())),
            DType::Float64 => Some(Token::F64(f64::from_le_bytes(element(self.data)?))),
            _ => None,
        })
    }
}

impl<'de> Deserializer<'de> for Part<'_, 'de> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.shape.is_empty() { self.scalar(visitor) } else { sequence(self, visitor) }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.number()?.as_ref().and_then(floats::single) {
            Some(float) => visitor.visit_f32(float?),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.number()?.as_ref().and_then(floats::double) {
            Some(float) => visitor.visit_f64(float?),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match (self.dtype, self.shape) {
            (DType::UInt8, [_]) => visitor.visit_borrowed_bytes(self.data),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.deserialize_bytes(visitor)
    }

    /// Refuses rows and complex numbers, because their parts have no names.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let is_sequence = !self.shape.is_empty() || matches!(self.dtype, DType::Complex64 | DType::Complex128);
        if is_sequence { Err(record::nameless()) } else { self.deserialize_any(visitor) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        Err(DecodeError::invalid_type(Unexpected::Seq, &visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string unit unit_struct seq tuple tuple_struct map identifier
    }
}

impl<'de> SeqAccess<'de> for Rows<'_, 'de> {
    type Error = DecodeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DecodeError> {
        if self.next == self.length {
            return Ok(None);
        }
        let (data, left) = self.left.split_at_checked(self.stride).ok_or_else(|| malformed("it ends early"))?;
        self.left = left;
        let index = self.next;
        self.next += 1;
        self.shared.take::<S::Value>()?;
        let part = Part { dtype: self.dtype, shape: self.inner, data, shared: self.shared };
        seed.deserialize(part).map(Some).map_err(|error| error.inside(Segment::Index(index as u64)))
    }

    /// Rows without elements have no bytes, so their number is only claimed.
    fn size_hint(&self) -> Option<usize> {
        Some((self.length - self.next).min(self.left.len()))
    }
}

fn sequence<'de, V: Visitor<'de>>(part: Part<'_, 'de>, visitor: V) -> Result<V::Value, DecodeError> {
    let (length, inner) = match part.shape {
        [] => return Err(malformed("it has no dimension")),
        [length, inner @ ..] => (*length, inner),
    };
    let stride = part.data.len().checked_div(length).unwrap_or(0);
    let mut rows = Rows { dtype: part.dtype, inner, left: part.data, shared: part.shared, stride, next: 0, length };
    let value = visitor.visit_seq(&mut rows)?;
    if rows.next < length {
        return Err(DecodeError::invalid_length(length, &Elements(rows.next)));
    }
    Ok(value)
}

fn element<const N: usize>(data: &[u8]) -> Result<[u8; N], DecodeError> {
    data.first_chunk().copied().ok_or_else(|| malformed("it ends early"))
}

#[cold]
fn malformed(why: &str) -> DecodeError {
    DecodeError::custom(format_args!("a malformed array: {why}"))
        .with_hint("the bytes were damaged, or the node runs another version of the worker")
}

/// An expected number of elements.
pub(super) struct Elements(pub(super) usize);

impl de::Expected for Elements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} element{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// The most dimensions of an array in NumPy.
const MAX_RANK: u32 = 64;
