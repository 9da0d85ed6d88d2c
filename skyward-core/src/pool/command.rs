//! The commands that the other parts of a pool send to its driver.

use std::time::Duration;

use tokio::sync::oneshot;

use super::fleet::step::Workers;
use crate::error::{Error, Result};
use crate::event::DrainReason;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::spec::Nodes;

/// A report or a request of another part of the pool to its driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// Workers were lost, or could not be restarted.
    Restart(Workers),
    /// The connection to a worker ended.
    WorkerDisconnected {
        rank: Rank,
        generation: Generation,
        connection: u64,
    },
    /// A worker that makes calls has no connection for them, or lost it.
    CallerDisconnected {
        rank: Rank,
        generation: Generation,
        connection: u64,
    },
    /// The connection to an agent ended.
    AgentGone {
        node: NodeIndex,
        connection: u64,
    },
    /// A node's machine is not usable, with the reason.
    Sick(NodeIndex, Error),
    /// A node that leaves the pool has finished its work.
    Drained(NodeIndex),
    /// A world that waits for a new size has finished its work.
    WorldIdle,
    /// The pool takes no more tasks, for this reason, and ends when no task runs.
    Failed(Error),
    /// A panic may have left the state of the pool inconsistent: the pool ends at once.
    Panicked(Error),
    /// The user asks for another number of nodes.
    Resize {
        nodes: Nodes,
        done: oneshot::Sender<Result<()>>,
    },
    /// An agent reports that its machine will end.
    Notice {
        node: NodeIndex,
        connection: u64,
        reason: DrainReason,
        ends_in: Duration,
        words: String,
    },
    Shutdown {
        deadline: Duration,
    },
}
