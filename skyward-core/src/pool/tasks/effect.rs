//! What a change of the state causes outside of it: events, metrics, spans and outcomes.

use std::sync::Arc;
use std::time::Duration;
use std::vec::Drain;

use super::spans::Spans;
use super::task::Entry;
use crate::error::{Error, RankStacks};
use crate::event::PoolEvent;
use crate::ids::{Attempt, NodeIndex, Rank, TaskId};
use crate::payload::{Outcome, Source};
use crate::pool::metrics::Metrics;

/// The effects of a change, in order.
#[derive(Default)]
pub(crate) struct Effects {
    waiting: Vec<Effect>,
    /// Bytes that were sent to workers and received from workers since the last report of them.
    sent: usize,
    received: usize,
    /// The numbers of the last report.
    counted: Numbers,
}

/// How many tasks wait and run, and how many of them are calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(super) queued: usize,
    pub(super) running: usize,
    pub(super) calls_waiting: usize,
    pub(super) calls_running: usize,
}

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
    Tasks(Numbers),
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

impl Effects {
    pub(super) fn push(&mut self, effect: Effect) {
        self.waiting.push(effect);
    }

    pub(super) fn event(&mut self, event: PoolEvent) {
        self.push(Effect::Event(event));
    }

    /// Bytes were sent to a worker.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Bytes were received from a worker.
    pub(super) fn received(&mut self, bytes: usize) {
        self.received += bytes;
    }

    /// Takes all effects; where metrics are recorded, with a report of the numbers if they have
    /// changed.
    pub(super) fn drain(&mut self, numbers: impl FnOnce() -> Numbers) -> Drain<'_, Effect> {
        if Metrics::RECORDED {
            let (sent, received) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.received));
            if sent + received > 0 {
                self.push(Effect::Bytes { sent, received });
            }
            let counted = numbers();
            if std::mem::replace(&mut self.counted, counted) != counted {
                self.push(Effect::Tasks(counted));
            }
        }
        self.waiting.drain(..)
    }
}

impl Extend<Effect> for Effects {
    fn extend<T: IntoIterator<Item = Effect>>(&mut self, effects: T) {
        self.waiting.extend(effects);
    }
}
