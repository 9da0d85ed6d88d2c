//! The arguments of one call, in their wire form.

use std::any::Any;
use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;

use super::byte_types::is_bytes;
use super::memory::{LARGE, Memory};
use crate::error::{Error, ErrorKind, Result};

/// Named arguments in their wire form: a MessagePack map of name to value.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::payload::Args;
///
/// let args = Args::new().with("epochs", &5).with("rate", &0.1).encode()?;
/// assert!(args.len() > 10);
/// # Ok::<(), skyward::Error>(())
/// ```
#[derive(Debug)]
pub struct Args {
    /// A `map32` header and the entries. `encode` sets the count in the header.
    buffer: Vec<u8>,
    /// One more entry with large bytes, after a gap for the other entries.
    large: Option<Memory>,
    /// The names of the arguments, of which none may occur twice.
    names: Vec<Box<str>>,
    failure: Option<Error>,
}

impl Args {
    /// No arguments.
    pub fn new() -> Self {
        Self { buffer: vec![MAP32, 0, 0, 0, 0], large: None, names: Vec::new(), failure: None }
    }

    /// Adds an argument. If the value cannot be serialised, [`encode`](Self::encode) fails, and
    /// nothing of the call is sent.
    ///
    /// An argument that is a sequence of `u8` as a whole arrives as Python's `bytes`: `Vec<u8>`,
    /// `[u8; N]`, `Box<[u8]>`, `Cow<'_, [u8]>`, `bytes::Bytes`, and an `Option` of one of them.
    /// Inside other types, Serde does not distinguish such a sequence from any other one. It
    /// arrives as a list of ints there, unless its type serialises as bytes, as `bytes::Bytes`
    /// does.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::payload::Args;
    ///
    /// let digest = Args::new().with("digest", &[1_u8, 2, 3]).encode()?;
    /// assert_eq!(digest, Args::new().with_bytes("digest", &[1, 2, 3]).encode()?);
    /// # Ok::<(), skyward::Error>(())
    /// ```
    #[must_use]
    pub fn with<T: Serialize + 'static>(self, name: &str, value: &T) -> Self {
        match owned_bytes(value) {
            Some(bytes) => self.with_bytes(name, bytes),
            None => self.with_borrowed(name, value),
        }
    }

    /// Adds an argument that borrows data: `&str`, `&[f64]`, `Cow<'_, str>`. It is serialised at
    /// once, and bytes are handled as in [`with`](Self::with).
    #[must_use]
    pub fn with_borrowed<T: Serialize + ?Sized>(self, name: &str, value: &T) -> Self {
        let type_name = std::any::type_name::<T>();
        self.push(name, type_name, |buffer| {
            if is_bytes(type_name) {
                super::value::encode_bytes_into(buffer, value)
            } else {
                super::value::encode_into(buffer, value)
            }
        })
    }

    /// Adds an argument that arrives as Python's `bytes`, copied without work for each byte.
    #[must_use]
    pub fn with_bytes(mut self, name: &str, bytes: &[u8]) -> Self {
        if self.large.is_none()
            && let Some(large) = large_entry(name, bytes)
        {
            if self.claim(name) {
                self.large = Some(large);
            }
            return self;
        }
        self.push(name, "bytes", |buffer| rmp::encode::write_bin(buffer, bytes))
    }

    /// Returns the wire form.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] for the first argument that could not be serialised, or whose name
    /// another argument has.
    pub fn encode(mut self) -> Result<Bytes> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let count = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.buffer[1..HEADER].copy_from_slice(&count.to_be_bytes());
        let Some(mut large) = self.large else { return Ok(self.buffer.into()) };
        match GAP.checked_sub(self.buffer.len()) {
            Some(start) => {
                large.filled_mut()[start..GAP].copy_from_slice(&self.buffer);
                Ok(large.freeze().slice(start..))
            }
            None => {
                self.buffer.extend_from_slice(&large.filled_mut()[GAP..]);
                Ok(self.buffer.into())
            }
        }
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
                .with_hint("arguments are serde types that MessagePack can represent: see the guide page on payloads")
        };
        if !self.claim(name) {
            return self;
        }
        let length = self.buffer.len();
        let written = rmp::encode::write_str(&mut self.buffer, name)
            .map_err(|error| failed(&error))
            .and_then(|()| write(&mut self.buffer).map_err(|error| failed(&error)));
        if let Err(error) = written {
            self.buffer.truncate(length);
            self.failure.get_or_insert(error);
        }
        self
    }

    /// Takes a name, unless another argument has it.
    fn claim(&mut self, name: &str) -> bool {
        let free = !self.names.iter().any(|taken| **taken == *name);
        if free {
            self.names.push(name.into());
        } else {
            self.failure.get_or_insert_with(|| {
                Error::new(ErrorKind::Argument, format!("the argument `{name}` is given twice"))
                    .with_hint("give each parameter of the Python function at most one value")
            });
        }
        free
    }
}

impl Clone for Args {
    fn clone(&self) -> Self {
        let mut buffer = self.buffer.clone();
        if let Some(large) = &self.large {
            buffer.extend_from_slice(&large.filled()[GAP..]);
        }
        Self { buffer, large: None, names: self.names.clone(), failure: self.failure.clone() }
    }
}

impl Default for Args {
    fn default() -> Self {
        Self::new()
    }
}

/// The bytes of a type that holds them in one piece, so that they can be copied at once.
fn owned_bytes(value: &dyn Any) -> Option<&[u8]> {
    let plain = value.downcast_ref::<Vec<u8>>().map(Vec::as_slice);
    plain
        .or_else(|| value.downcast_ref::<Bytes>().map(|bytes| &**bytes))
        .or_else(|| value.downcast_ref::<Box<[u8]>>().map(|bytes| &**bytes))
        .or_else(|| value.downcast_ref::<Cow<'static, [u8]>>().map(|bytes| &**bytes))
        .or_else(|| value.downcast_ref::<Option<Vec<u8>>>().and_then(Option::as_deref))
        .or_else(|| value.downcast_ref::<Option<Bytes>>().and_then(Option::as_deref))
}

/// An entry with large bytes, in memory of its own. `None` if the entry is small, and better copied
/// after the others.
fn large_entry(name: &str, bytes: &[u8]) -> Option<Memory> {
    if bytes.len() < LARGE {
        return None;
    }
    let mut start = vec![0; GAP];
    rmp::encode::write_str(&mut start, name).ok()?;
    rmp::encode::write_bin_len(&mut start, u32::try_from(bytes.len()).ok()?).ok()?;
    let mut large = Memory::allocate(start.len() + bytes.len())?;
    large.extend(&start);
    large.extend(bytes);
    Some(large)
}

/// The size of the gap before large bytes, for the other arguments.
const GAP: usize = 64 << 10;
const MAP32: u8 = 0xdf;
const HEADER: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_map_and_bytes_are_bytes() {
        let bytes = Args::new().with("a", &1_u8).with("b", &vec![7_u8; 3]).encode().unwrap();
        assert_eq!(&bytes[..], b"\xdf\0\0\0\x02\xa1a\x01\xa1b\xc4\x03\x07\x07\x07");
    }

    #[test]
    fn large_bytes_are_encoded_with_other_arguments_of_any_number_and_size() {
        #[derive(serde::Deserialize)]
        struct Decoded {
            a: u8,
            b0: Bytes,
            b1: Option<Bytes>,
            c: String,
        }

        let bytes: Vec<u8> = (0..LARGE + 5).map(|index| (index % 251) as u8).collect();
        let text = "x".repeat(2 * GAP);
        for (other, copies) in [("small", 1), (&*text, 1), ("small", 2)] {
            let mut args = Args::new().with("a", &1_u8).with_bytes("b0", &bytes);
            if copies == 2 {
                args = args.with("b1", &bytes);
            }
            let args = args.with_borrowed("c", other);
            let cloned = args.clone().encode().unwrap();
            for encoded in [args.encode().unwrap(), cloned] {
                let decoded: Decoded = crate::payload::value::decode(&encoded).unwrap();
                assert!(decoded.a == 1 && decoded.b0 == bytes && decoded.c == other);
                assert_eq!(decoded.b1.map(|b1| b1 == bytes), (copies == 2).then_some(true));
            }
        }
    }

    #[test]
    fn borrowed_arguments_are_encoded_like_owned_ones() {
        let text = String::from("ab");
        let borrowed = Args::new().with_borrowed("a", text.as_str()).with_borrowed("b", &[1.5_f64][..]);
        let owned = Args::new().with("a", &text).with("b", &vec![1.5_f64]);
        assert_eq!(borrowed.encode().unwrap(), owned.encode().unwrap());
        let bytes = Args::new().with_bytes("a", &[7, 8]);
        assert_eq!(bytes.encode().unwrap(), Args::new().with("a", &vec![7_u8, 8]).encode().unwrap());
    }

    #[test]
    fn bytes_of_every_type_are_encoded_as_bytes() {
        let expected = Args::new().with_bytes("a", &[7, 8]).encode().unwrap();
        let (list, array) = (vec![7_u8, 8], [7_u8, 8]);
        let cow: Cow<'_, [u8]> = Cow::Borrowed(&list);
        for (what, args) in [
            ("Vec", Args::new().with("a", &list)),
            ("Option<Vec>", Args::new().with("a", &Some(list.clone()))),
            ("array", Args::new().with("a", &array)),
            ("Option<array>", Args::new().with("a", &Some(array))),
            ("Box", Args::new().with("a", &list.clone().into_boxed_slice())),
            ("Option<Box>", Args::new().with("a", &Some(list.clone().into_boxed_slice()))),
            ("Bytes", Args::new().with("a", &Bytes::from(list.clone()))),
            ("Option<Bytes>", Args::new().with("a", &Some(Bytes::from(list.clone())))),
            ("Cow", Args::new().with("a", &Cow::<'static, [u8]>::Owned(list.clone()))),
            ("borrowed Cow", Args::new().with_borrowed("a", &cow)),
            ("borrowed Option<Cow>", Args::new().with_borrowed("a", &Some(&cow))),
            ("slice", Args::new().with_borrowed("a", &list[..])),
            ("reference to a slice", Args::new().with_borrowed("a", &&list[..])),
            ("reference to an array", Args::new().with_borrowed("a", &&array)),
            ("reference to a Vec", Args::new().with_borrowed("a", &Some(&list))),
        ] {
            assert_eq!(args.encode().unwrap(), expected, "{what}");
        }
        let none = Args::new().with("a", &None::<()>).encode().unwrap();
        assert_eq!(Args::new().with("a", &None::<Vec<u8>>).encode().unwrap(), none);
        assert_eq!(Args::new().with("a", &None::<[u8; 3]>).encode().unwrap(), none);
        let empty = Args::new().with_bytes("a", &[]).encode().unwrap();
        assert_eq!(Args::new().with("a", &Some(Box::<[u8]>::default())).encode().unwrap(), empty);
    }

    #[test]
    fn other_sequences_are_encoded_as_lists() {
        let tuple = Args::new().with("a", &(7_u8, 8_u8)).encode().unwrap();
        assert_eq!(&tuple[..], b"\xdf\0\0\0\x01\xa1a\x92\x07\x08");
        assert_eq!(Args::new().with("a", &vec![7_i8, 8]).encode().unwrap(), tuple);
        assert_eq!(Args::new().with("a", &[7_u16, 8]).encode().unwrap(), tuple);
        let inside = Args::new().with("a", &vec![vec![7_u8]]).encode().unwrap();
        assert_eq!(&inside[..], b"\xdf\0\0\0\x01\xa1a\x91\x91\x07");
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
