//! The head of a message: a list of elements, of which the first is the number of the message.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::LONGEST_NOTICE;
use crate::error::{Error, ErrorKind, Result};

/// The elements of a head, one after the other. Elements that a later version has appended are
/// ignored.
pub(in crate::worker) struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    pub(in crate::worker) fn of(head: &'a [u8]) -> Result<Self> {
        let mut rest = head;
        let length = rmp::decode::read_array_len(&mut rest);
        length.map_err(|error| protocol("head", &error))?;
        Ok(Self(rest))
    }

    pub(in crate::worker) fn next<T: DeserializeOwned>(&mut self) -> Result<T> {
        T::deserialize(&mut rmp_serde::Deserializer::new(&mut self.0)).map_err(|error| unreadable(&error))
    }

    /// The element at the end that may be left out; `None` also if it is one of a later version.
    pub(super) fn rest<T: DeserializeOwned>(&mut self) -> Option<T> {
        if self.0.is_empty() { None } else { self.next().ok() }
    }

    /// A number of seconds that can be added to a point in time.
    pub(super) fn seconds(&mut self) -> Result<f64> {
        let seconds = self.next::<f64>()?;
        match (0.0..=LONGEST_NOTICE).contains(&seconds) {
            true => Ok(seconds),
            false => Err(unreadable(&format!("{seconds} is not between 0 and {LONGEST_NOTICE} seconds"))),
        }
    }

    /// A number, without serde: every call returns several.
    pub(super) fn number(&mut self) -> Result<u64> {
        rmp::decode::read_int(&mut self.0).map_err(|error| unreadable(&error))
    }
}

pub(in crate::worker) fn pack<T: Serialize>(head: &T) -> Result<Vec<u8>> {
    rmp_serde::to_vec(head).map_err(|error| protocol("head", &error))
}

pub(in crate::worker) fn unreadable(error: &dyn std::fmt::Display) -> Error {
    protocol("message", error).with_hint("the worker package on the node is of another version than this client")
}

pub(super) fn protocol(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, format!("a {what} of the worker protocol cannot be read or written: {error}"))
}

pub(in crate::worker) fn unknown(from: &str, number: u32) -> Error {
    Error::new(ErrorKind::Protocol, format!("the {from} sent message {number}, which this version does not know"))
        .with_hint("the worker package on the node is newer than this client; build both from one version")
}
