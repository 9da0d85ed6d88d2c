//! The kinds of errors.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of an error; match on it to react.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The specification is invalid: zero nodes, an unknown accelerator, a contradiction. Reported
    /// before anything starts.
    InvalidSpec,
    /// The plugins do not fit together: a wrong order, a duplicate, a missing requirement, a
    /// conflict. Reported before anything starts.
    Plugins,
    /// The payload itself is invalid: the entry does not exist, a file is missing, or the payload
    /// is larger than a frame may be.
    Payload,
    /// An argument could not be serialised; nothing was sent.
    Argument,
    /// A value cannot be converted to its wire form, such as the Python value that the payload
    /// returned.
    Encode,
    /// The result arrived, but does not fit the Rust type.
    Decode,
    /// The payload raised an exception; see [`Error::exception`](super::Error::exception).
    Raised,
    /// The worker process ended while it ran the task; see [`Error::exit`](super::Error::exit).
    WorkerExited,
    /// A node of the pool was lost: its agent or its machine is gone.
    NodeLost,
    /// The task ended its worker repeatedly and is not retried any more; see
    /// [`Error::tries`](super::Error::tries).
    Poisoned,
    /// The gang made no progress for longer than [`Limits::stall`](crate::spec::Limits::stall)
    /// allows; see [`Error::stacks`](super::Error::stacks).
    Stalled,
    /// The task waited in the queue for longer than its limit, and was not started.
    QueueTimeout,
    /// The environment (interpreter, packages) could not be built, or differs from that of the
    /// other nodes of the pool.
    Environment,
    /// A machine could not be made ready.
    Bootstrap,
    /// A host did not prove its identity: its host key is not the expected one.
    HostKey,
    /// A host refused the client's login.
    Login,
    /// A provider refused or failed; see [`Error::refusal`](super::Error::refusal).
    Provider,
    /// The pool's [`Budget`](crate::spec::Budget) is spent, or a launch would exceed it.
    Budget,
    /// A plugin's hook raised an exception or did not return in time.
    Hook,
    /// Not all machines or workers became ready in time.
    Start,
    /// A deadline passed.
    Timeout,
    /// The task was cancelled.
    Cancelled,
    /// The pool has failed, and ends when no task runs: its machines or workers are lost again and
    /// again. The message and the source have the reason.
    Failed,
    /// The pool is shutting down, or has shut down.
    Closed,
    /// The node, rank or other item that was named does not exist.
    NotFound,
    /// An artifact is not on its node any more: the node's machine is gone, or the artifact was
    /// discarded.
    ArtifactLost,
    /// A file on a node changed while it was read.
    Changed,
    /// The bytes of a file that arrived are not the ones that were on the node.
    Damaged,
    /// A [`Storage`](crate::storage::Storage) refused or failed.
    Storage,
    /// Another pool uses a name of checkpoints now.
    InUse,
    /// Another pool has taken over a name of checkpoints, and this one saves nothing more under it.
    Superseded,
    /// A checkpoint in the storage is not whole, or not what was saved.
    CheckpointDamaged,
    /// A provider is not the one on record: another engine at the same path, another machine.
    Identity,
    /// The node sent an answer that violates the protocol.
    Protocol,
    /// The operating system refused something on this host.
    Io,
    /// The ledger could not be written, and nothing was started without a record; or the ledger
    /// could not be read.
    Ledger,
}

/// The name in words: `worker exited`.
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        for (index, letter) in name.char_indices() {
            let space = if index > 0 && letter.is_uppercase() { " " } else { "" };
            write!(f, "{space}{}", letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}
