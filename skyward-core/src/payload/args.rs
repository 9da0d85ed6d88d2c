//! The arguments of one call, as they go over the wire.

use std::any::Any;

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};

/// Named arguments in their wire form: a MessagePack map of name to value.
///
/// ```
/// use skyward_core::payload::Args;
///
/// let args = Args::new().with("epochs", &5).with("rate", &0.1).encode()?;
/// assert!(args.len() > 10);
/// # Ok::<(), skyward_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Args {
    /// A `map32` header, whose count is set at the end, and the entries.
    buffer: Vec<u8>,
    count: u32,
    failure: Option<Error>,
}

impl Args {
    /// No arguments.
    pub fn new() -> Self {
        Self { buffer: vec![MAP32, 0, 0, 0, 0], count: 0, failure: None }
    }

    /// Adds an argument. A value that cannot be serialised makes [`encode`](Self::encode) fail, so nothing of the call is sent.
    #[must_use]
    pub fn with<T: Serialize + 'static>(self, name: &str, value: &T) -> Self {
        match (value as &dyn Any).downcast_ref::<Vec<u8>>() {
            Some(bytes) => self.with_bytes(name, bytes),
            None => self.with_borrowed(name, value),
        }
    }

    /// Adds an argument that is borrowed, wholly or in part: `&str`, `&[f64]`, `Cow<'_, str>`. It is serialised here and now.
    ///
    /// Bytes are a list of numbers to this method; [`with_bytes`](Self::with_bytes) sends them as Python's `bytes`.
    #[must_use]
    pub fn with_borrowed<T: Serialize + ?Sized>(self, name: &str, value: &T) -> Self {
        self.push(name, std::any::type_name::<T>(), |buffer| super::value::encode_into(buffer, value))
    }

    /// Adds an argument that arrives as Python's `bytes`, without a look at each of them.
    #[must_use]
    pub fn with_bytes(self, name: &str, bytes: &[u8]) -> Self {
        self.push(name, "bytes", |buffer| rmp::encode::write_bin(buffer, bytes))
    }

    /// The wire form.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for the first argument that could not be serialised.
    pub fn encode(mut self) -> Result<Bytes> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.buffer[1..HEADER].copy_from_slice(&self.count.to_be_bytes());
        Ok(self.buffer.into())
    }

    fn push<E: std::fmt::Display>(
        mut self,
        name: &str,
        type_name: &str,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Self {
        let failed = |error: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Argument, format!("the argument `{name}` cannot be serialised: {error}"))
                .with_context("type", type_name)
                .with_hint("arguments are serde types that MessagePack can hold: see the guide page on payloads")
        };
        let length = self.buffer.len();
        let written = rmp::encode::write_str(&mut self.buffer, name)
            .map_err(|error| failed(&error))
            .and_then(|()| write(&mut self.buffer).map_err(|error| failed(&error)));
        match written {
            Ok(()) => self.count += 1,
            Err(error) => {
                self.buffer.truncate(length);
                self.failure.get_or_insert(error);
            }
        }
        self
    }
}

impl Default for Args {
    fn default() -> Self {
        Self::new()
    }
}

const MAP32: u8 = 0xdf;
const HEADER: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_map_and_bytes_are_not_a_list() {
        let bytes = Args::new().with("a", &1_u8).with("b", &vec![7_u8; 3]).encode().unwrap();
        assert_eq!(&bytes[..], b"\xdf\0\0\0\x02\xa1a\x01\xa1b\xc4\x03\x07\x07\x07");
    }

    #[test]
    fn borrowed_arguments_look_like_owned_ones() {
        let text = String::from("ab");
        let borrowed = Args::new().with_borrowed("a", text.as_str()).with_borrowed("b", &[1.5_f64][..]);
        let owned = Args::new().with("a", &text).with("b", &vec![1.5_f64]);
        assert_eq!(borrowed.encode().unwrap(), owned.encode().unwrap());
        let bytes = Args::new().with_bytes("a", &[7, 8]);
        assert_eq!(bytes.encode().unwrap(), Args::new().with("a", &vec![7_u8, 8]).encode().unwrap());
    }

    #[test]
    fn a_failing_argument_is_named() {
        struct Broken;
        impl Serialize for Broken {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("a lock is poisoned"))
            }
        }
        let error = Args::new().with("good", &1).with("model", &Broken).encode().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.message().contains("`model`") && error.message().contains("a lock is poisoned"), "{error}");
    }
}
