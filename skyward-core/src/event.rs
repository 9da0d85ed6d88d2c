//! The events of a pool: what happens to its machines, nodes, workers and tasks.

mod display;
mod output;
mod stream;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use display::count;
pub use output::{OutputChunk, OutputStream};
use serde::{Deserialize, Serialize, Serializer};
pub use stream::{EventItem, Events};
pub use transfer::{Transfer, TransferDirection, TransferState};

use crate::error::{Error, RankStacks, WorkerExit};
use crate::ids::{Attempt, Generation, MachineId, NodeIndex, OfferId, Rank, TaskId};
use crate::payload::Report;
use crate::spec::Spent;
use crate::spec::unlimited::{optional_seconds, seconds};

/// Something that happened in a pool.
///
/// Events about a machine name its node in `node`:
///
/// - For a machine of a node: the node's index.
/// - For a machine that replaces another one: the index of the node whose machine it replaces, even
///   while the other machine still works.
/// - For a machine that joins a pool after its start, until the machine has become a node: the
///   machine number. No node of the pool has this index when the machine is launched.
///
/// `Display` is one line for a person. By serde, an event is written with its name in `event`, and with
/// durations in seconds, for the records of a service; its errors have what is for developers alone. An
/// event is never read back.
///
/// The machine number of a node can differ from its index, for example after the pool has changed
/// its size.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PoolEvent {
    /// The pool asks the provider for a machine.
    NodeLaunching {
        /// The node that the machine will be, or its machine number.
        node: NodeIndex,
    },
    /// The provider's report of a machine that was launched and does not run yet has changed.
    NodeWaiting {
        /// The node that the machine will be, or its machine number.
        node: NodeIndex,
        /// The machine's id at the provider.
        machine: MachineId,
        /// The machine's state, and the provider's own words:
        /// `queued: PENDING (Resources), starts 14:00`.
        report: String,
    },
    /// The provider refused an offer. The pool tries the next offer, if there is one.
    OfferRefused {
        /// The node that the machine was for.
        node: NodeIndex,
        /// The offer.
        offer: OfferId,
        /// Why the provider refused; [`Error::refusal`] has the reason.
        error: Error,
    },
    /// The rest of the [budget](crate::spec::Budget) covers only the end of the pool. The pool
    /// takes no tasks any more, and ends.
    BudgetSpent {
        /// What the pool has spent so far.
        spent: Spent,
    },
    /// The pool has failed: it cannot go on with the machines and workers that it gets. The pool takes
    /// no tasks any more, and ends when no task runs.
    Failed {
        /// Why.
        error: Error,
    },
    /// A machine runs.
    NodeLaunched {
        /// The node that the machine is, or its machine number.
        node: NodeIndex,
        /// The machine's id at the provider.
        machine: MachineId,
        /// The address at which the other nodes reach it.
        address: String,
    },
    /// A bootstrap step, which makes a machine ready, began.
    BootstrapStep {
        /// The node.
        node: NodeIndex,
        /// The step's name: `uv`, `environment`, `agent`.
        step: &'static str,
    },
    /// A line that a bootstrap step wrote.
    BootstrapLine {
        /// The node.
        node: NodeIndex,
        /// The step that wrote it.
        step: &'static str,
        /// The line, without its end.
        line: String,
    },
    /// Workers are being started together.
    GenerationStarting {
        /// The generation of the world.
        generation: Generation,
        /// How many workers are started.
        workers: u32,
    },
    /// A worker has entered its hooks and takes tasks.
    WorkerReady {
        /// The worker's rank.
        rank: Rank,
        /// The node that the worker runs on.
        node: NodeIndex,
        /// The worker's process id on the node.
        pid: u32,
    },
    /// All workers take tasks.
    PoolReady {
        /// The actual number of nodes, which can be smaller than the wanted one.
        nodes: u32,
        /// The number of workers.
        workers: u32,
    },
    /// A task was sent to a worker.
    TaskStarted {
        /// The task.
        task: TaskId,
        /// The number of the try.
        attempt: Attempt,
        /// The worker's rank.
        rank: Rank,
    },
    /// A task returned a result.
    TaskFinished {
        /// The task.
        task: TaskId,
        /// The rank of the worker that ran the task.
        rank: Rank,
        /// How long the payload ran, in microseconds.
        micros: u64,
    },
    /// A task asked something of a framework that had no effect, and the framework raised no error:
    /// a layout of Keras whose pattern matched no variable. Emitted once for each rank that ran the
    /// task, before its result.
    TaskWarned {
        /// The task.
        task: TaskId,
        /// The rank of the worker that ran the task.
        rank: Rank,
        /// What had no effect.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// A task failed and is not retried.
    TaskFailed {
        /// The task.
        task: TaskId,
        /// Why the task failed.
        error: Error,
    },
    /// A task was cancelled, because its caller does not wait for it any more. This is not a
    /// failure.
    TaskCancelled {
        /// The task.
        task: TaskId,
    },
    /// A task is retried.
    TaskRetried {
        /// The task.
        task: TaskId,
        /// The number of the next try.
        attempt: Attempt,
        /// Why the previous try failed.
        error: Error,
    },
    /// The number of calls that the payload of a task makes, including the calls that these calls
    /// make.
    ///
    /// Emitted for a task whose calls have changed, at most twice a second, and once more at the
    /// end of a try. A pool whose payloads make no calls emits no such events.
    ///
    /// `done + running + waiting` is the number of calls that were made in this try.
    Calls {
        /// The task that Rust has submitted, at the root of the calls.
        task: TaskId,
        /// Calls that have ended: by a result, by an exception, by an error, or together with their
        /// caller.
        done: usize,
        /// Calls that a worker runs.
        running: usize,
        /// Calls that no worker has begun.
        waiting: usize,
    },
    /// A task, or a gang in a joined world, has made no progress for
    /// [`Limits::stall_report`](crate::spec::Limits::stall_report). The task continues to run.
    /// Emitted once for each period without progress.
    TaskStalled {
        /// The task; of a gang, the task of the first rank that still runs.
        task: TaskId,
        /// The payload's entry.
        entry: String,
        /// The payload's main file.
        payload: String,
        /// For how long no rank has made progress.
        #[serde(with = "seconds")]
        silent: Duration,
        /// A message with this time and the place of each rank, as in the error
        /// [`ErrorKind::Stalled`](crate::error::ErrorKind::Stalled).
        message: String,
        /// The stacks of each rank that still runs.
        #[serde(serialize_with = "all")]
        stacks: Arc<[RankStacks]>,
    },
    /// A copy of files between a node and this host goes on, each half second, or has ended. A copy
    /// that is quicker only reports its end.
    Transfer(Transfer),
    /// A checkpoint is in the storage, complete.
    CheckpointCommitted {
        /// The name of the training.
        name: String,
        /// The step.
        step: i64,
        /// The bytes of all files.
        bytes: u64,
    },
    /// A try begins with this checkpoint.
    CheckpointResumed {
        /// The name of the training.
        name: String,
        /// The step; `None` if there is no checkpoint yet.
        step: Option<i64>,
    },
    /// A checkpoint is not whole any more, and an older one is used.
    CheckpointSkipped {
        /// The name of the training.
        name: String,
        /// The sequence of the commit.
        sequence: u64,
        /// The step; `None` if its manifest cannot be read.
        step: Option<i64>,
        /// What is wrong with it.
        why: String,
    },
    /// A step that ranks have saved is not committed. The last commit counts.
    CheckpointDropped {
        /// The name of the training.
        name: String,
        /// The step.
        step: i64,
        /// Why.
        why: &'static str,
    },
    /// Bytes that a worker wrote to standard output or standard error.
    Output(OutputChunk),
    /// A payload or a hook called `sky.report(value)`.
    Report(Report),
    /// A worker process ended.
    WorkerExited {
        /// The worker's rank.
        rank: Rank,
        /// How the process ended.
        exit: WorkerExit,
    },
    /// The connection to a node was lost, and the pool reconnects. Tasks on the node continue to
    /// run, and their results and output wait on the node.
    NodeDisconnected {
        /// The node.
        node: NodeIndex,
        /// Why the connection was lost.
        error: Error,
    },
    /// The pool has reconnected to a node, and nothing was lost.
    NodeReconnected {
        /// The node.
        node: NodeIndex,
    },
    /// A node is lost, or its replacement is lost. The pool launches another machine, unless it
    /// gives up.
    NodeLost {
        /// The node.
        node: NodeIndex,
        /// Why the node was lost.
        error: Error,
    },
    /// A lost node has a new machine, and its workers take tasks. In a joined world, all workers
    /// take tasks again.
    NodeReplaced {
        /// The node.
        node: NodeIndex,
        /// The machine that took the place of the lost one.
        machine: MachineId,
        /// The address at which the other nodes reach it.
        address: String,
    },
    /// A machine that the pool launched after its start, to join it or to replace a machine that
    /// will end, could not be made ready, or was lost before it was ready. The pool continues
    /// without the machine, and may launch another one. If `node` is a node of the pool, it keeps
    /// its present machine.
    NodeFailed {
        /// The node whose machine the failed one would have replaced, or the machine number.
        node: NodeIndex,
        /// Why the machine failed.
        error: Error,
    },
    /// An additional node has joined a pool that was ready already, and its workers take tasks. In
    /// a joined world, all workers take tasks again.
    NodeJoined {
        /// The node's index in the pool.
        node: NodeIndex,
        /// The id of the node's machine.
        machine: MachineId,
        /// The address at which the other nodes reach it.
        address: String,
    },
    /// A node is draining: it leaves the pool, or its machine is being replaced by another one.
    /// The node takes no new tasks. The pool ends the machine when the node's tasks have finished.
    NodeDraining {
        /// The node.
        node: NodeIndex,
        /// Why the node leaves.
        reason: DrainReason,
        /// The time after which the machine ends by itself, if that is known.
        #[serde(with = "optional_seconds")]
        ends_in: Option<Duration>,
    },
    /// The pool has changed its number of nodes: the new nodes take tasks, and the machines of the
    /// nodes that left are confirmed gone.
    Resized {
        /// The number of nodes.
        nodes: u32,
        /// The number of workers.
        workers: u32,
    },
    /// A machine that was lost or released is not confirmed gone. It stays on record, the pool
    /// tries again to end it when the pool itself ends, and its lease ends it if it can.
    NodeUnconfirmed {
        /// The node that the machine was, or was made ready for, or its machine number.
        node: NodeIndex,
        /// Why the end of the machine could not be confirmed.
        error: Error,
    },
    /// The runtime in which the pool was started was blocked, so leases were renewed late. Machines
    /// end themselves when a renewal is late by three quarters of the lease.
    RuntimeBlocked {
        /// How late the runtime ran the renewal that was due. The runtime was blocked for at least
        /// this time.
        #[serde(with = "seconds")]
        late: Duration,
        /// [`Limits::lease`](crate::spec::Limits::lease).
        #[serde(with = "seconds")]
        lease: Duration,
    },
    /// The pool began to end.
    Draining,
    /// A machine is confirmed gone, or is ending irrevocably, and costs nothing any more.
    NodeGone {
        /// The node that the machine was, or was made ready for, or its machine number.
        node: NodeIndex,
        /// The machine's id at the provider.
        machine: MachineId,
    },
    /// The pool has ended. The error of [`shutdown`](crate::compute::ComputePool::shutdown) names
    /// the machines that could not be confirmed gone.
    Closed,
}

/// Why a node leaves the pool, or the pool replaces its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DrainReason {
    /// A call of [`resize`](crate::compute::ComputePool::resize) asked for fewer nodes.
    Resized,
    /// An elastic pool does not need the node any more.
    Idle,
    /// The provider takes the machine back.
    Preempted,
    /// The walltime of the machine is over.
    Expired,
}

impl std::fmt::Display for DrainReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Resized => "the pool is resizing to fewer nodes",
            Self::Idle => "the pool does not need it any more",
            Self::Preempted => "the provider takes its machine back",
            Self::Expired => "the walltime of its machine is over",
        })
    }
}

fn all<S: Serializer>(stacks: &Arc<[RankStacks]>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(stacks.iter())
}

impl PoolEvent {
    /// About how many bytes the event holds on the heap.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Output(output) => output.bytes.len(),
            Self::Report(report) => report.value.bytes.len(),
            Self::BootstrapLine { line, .. } => line.len(),
            Self::TaskWarned { message, hint, .. } => message.len() + hint.len(),
            Self::CheckpointSkipped { name, why, .. } => name.len() + why.len(),
            Self::CheckpointCommitted { name, .. }
            | Self::CheckpointResumed { name, .. }
            | Self::CheckpointDropped { name, .. } => name.len(),
            Self::TaskFailed { error, .. }
            | Self::TaskRetried { error, .. }
            | Self::NodeDisconnected { error, .. }
            | Self::NodeLost { error, .. }
            | Self::NodeFailed { error, .. }
            | Self::OfferRefused { error, .. }
            | Self::NodeUnconfirmed { error, .. } => error.size(),
            Self::TaskStalled { message, stacks, .. } => {
                message.len() + stacks.iter().map(|one| one.text.len()).sum::<usize>()
            }
            _ => 0,
        }
    }
}
