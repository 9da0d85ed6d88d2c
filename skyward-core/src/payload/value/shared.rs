//! What all parts of one value share while it is read.

use std::cell::{Cell, RefCell};

use serde::de::Error as _;

use super::doubt::{StandIn, Trial};
use super::error::DecodeError;

/// What is left of the memory that one value may take, because a few bytes can describe a value of
/// any size; and the floats whose readers are not known.
#[derive(Debug)]
pub(super) struct Shared {
    left: Cell<usize>,
    whole: usize,
    /// Where the floats begin that JSON would change, and that Serde buffers without their type.
    doubtful: RefCell<Vec<usize>>,
    trial: Option<Trial>,
}

impl Shared {
    /// Begins to read a value of this many bytes on the wire.
    pub(super) fn new(bytes: usize, trial: Option<Trial>) -> Self {
        let whole = bytes.saturating_mul(FACTOR).saturating_add(LEAST);
        Self { left: Cell::new(whole), whole, doubtful: RefCell::default(), trial }
    }

    /// Notes a doubtful float by the address of its bytes. Returns what stands in for it.
    pub(super) fn doubt(&self, at: usize) -> Option<StandIn> {
        let mut doubtful = self.doubtful.borrow_mut();
        if doubtful.len() < MAX_DOUBTFUL {
            doubtful.push(at);
        }
        self.trial.filter(|trial| trial.at == at).map(|trial| trial.stand_in)
    }

    pub(super) fn into_doubtful(self) -> Vec<usize> {
        self.doubtful.into_inner()
    }

    /// Takes the memory of one element.
    pub(super) fn take<T>(&self) -> Result<(), DecodeError> {
        // An element without a size takes time.
        match self.left.get().checked_sub(size_of::<T>().max(1)) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(self.spent()),
        }
    }

    #[cold]
    fn spent(&self) -> DecodeError {
        DecodeError::custom(format_args!(
            "it would take more than the {} MiB of memory that a value of its size on the wire may take",
            self.whole >> 20
        ))
        .with_hint("return an array in which no dimension is 0, or a smaller value, or read it as a `Tensor`")
    }
}

/// What any value may take, in bytes.
const LEAST: usize = 64 << 20;
/// What a value may take for each of its bytes on the wire. A byte can be the None of an `Option` of
/// a large struct.
const FACTOR: usize = 256;
/// The most floats that are tried.
const MAX_DOUBTFUL: usize = 64;
