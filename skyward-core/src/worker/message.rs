//! The messages of the protocol, version 3; `docs/protocol.md` explains them.

mod agent;
mod head;
mod mover;
mod start;
mod worker;

pub use self::agent::{FromAgent, Signal, StartedWorker, ToAgent};
pub(super) use self::head::{Elements, pack, unknown, unreadable};
pub use self::mover::{FromMover, Note, Refused, RefusedKind, ToMover};
pub(crate) use self::start::SourceMap;
pub use self::start::{Cluster, Peer, Peers, StartHook, StartPayload, StartSpec};
pub(super) use self::worker::refused_by_worker;
pub use self::worker::{Awaited, Failure, FromWorker, GangTry, Missing, TaskEnd, ToWorker, Warning, WorkerHello};

/// The version of the protocol between client and node.
pub const PROTOCOL_VERSION: u32 = 3;

/// The longest notice of a machine's end, in seconds: both sides refuse a message with a larger
/// number.
pub const LONGEST_NOTICE: f64 = 1e9;

/// The message with which an agent or a worker refuses a message.
pub(super) const ERROR: u32 = 41;

#[cfg(test)]
mod tests;
