//! The client's side of the worker protocol (`docs/protocol.md`): frames, messages, sessions, and
//! the links that carry them.

pub mod calls;
pub mod codec;
pub mod link;
pub mod message;
mod payload_numbers;
pub mod session;
mod timing;
