//! Encodes and decodes arrays of the crate `ndarray`.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use ndarray::{ArrayD, Dimension, IxDyn};
use serde::de::{Deserialize, Deserializer, Error as _, Expected, Unexpected};
use serde::ser::{Serialize, Serializer};

use super::tensor::{self, Element, Tensor};
use crate::error::{Error, ErrorKind, Result};

/// An `ndarray::Array` as an argument, as a result, or as a field of either. It is a NumPy array in
/// Python, and is converted in both directions without work per element.
///
/// The dtype of the NumPy array must be that of `T`, and the number of its dimensions that of `D`.
/// `IxDyn` accepts any number of dimensions.
///
/// ```
/// # use skyward_core as skyward;
/// use indoc::indoc;
/// use ndarray::{Ix2, array};
/// use skyward::compute::PendingCompute;
/// use skyward::payload::{Array, Payload};
///
/// let images: Array<f32, Ix2> = array![[1.0, 2.0], [3.0, 4.0]].into();
/// let text = indoc! {"
///     def double(images):
///         return images * 2
/// "};
/// let double = Payload::python("double.py", text, "double");
/// let call: PendingCompute<Array<f32, Ix2>> = double.arg("images", images).into();
/// # call.into_task()?;
/// # Ok::<(), skyward::Error>(())
/// ```
///
/// It dereferences to the `ndarray::Array`; [`into_inner`](Self::into_inner) returns it.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<T, D: Dimension>(pub ndarray::Array<T, D>);

impl<T, D: Dimension> Array<T, D> {
    /// Returns the `ndarray::Array`.
    pub fn into_inner(self) -> ndarray::Array<T, D> {
        self.0
    }
}

impl<T, D: Dimension> Deref for Array<T, D> {
    type Target = ndarray::Array<T, D>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T, D: Dimension> DerefMut for Array<T, D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<T, D: Dimension> From<ndarray::Array<T, D>> for Array<T, D> {
    fn from(array: ndarray::Array<T, D>) -> Self {
        Self(array)
    }
}

impl<T, D: Dimension> From<Array<T, D>> for ndarray::Array<T, D> {
    fn from(array: Array<T, D>) -> Self {
        array.0
    }
}

/// Fails with [`ErrorKind::Decode`] if the dtype or the number of dimensions differs.
impl<T: Element, D: Dimension> TryFrom<Tensor> for Array<T, D> {
    type Error = Error;

    fn try_from(tensor: Tensor) -> Result<Self> {
        if !fits::<T, D>(&tensor) {
            let wanted = Wanted::<T, D>(PhantomData);
            let message = format!("expected {}, found {}", &wanted as &dyn Expected, tensor.describe());
            return Err(Error::new(ErrorKind::Decode, message).with_hint(HINT));
        }
        let array = ArrayD::from_shape_vec(IxDyn(tensor.shape()), tensor::read(tensor.bytes()))
            .and_then(|array| array.into_dimensionality::<D>());
        array.map(Self).map_err(|error| {
            Error::new(ErrorKind::Decode, format!("{} cannot be converted to an `ndarray::Array`", tensor.describe()))
                .with_source(error)
        })
    }
}

impl<T: Element, D: Dimension> From<Array<T, D>> for Tensor {
    fn from(array: Array<T, D>) -> Self {
        let (shape, bytes) = parts(&array.0);
        Self::checked(T::DTYPE, shape, bytes.into())
    }
}

impl<T: Element, D: Dimension> Serialize for Array<T, D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (shape, bytes) = parts(&self.0);
        tensor::serialize_parts(serializer, T::DTYPE, &shape, &bytes)
    }
}

impl<'de, T: Element, D: Dimension> Deserialize<'de> for Array<T, D> {
    fn deserialize<De: Deserializer<'de>>(deserializer: De) -> Result<Self, De::Error> {
        let tensor = Tensor::deserialize(deserializer)?;
        if !fits::<T, D>(&tensor) {
            let wanted = Wanted::<T, D>(PhantomData);
            return Err(De::Error::invalid_type(Unexpected::Other(&tensor.describe()), &wanted));
        }
        Self::try_from(tensor).map_err(|error| De::Error::custom(error.message()))
    }
}

/// The expected dtype and dimensions, for an error.
struct Wanted<T, D>(PhantomData<(T, D)>);

impl<T: Element, D: Dimension> Expected for Wanted<T, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match D::NDIM {
            Some(1) => write!(f, "an array {} of 1 dimension", T::DTYPE),
            Some(rank) => write!(f, "an array {} of {rank} dimensions", T::DTYPE),
            None => write!(f, "an array {}", T::DTYPE),
        }
    }
}

fn fits<T: Element, D: Dimension>(tensor: &Tensor) -> bool {
    tensor.dtype() == T::DTYPE && D::NDIM.is_none_or(|rank| rank == tensor.shape().len())
}

fn parts<T: Element, D: Dimension>(array: &ndarray::Array<T, D>) -> (Vec<usize>, Vec<u8>) {
    let ordered = array.as_standard_layout();
    let bytes = match ordered.as_slice() {
        Some(elements) => tensor::write(elements),
        None => tensor::write(&ordered.iter().copied().collect::<Vec<_>>()),
    };
    (array.shape().to_vec(), bytes)
}

const HINT: &str = "convert it in Python (`array.astype(…)`, `array.reshape(…)`), or change the Rust type";
