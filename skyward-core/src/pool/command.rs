//! The commands that the other parts of a pool send to its driver.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::event::DrainReason;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::pool::mover::{Line, Mover};
use crate::scheduler::Loss;
use crate::spec::Nodes;

/// A report or a request of another part of the pool to its driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// A worker was lost, or must end; in a joined world, all workers with it.
    WorkerLost(Rank, Loss),
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
    /// A node that leaves the pool has finished its work.
    Drained(NodeIndex),
    /// A world that waits for a new size has finished its work.
    WorldIdle,
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
    /// Somebody reads files of a node: reach its mover.
    ReachMover {
        node: NodeIndex,
        line: Line,
        done: oneshot::Sender<Result<Mover>>,
    },
    /// No task begins any more; the pool ends when no task runs, and at the deadline at the latest.
    Drain {
        deadline: Duration,
    },
    Shutdown {
        deadline: Duration,
    },
}
