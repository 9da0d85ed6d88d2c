//! Frames of the worker protocol: how the fake reads their heads, and how it packs and sends them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::worker::codec::Frame;
use crate::worker::link::Sender;

pub(in crate::testkit) fn send(to: &Sender, head: &impl Serialize, body: Bytes) {
    push(to, Frame { head: pack(head), body });
}

pub(in crate::testkit) fn push(to: &Sender, frame: Frame) {
    if to.push(&frame.head, frame.body).is_ok() {
        to.flush();
    }
}

pub(in crate::testkit) fn pack(head: &impl Serialize) -> Bytes {
    rmp_serde::to_vec(head).unwrap_or_default().into()
}

pub(in crate::testkit) fn read<'a, T: Deserialize<'a>>(head: &'a [u8]) -> Option<T> {
    rmp_serde::from_slice(head).ok()
}

pub(in crate::testkit) fn number(mut head: &[u8]) -> Option<u32> {
    rmp::decode::read_array_len(&mut head).ok()?;
    rmp::decode::read_int(&mut head).ok()
}

/// Why a task failed, as a worker reports it.
#[derive(Debug, Clone, Serialize)]
pub(in crate::testkit) struct Failure {
    pub(in crate::testkit) kind: &'static str,
    r#type: String,
    module: String,
    pub(in crate::testkit) message: String,
    pub(in crate::testkit) traceback: String,
}

impl Failure {
    /// A failure of this kind.
    pub(in crate::testkit) fn of(kind: &'static str) -> Self {
        Self { kind, ..Self::raised("Simulated", kind) }
    }

    /// An exception of this class.
    pub(in crate::testkit) fn raised(type_name: &str, message: &str) -> Self {
        let (module, class) = type_name.rsplit_once('.').unwrap_or(("builtins", type_name));
        let (r#type, module) = (class.to_owned(), module.to_owned());
        Self { kind: "exception", r#type, module, message: message.to_owned(), traceback: String::new() }
    }

    /// The body of its message.
    pub(in crate::testkit) fn body(&self) -> Bytes {
        rmp_serde::to_vec_named(self).unwrap_or_default().into()
    }
}
