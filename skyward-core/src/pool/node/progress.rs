//! Reports the progress of a machine that is made ready, as events, spans and metrics.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::bootstrap::StepEvent;
use crate::error::Result;
use crate::event::PoolEvent;
use crate::ids::{MachineId, NodeIndex};
use crate::pool::fleet::launch::Launch;
use crate::pool::tasks::shared::Shared;

/// The steps of making one machine ready.
pub(crate) struct Steps<'a> {
    shared: &'a Shared,
    node: NodeIndex,
    /// The span of the machine. It is not entered: connections that are made meanwhile live on, and
    /// would keep it open.
    span: Span,
    /// The span of the step that runs.
    running: Mutex<Span>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(shared: &'a Shared, launch: Launch) -> Self {
        let (node, attempt, none) = (launch.node, launch.attempt.0, tracing::field::Empty);
        let span = tracing::info_span!(target: "skyward::pool", "node", node = node.0, attempt, machine = none);
        Self { shared, node, span, running: Mutex::new(Span::none()) }
    }

    /// Records the id of the launched machine.
    pub(crate) fn on_machine(&self, machine: &MachineId) {
        self.span.record("machine", machine.as_str());
    }

    /// Runs a step on the client: with a span and a duration, without an event of its own.
    pub(crate) async fn time<T>(&self, step: &'static str, what: impl Future<Output = Result<T>>) -> Result<T> {
        let (began, span) = (Instant::now(), self.step(step));
        let done = what.instrument(span.clone()).await;
        match &done {
            Ok(_) => self.shared.metrics.step(step, began.elapsed()),
            Err(_) => drop(span.record("otel.status_code", "ERROR")),
        }
        done
    }

    /// Reports an event of the machine.
    pub(crate) fn on_event(&self, event: StepEvent) {
        let (shared, node) = (self.shared, self.node);
        match event {
            StepEvent::Started { step } => {
                *self.running() = self.step(step);
                shared.emit(PoolEvent::BootstrapStep { node, step });
            }
            // The agent's first line is meant for this program, not for the user.
            StepEvent::Line { step: "agent", .. } => {}
            StepEvent::Line { step, line } => shared.emit(PoolEvent::BootstrapLine { node, step, line }),
            StepEvent::Finished { step, took } => {
                tracing::debug!(pool = %shared.pool, node = node.0, step, ?took, "step finished");
                shared.metrics.step(step, took);
                *self.running() = Span::none();
            }
        }
    }

    /// Marks the step that runs, if one does, as failed.
    pub(crate) fn on_failure(&self) {
        self.running().record("otel.status_code", "ERROR");
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Span> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, step: &'static str) -> Span {
        let failed = tracing::field::Empty;
        tracing::info_span!(target: "skyward::pool", parent: &self.span, "step", step, otel.status_code = failed)
    }
}
