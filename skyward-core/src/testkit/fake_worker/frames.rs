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

/// The body of a failure of this kind.
pub(in crate::testkit) fn failure_body(kind: &str) -> Bytes {
    let failure = Failure { kind, r#type: "Simulated", module: "builtins", message: kind, traceback: "" };
    rmp_serde::to_vec_named(&failure).unwrap_or_default().into()
}

#[derive(Serialize)]
struct Failure<'a> {
    kind: &'a str,
    r#type: &'a str,
    module: &'a str,
    message: &'a str,
    traceback: &'a str,
}
