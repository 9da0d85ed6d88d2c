//! Delivers reports about changes of the state. They are collected while the state is locked, and
//! delivered after it is unlocked, in the same order, by one thread at a time.
//!
//! Subscribers of `tracing` and recorders of metrics are code of the user. The state is unlocked
//! while they run, so they may take long, and may call the pool. A panic in them costs the report
//! alone, and no outcome.

use std::time::Duration;

use super::effect::{Effect, Numbers};
use super::log::log;
use super::poison::Content;
use super::shared::Shared;
use super::task::{Entry, Reply};
use super::timing::OUTPUT_SILENCE;
use crate::error::{Error, ErrorKind, RankStacks, silence};
use crate::event::PoolEvent;
use crate::ids::TaskId;
use crate::payload::{Outcome, Source, Task};
use crate::pool::foreign::foreign;

impl Shared {
    /// Emits an event.
    pub(crate) fn emit(&self, event: PoolEvent) {
        self.outbox.push(Effect::Event(event));
        if self.deliver() {
            self.leave_rest();
        }
    }

    /// Delivers a slice of the waiting reports, unless another thread is delivering. Returns
    /// whether the caller must see to the rest.
    pub(super) fn deliver(&self) -> bool {
        self.outbox.deliver(|effect| foreign(|| self.deliver_one(effect)))
    }

    fn deliver_one(&self, effect: Effect) {
        match effect {
            Effect::Event(event) => self.deliver_event(event),
            Effect::Began { task, attempt, node, rank, waited, spans, first } => {
                if first {
                    self.metrics.began(waited);
                }
                if let Some(spans) = spans {
                    spans.begin(node, rank, attempt, waited);
                }
                if self.events.has_readers() {
                    self.deliver_event(PoolEvent::TaskStarted { task, attempt, rank });
                }
            }
            Effect::Tried { took, ran, spans } => {
                self.metrics.tried(took, ran);
                if let Some(spans) = spans {
                    spans.ran(ran);
                }
            }
            Effect::Retried { task, attempt, error, spans } => {
                if let Some(spans) = spans {
                    spans.retry();
                }
                self.deliver_event(PoolEvent::TaskRetried { task, attempt, error });
            }
            Effect::Finished { task, entry, outcome } => self.deliver_outcome(task, *entry, outcome),
            Effect::Answered { micros, bytes } => self.metrics.answered(micros, bytes),
            Effect::Bytes { sent, received } => {
                self.metrics.sent(sent);
                self.metrics.received(received);
            }
            Effect::Tasks(Numbers { queued, running, calls_waiting, calls_running }) => {
                self.metrics.tasks(queued, running);
                self.metrics.calls(calls_waiting, calls_running);
            }
            Effect::Overwritten { rank, run } => {
                tracing::error!(
                    pool = %self.pool, rank = rank.0, run,
                    "a payload has overwritten its worker's account file: the worker refused a task that the client had not recalled; the pool kills the worker"
                );
            }
            Effect::OutputLate(rank) => {
                tracing::warn!(pool = %self.pool, rank = rank.0, "the output of tasks did not arrive within {OUTPUT_SILENCE:?} after their results");
            }
            Effect::Stalled { task, source, silent, stacks } => self.deliver_stall(task, &source, silent, stacks),
            Effect::WorldLost(rank) => {
                tracing::warn!(pool = %self.pool, rank = rank.0, "a worker of the world was lost; all workers of the world are restarted");
            }
        }
    }

    fn deliver_event(&self, event: PoolEvent) {
        self.metrics.on_event(&event);
        // A panic in a subscriber costs the line, and not the event.
        foreign(|| log(&self.pool, &event, || self.lock().life.phase().is_ending()));
        self.events.send(event);
    }

    fn deliver_stall(&self, task: TaskId, source: &Source, silent: Duration, stacks: Vec<RankStacks>) {
        let (entry, payload) = (source.entry().to_owned(), source.main().to_owned());
        let message = silence(silent, &stacks);
        self.deliver_event(PoolEvent::TaskStalled { task, entry, payload, silent, message, stacks: stacks.into() });
    }

    fn deliver_outcome(&self, task: TaskId, entry: Entry, outcome: Outcome) {
        let outcome = outcome.map_err(|error| named(error, &entry.task));
        self.metrics.ended(&outcome);
        if let Some(spans) = entry.spans {
            foreign(|| spans.finish(&outcome));
            // A second panic while the first one unwinds would abort the process.
            foreign(|| drop(spans));
        }
        match &outcome {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Cancelled => self.deliver_event(PoolEvent::TaskCancelled { task }),
            Err(error) => {
                self.deliver_event(PoolEvent::TaskFailed { task, error: error.clone() });
                if error.kind() == ErrorKind::Poisoned {
                    self.refused().add(Content::of(&entry.task), error.clone());
                }
            }
        }
        match entry.reply {
            Reply::Handle(reply) => drop(reply.send(outcome)),
            // The payload has received the outcome already.
            Reply::Caller(..) => {}
        }
    }
}

/// Adds the payload to an error that is the task's own fault.
fn named(error: Error, task: &Task) -> Error {
    if error.tries().is_empty() && !matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::Stalled) {
        return error;
    }
    error.with_context("entry", task.source.entry()).with_context("payload", task.source.main())
}

#[cfg(all(test, feature = "metrics"))]
mod tests;
