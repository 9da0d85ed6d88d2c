//! What a change of the state says to others: events, numbers, spans and outcomes. It is gathered while the state is locked, and told when it is not, in the same order, by one thread at a time.
//!
//! Subscribers of `tracing` and recorders of metrics are the user's code: however long they take, or whatever they ask of the pool, the state is free.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::held::PATIENCE;
use super::refused::Content;
use super::shared::{Entry, Reply, Shared};
use crate::error::{Error, ErrorKind, RankStacks, silence};
use crate::event::PoolEvent;
use crate::ids::{Attempt, NodeIndex, Rank, TaskId};
use crate::payload::{Outcome, Source, Task};

/// Something to tell.
pub(crate) enum Told {
    Event(PoolEvent),
    /// A worker began with a task.
    Began {
        task: TaskId,
        attempt: Attempt,
        node: NodeIndex,
        rank: Rank,
        waited: Duration,
        spans: Option<Arc<Spans>>,
        /// It was not given back since it began before.
        first: bool,
    },
    /// A try at a task is over, this long after its worker had begun, of which the payload ran so long.
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
    /// A worker answered: its payload has run so long, and the value has so many bytes.
    Answered {
        micros: u64,
        bytes: usize,
    },
    /// Bytes that went to workers and came from them.
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
    /// A gang makes no progress, and goes on.
    Stalled {
        task: TaskId,
        source: Arc<Source>,
        silent: Duration,
        stacks: Vec<RankStacks>,
    },
    /// A joined world ends with this rank.
    WorldLost(Rank),
    /// What tasks of this rank have printed did not arrive.
    OutputLate(Rank),
}

/// What waits to be told.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<VecDeque<Told>>,
    /// Held by whoever tells.
    teller: Mutex<()>,
}

/// The spans of a task: `task`, from its submission to its outcome, and within it `attempt`, from its beginning on a worker to the end of the try.
pub(crate) struct Spans {
    task: tracing::Span,
    attempt: Mutex<tracing::Span>,
}

impl Outbox {
    /// Takes what is to be told; called while the state is locked, so that the order is that of what happened.
    pub(crate) fn put(&self, told: &mut Vec<Told>) {
        if !told.is_empty() {
            lock(&self.waiting).extend(told.drain(..));
        }
    }
}

impl Shared {
    /// Tells whoever listens.
    pub(crate) fn emit(&self, event: PoolEvent) {
        lock(&self.outbox.waiting).push_back(Told::Event(event));
        self.empty_outbox();
    }

    /// Tells what waits to be told, unless another thread does: that one tells this too.
    pub(super) fn empty_outbox(&self) {
        loop {
            let teller = match self.outbox.teller.try_lock() {
                Ok(teller) => teller,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            loop {
                let waiting = std::mem::take(&mut *lock(&self.outbox.waiting));
                if waiting.is_empty() {
                    break;
                }
                waiting.into_iter().for_each(|told| self.tell_one(told));
            }
            drop(teller);
            // What came after the last look found a teller, and counts on it.
            if lock(&self.outbox.waiting).is_empty() {
                return;
            }
        }
    }

    fn tell_one(&self, told: Told) {
        match told {
            Told::Event(event) => self.tell_event(event),
            Told::Began { task, attempt, node, rank, waited, spans, first } => {
                if first {
                    self.metrics.began(waited);
                }
                if let Some(spans) = spans {
                    spans.begin(node, rank, attempt, waited);
                }
                if self.events.has_readers() {
                    self.tell_event(PoolEvent::TaskStarted { task, attempt, rank });
                }
            }
            Told::Tried { took, ran, spans } => {
                self.metrics.tried(took, ran);
                if let Some(spans) = spans {
                    lock(&spans.attempt).record("ran_us", ran.as_micros() as u64);
                }
            }
            Told::Retried { task, attempt, error, spans } => {
                if let Some(spans) = spans {
                    spans.retry(attempt, &error);
                }
                self.tell_event(PoolEvent::TaskRetried { task, attempt, error });
            }
            Told::Finished { task, entry, outcome } => self.tell_outcome(task, *entry, outcome),
            Told::Answered { micros, bytes } => self.metrics.answered(micros, bytes),
            Told::Bytes { sent, received } => {
                self.metrics.sent(sent);
                self.metrics.received(received);
            }
            Told::Tasks { queued, running, calls_waiting, calls_running } => {
                self.metrics.tasks(queued, running);
                self.metrics.calls(calls_waiting, calls_running);
            }
            Told::OutputLate(rank) => {
                tracing::warn!(pool = %self.pool, rank = rank.0, "what tasks have printed did not arrive within {PATIENCE:?} after them");
            }
            Told::Stalled { task, source, silent, stacks } => self.tell_stall(task, &source, silent, stacks),
            Told::WorldLost(rank) => {
                tracing::warn!(pool = %self.pool, rank = rank.0, "a worker of the world was lost: all are started again");
            }
        }
    }

    fn tell_event(&self, event: PoolEvent) {
        self.metrics.on_event(&event);
        self.events.send(event);
    }

    fn tell_stall(&self, task: TaskId, source: &Source, silent: Duration, stacks: Vec<RankStacks>) {
        let (entry, payload) = (source.entry().to_owned(), source.main().to_owned());
        let message = silence(silent, &stacks);
        tracing::warn!(
            pool = %self.pool, task = task.0, entry, payload,
            "{message}; it goes on: `Limits::stall` would end it, and `PoolEvent::GangStalled` has the stacks"
        );
        self.tell_event(PoolEvent::GangStalled { task, entry, payload, silent, message, stacks: stacks.into() });
    }

    fn tell_outcome(&self, task: TaskId, entry: Entry, outcome: Outcome) {
        let outcome = outcome.map_err(|error| named(error, &entry.task));
        self.metrics.ended(&outcome);
        if let Some(spans) = entry.spans {
            spans.finish(&outcome);
        }
        match &outcome {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Cancelled => self.tell_event(PoolEvent::TaskCancelled { task }),
            Err(error) => {
                self.tell_event(PoolEvent::TaskFailed { task, error: error.clone() });
                if error.kind() == ErrorKind::Poisoned {
                    self.refused().add(Content::of(&entry.task), error.clone());
                }
            }
        }
        match entry.reply {
            Reply::Handle(reply) => drop(reply.send(outcome)),
            // It has its outcome already.
            Reply::Caller(..) => {}
        }
    }
}

impl Spans {
    /// Those of a task that is submitted; none, where nobody wants to know.
    pub(super) fn of(task: tracing::Span) -> Option<Arc<Self>> {
        (!task.is_disabled()).then(|| Arc::new(Self { task, attempt: Mutex::new(tracing::Span::none()) }))
    }

    fn begin(&self, node: NodeIndex, rank: Rank, attempt: Attempt, waited: Duration) {
        self.task.record("node", node.0).record("rank", rank.0).record("attempts", attempt.0);
        self.task.record("queued_us", waited.as_micros() as u64);
        let none = tracing::field::Empty;
        *lock(&self.attempt) = tracing::debug_span!(
            target: "skyward::task", parent: &self.task, "attempt", attempt = attempt.0, node = node.0, rank = rank.0, ran_us = none,
        );
    }

    fn retry(&self, attempt: Attempt, error: &Error) {
        *lock(&self.attempt) = tracing::Span::none();
        tracing::warn!(target: "skyward::task", parent: &self.task, attempt = attempt.0, error = error.message(), "tried again");
    }

    fn finish(&self, outcome: &Outcome) {
        *lock(&self.attempt) = tracing::Span::none();
        let told = match outcome {
            Ok(_) => "returned",
            Err(error) if error.kind() == ErrorKind::Cancelled => "cancelled",
            Err(error) => {
                tracing::debug!(target: "skyward::task", parent: &self.task, error = error.message(), "failed");
                self.task.record("otel.status_code", "ERROR");
                "failed"
            }
        };
        self.task.record("outcome", told);
    }
}

/// The error of a task that failed by what it is says which payload it was.
fn named(error: Error, task: &Task) -> Error {
    if error.tries().is_empty() && !matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Stalled) {
        return error;
    }
    error.with_context("entry", task.source.entry()).with_context("payload", task.source.main())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, feature = "testkit", feature = "metrics"))]
mod tests;
