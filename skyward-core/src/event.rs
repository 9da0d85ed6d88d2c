//! What a pool tells while it lives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_core::stream::BoxStream;

use crate::error::{Error, RankStacks, WorkerExit};
use crate::ids::{Attempt, Generation, MachineId, NodeIndex, OfferId, Rank, TaskId};
use crate::payload::Report;
use crate::spec::Spent;

/// Something that happened in a pool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PoolEvent {
    /// A machine is asked for.
    NodeLaunching {
        /// The node it will be.
        node: NodeIndex,
    },
    /// A machine was launched and is not there yet: what its provider reports has changed.
    NodeWaiting {
        /// The node it will be.
        node: NodeIndex,
        /// Its id at the provider.
        machine: MachineId,
        /// The state, and the provider's own words: `queued: PENDING (Resources), starts 14:00`.
        report: String,
    },
    /// The provider refused an offer. The pool tries the next one, if there is one.
    OfferRefused {
        /// The node that the machine was for.
        node: NodeIndex,
        /// The offer.
        offer: OfferId,
        /// Why; [`Error::refusal`] has the reason.
        error: Error,
    },
    /// What is left of the [budget](crate::spec::Budget) covers the end of the pool: it takes no tasks any more, and ends.
    BudgetSpent {
        /// What was spent until now.
        spent: Spent,
    },
    /// A machine is there.
    NodeLaunched {
        /// The node it is.
        node: NodeIndex,
        /// Its id at the provider.
        machine: MachineId,
        /// The address at which the other nodes reach it.
        address: String,
    },
    /// A step of making a machine ready began.
    BootstrapStep {
        /// The node.
        node: NodeIndex,
        /// What is done: `uv`, `environment`, `agent`.
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
    /// The workers of the pool are started, together.
    GenerationStarting {
        /// Which life of the world.
        generation: Generation,
        /// How many workers.
        workers: u32,
    },
    /// A worker has entered its hooks and takes tasks.
    WorkerReady {
        /// Which one.
        rank: Rank,
        /// The node it is on.
        node: NodeIndex,
        /// Its process id there.
        pid: u32,
    },
    /// All workers take tasks.
    PoolReady {
        /// How many nodes there really are.
        nodes: u32,
        /// How many workers.
        workers: u32,
    },
    /// A task went to a worker.
    TaskStarted {
        /// Which task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// Which worker.
        rank: Rank,
    },
    /// A task returned.
    TaskFinished {
        /// Which task.
        task: TaskId,
        /// Which worker.
        rank: Rank,
        /// How long the payload ran.
        micros: u64,
    },
    /// A task failed for good.
    TaskFailed {
        /// Which task.
        task: TaskId,
        /// Why.
        error: Error,
    },
    /// A task was cancelled: its caller does not wait for it any more. It is no failure.
    TaskCancelled {
        /// Which task.
        task: TaskId,
    },
    /// A task is tried again.
    TaskRetried {
        /// Which task.
        task: TaskId,
        /// The try that comes.
        attempt: Attempt,
        /// Why the one before failed.
        error: Error,
    },
    /// How many calls the payload of a task makes, with the calls that those make in turn. Emitted
    /// for a task whose calls have changed, at most twice a second, and once more at the end of a
    /// try. A pool whose payloads never call emits none.
    ///
    /// `done + running + waiting` is the number of calls that were made in this try.
    Calls {
        /// The task that Rust has submitted, at the root of the calls.
        task: TaskId,
        /// Calls that have ended: by a result, by an exception, by an error, or with their caller.
        done: usize,
        /// Calls that a worker runs.
        running: usize,
        /// Calls that no worker has begun.
        waiting: usize,
    },
    /// A gang in a joined world has made no progress for
    /// [`Limits::stall_report`](crate::spec::Limits::stall_report), and goes on. Emitted once for
    /// each such time.
    GangStalled {
        /// A task of the gang: that of its first rank which still runs.
        task: TaskId,
        /// The payload's entry.
        entry: String,
        /// The payload's main file.
        payload: String,
        /// How long no rank has made progress.
        silent: Duration,
        /// That, and where each rank is, in the words of the error
        /// [`ErrorKind::Stalled`](crate::error::ErrorKind::Stalled).
        message: String,
        /// The stacks of each rank that still runs.
        stacks: Arc<[RankStacks]>,
    },
    /// Bytes that a worker wrote to standard output or standard error.
    Output(Output),
    /// A payload or a hook called `sky.report(value)`.
    Report(Report),
    /// A worker process ended.
    WorkerExited {
        /// Which one.
        rank: Rank,
        /// How.
        exit: WorkerExit,
    },
    /// The connection to a node was lost, and it is tried to have it again. What runs there goes on; what it answers and writes waits there.
    NodeDisconnected {
        /// Which one.
        node: NodeIndex,
        /// Why.
        error: Error,
    },
    /// The connection to a node is there again, and nothing was lost with it.
    NodeReconnected {
        /// Which one.
        node: NodeIndex,
    },
    /// A node is lost, or the machine that was to replace it is. Unless the pool gives up, another one is launched.
    NodeLost {
        /// Which one.
        node: NodeIndex,
        /// Why.
        error: Error,
    },
    /// A lost node has another machine, and its workers take tasks; in a joined world, all workers do.
    NodeReplaced {
        /// Which one.
        node: NodeIndex,
        /// The machine that took the place of the lost one.
        machine: MachineId,
        /// The address at which the other nodes reach it.
        address: String,
    },
    /// A further machine could not be made ready, or was lost before it joined. The pool goes on without it, and may try another one.
    NodeFailed {
        /// The number by which the provider knows it.
        node: NodeIndex,
        /// Why.
        error: Error,
    },
    /// A further node has come to a pool that serves, and its workers take tasks; in a joined world, all workers do.
    NodeJoined {
        /// Which one it is in the pool.
        node: NodeIndex,
        /// Its machine.
        machine: MachineId,
        /// The address at which the other nodes reach it.
        address: String,
    },
    /// A node leaves the pool, or another machine takes the place of its own. The node takes no new tasks; the pool ends its machine when its tasks have finished.
    NodeLeaving {
        /// Which one.
        node: NodeIndex,
        /// Why.
        reason: Leaving,
        /// After which time its machine ends by itself, where that is known.
        ends_in: Option<Duration>,
    },
    /// The pool has another number of nodes than before: those that came take tasks, and the machines of those that left are confirmed gone.
    Resized {
        /// How many nodes there are.
        nodes: u32,
        /// How many workers.
        workers: u32,
    },
    /// A machine that was lost or given back is not confirmed gone. It stays on record, is tried again when the pool ends, and ends by its lease if it can.
    NodeLeft {
        /// The node it was.
        node: NodeIndex,
        /// Why nobody knows.
        error: Error,
    },
    /// The runtime in which the pool was started was blocked, and leases were renewed late. Machines end themselves when a renewal is late by three quarters of the lease.
    RuntimeBlocked {
        /// How much later than it was due the runtime ran what was due; it was blocked for at least as long.
        late: Duration,
        /// [`Limits::lease`](crate::spec::Limits::lease).
        lease: Duration,
    },
    /// The pool began to end.
    Draining,
    /// A machine is confirmed gone, or on its way out for good, and nothing is paid for it any more.
    NodeGone {
        /// The node it was.
        node: NodeIndex,
        /// Its id at the provider.
        machine: MachineId,
    },
    /// The pool has ended. What could not be confirmed gone is the error of [`shutdown`](crate::pool::ComputePool::shutdown).
    Closed,
}

/// Why a node leaves the pool, or the pool replaces its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Leaving {
    /// The pool is to have fewer nodes, by a call of [`resize`](crate::pool::ComputePool::resize).
    Resized,
    /// An elastic pool does not need it.
    Idle,
    /// The provider takes its machine back.
    Preempted,
    /// The time is over for which its machine was bought.
    Expired,
}

impl std::fmt::Display for Leaving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Resized => "the pool is to have fewer nodes",
            Self::Idle => "the pool does not need it",
            Self::Preempted => "the provider takes its machine back",
            Self::Expired => "the time of its machine is over",
        })
    }
}

impl PoolEvent {
    /// About how many bytes it keeps beside its own.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Output(output) => output.bytes.len(),
            Self::Report(report) => report.value.bytes.len(),
            Self::BootstrapLine { line, .. } => line.len(),
            Self::TaskFailed { error, .. }
            | Self::TaskRetried { error, .. }
            | Self::NodeDisconnected { error, .. }
            | Self::NodeLost { error, .. }
            | Self::NodeFailed { error, .. }
            | Self::OfferRefused { error, .. }
            | Self::NodeLeft { error, .. } => error.size(),
            Self::GangStalled { message, stacks, .. } => {
                message.len() + stacks.iter().map(|one| one.text.len()).sum::<usize>()
            }
            _ => 0,
        }
    }
}

/// Bytes that a worker wrote, exactly as it wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// The node.
    pub node: NodeIndex,
    /// The worker.
    pub rank: Rank,
    /// Which descriptor.
    pub stream: OutputStream,
    /// The life of the world in which it was written; offsets begin anew with each.
    pub generation: Generation,
    /// How many bytes the worker had written to the descriptor before these.
    pub offset: u64,
    /// The task that wrote them, where it is known by now.
    pub task: Option<TaskId>,
    /// The bytes.
    pub bytes: Bytes,
}

impl Output {
    /// Output of a worker whose task is not known.
    pub fn new(
        node: NodeIndex,
        rank: Rank,
        stream: OutputStream,
        generation: Generation,
        offset: u64,
        bytes: impl Into<Bytes>,
    ) -> Self {
        Self { node, rank, stream, generation, offset, task: None, bytes: bytes.into() }
    }
}

/// Standard output or standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Descriptor 1.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// What a reader of [`Events`] gets.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventItem {
    /// An event, shared by all readers.
    Event(Arc<PoolEvent>),
    /// This reader was too slow, and this many events before the next one were dropped for it. Nobody waited for it.
    Missed(u64),
}

/// A stream of a pool's events, from the moment it was made to the pool's end.
pub struct Events(BoxStream<'static, EventItem>);

impl Events {
    /// Events from any stream of them.
    pub fn new(stream: impl Stream<Item = EventItem> + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }

    /// The next event; `None` after the pool's end.
    ///
    /// # Cancel safety
    ///
    /// No event is lost.
    pub async fn next(&mut self) -> Option<EventItem> {
        std::future::poll_fn(|context| self.0.as_mut().poll_next(context)).await
    }
}

impl Stream for Events {
    type Item = EventItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<EventItem>> {
        self.0.as_mut().poll_next(context)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}
