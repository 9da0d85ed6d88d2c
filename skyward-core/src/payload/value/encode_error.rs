//! The error of a value that cannot be encoded.

use std::fmt;

use serde::ser;

use super::path::{Path, Segment};

/// Why a value cannot be encoded, and the path in the value.
#[derive(Debug)]
pub(crate) struct EncodeError(Box<(Path, String)>);

impl EncodeError {
    #[must_use]
    pub(super) fn inside(mut self, segment: Segment) -> Self {
        self.0.0.prepend(segment);
        self
    }
}

impl ser::Error for EncodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(Box::new((Path::default(), message.to_string())))
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, message) = &*self.0;
        if path.is_root() { f.write_str(message) } else { write!(f, "at `{path}`: {message}") }
    }
}

impl std::error::Error for EncodeError {}
