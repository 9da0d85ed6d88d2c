//! The spans of a task, for `tracing`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::ErrorKind;
use crate::ids::{Attempt, NodeIndex, Rank};
use crate::payload::Outcome;

/// The spans of a task: `task`, from its submission to its outcome, and within it `attempt`, from
/// the beginning on a worker to the end of the try.
pub(crate) struct Spans {
    task: tracing::Span,
    attempt: Mutex<tracing::Span>,
}

impl Spans {
    /// The spans of a submitted task; `None` if no subscriber wants them.
    pub(crate) fn of(task: tracing::Span) -> Option<Arc<Self>> {
        (!task.is_disabled()).then(|| Arc::new(Self { task, attempt: Mutex::new(tracing::Span::none()) }))
    }

    pub(super) fn begin(&self, node: NodeIndex, rank: Rank, attempt: Attempt, waited: Duration) {
        self.task.record("node", node.0).record("rank", rank.0).record("attempts", attempt.0);
        self.task.record("queued_us", waited.as_micros() as u64);
        let none = tracing::field::Empty;
        *self.attempt() = tracing::debug_span!(
            target: "skyward::task", parent: &self.task, "attempt", attempt = attempt.0, node = node.0, rank = rank.0, ran_us = none,
        );
    }

    /// Records how long the payload ran in this try.
    pub(super) fn ran(&self, ran: Duration) {
        self.attempt().record("ran_us", ran.as_micros() as u64);
    }

    pub(super) fn retry(&self) {
        *self.attempt() = tracing::Span::none();
    }

    pub(super) fn finish(&self, outcome: &Outcome) {
        *self.attempt() = tracing::Span::none();
        let recorded = match outcome {
            Ok(_) => "returned",
            Err(error) if error.kind() == ErrorKind::Cancelled => "cancelled",
            Err(error) => {
                tracing::debug!(target: "skyward::task", parent: &self.task, error = error.summary(), "failed");
                self.task.record("otel.status_code", "ERROR");
                "failed"
            }
        };
        self.task.record("outcome", recorded);
    }

    fn attempt(&self) -> MutexGuard<'_, tracing::Span> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
