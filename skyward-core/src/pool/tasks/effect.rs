//! What a change of the state causes outside of it: events, metrics, spans and outcomes.

use std::sync::Arc;
use std::time::Duration;

use super::spans::Spans;
use super::task::Entry;
use crate::error::{Error, RankStacks};
use crate::event::PoolEvent;
use crate::ids::{Attempt, NodeIndex, Rank, TaskId};
use crate::payload::{Outcome, Source};

/// An effect to deliver, once the state is unlocked.
pub(crate) enum Effect {
    Event(PoolEvent),
    /// A worker has begun a task.
    Began {
        task: TaskId,
        attempt: Attempt,
        node: NodeIndex,
        rank: Rank,
        waited: Duration,
        spans: Option<Arc<Spans>>,
        /// False if the task had begun before and was not given back since.
        first: bool,
    },
    /// A try at a task is over: the time since its worker began, and for how much of that the
    /// payload ran.
    Tried {
        took: Duration,
        ran: Duration,
        spans: Option<Arc<Spans>>,
    },
    /// A task is tried again.
    Retried {
        task: TaskId,
        attempt: Attempt,
        error: Error,
        spans: Option<Arc<Spans>>,
    },
    /// A task has its outcome.
    Finished {
        task: TaskId,
        entry: Box<Entry>,
        outcome: Outcome,
    },
    /// A worker has answered: how long the payload ran, and the size of its value.
    Answered {
        micros: u64,
        bytes: usize,
    },
    /// Bytes that were sent to workers and received from workers.
    Bytes {
        sent: usize,
        received: usize,
    },
    /// How many tasks wait and run, and how many of them are calls.
    Tasks {
        queued: usize,
        running: usize,
        calls_waiting: usize,
        calls_running: usize,
    },
    /// A gang makes no progress, but is not ended.
    Stalled {
        task: TaskId,
        source: Arc<Source>,
        silent: Duration,
        stacks: Vec<RankStacks>,
    },
    /// A joined world ends because of this rank.
    WorldLost(Rank),
    /// A worker refused a run that was not recalled, because its payload has overwritten the file
    /// that records what has begun.
    Overwritten {
        rank: Rank,
        run: u64,
    },
    /// The output of tasks of this rank did not arrive in time.
    OutputLate(Rank),
}
