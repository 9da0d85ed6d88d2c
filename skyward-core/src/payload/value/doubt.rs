//! NaN and infinities that Serde buffers for a type that it knows only later.
//!
//! A float keeps them, and `serde_json::Value` makes null of them without an error. Which of the two
//! reads a float behind `#[serde(flatten)]` shows only in what else it would accept. So the value is
//! read again with something else in the place of the float. A type for any value of JSON takes a
//! text, a bool and a list, and no bytes. A float takes none of them, and what ignores the value
//! takes all.

use std::iter::empty;

use serde::de::Visitor;
use serde::de::value::SeqDeserializer;

use super::error::DecodeError;

/// What stands in for a float.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StandIn {
    Text,
    Bool,
    List,
    Bytes,
}

/// One reading of the value with a stand-in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    /// The address of the float's bytes.
    pub(super) at: usize,
    pub(super) stand_in: StandIn,
}

impl StandIn {
    pub(super) fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self {
            Self::Text => visitor.visit_borrowed_str(""),
            Self::Bool => visitor.visit_bool(true),
            Self::List => visitor.visit_seq(SeqDeserializer::<_, DecodeError>::new(empty::<()>())),
            Self::Bytes => visitor.visit_borrowed_bytes(b""),
        }
    }
}

/// Whether JSON would change one of these floats of a value of this many bytes. `reads` tells
/// whether the value can be read in a trial.
pub(super) fn is_lost(doubtful: Vec<usize>, bytes: usize, reads: impl Fn(Trial) -> bool) -> bool {
    let affordable = (MAX_BYTES / bytes.max(1)).max(1);
    doubtful.into_iter().take(affordable).any(|at| {
        let takes = |stand_in| reads(Trial { at, stand_in });
        [StandIn::Text, StandIn::Bool, StandIn::List].into_iter().all(takes) && !takes(StandIn::Bytes)
    })
}

/// The most bytes that are read again, unless one trial needs more.
const MAX_BYTES: usize = 64 << 20;
