//! Passes what payloads report while they run to their callers and to readers of events.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::after::After;
use super::shared::Shared;
use super::state::State;
use crate::event::PoolEvent;
use crate::ids::{Attempt, Generation, Rank, TaskId};
use crate::payload::{Report, Value};
use crate::pool::foreign::foreign;
use crate::worker::link::Sender;
use crate::worker::message::ToWorker;

/// A value that a worker has reported.
pub(crate) struct Reported {
    /// The run that has reported it; 0: a hook around the app.
    pub(crate) run: u64,
    pub(crate) sequence: u64,
    pub(crate) value: Bytes,
}

impl Shared {
    /// A worker has reported a value.
    pub(crate) fn on_report(
        self: &Arc<Self>,
        state: &mut State,
        now: Instant,
        rank: Rank,
        Reported { run, sequence, value }: Reported,
        after: &mut After,
    ) {
        let Some(row) = state.workers.get_mut(rank) else { return };
        if !row.session.on_report(sequence, value.len()) {
            return;
        }
        let generation = row.generation();
        let task = row.session.task(run).filter(|id| state.scheduler.has(rank, *id));
        state.effects.received(value.len());
        // Otherwise no caller waits for the task any more.
        if task.is_some() || run == 0 {
            state.scheduler.on_progress(now, rank);
            let report = state.report(task, rank, value);
            if self.events.has_readers() {
                state.effects.event(PoolEvent::Report(report.clone()));
            }
            let root = task.map(|id| state.scheduler.above(id).last().unwrap_or(id));
            let reader = root.and_then(|id| state.tasks.get(id)?.task.reports.as_ref());
            if let Some(reader) = reader {
                foreign(|| reader.send(report));
                let shared = Arc::downgrade(self);
                let row = state.workers.get_mut(rank).filter(|row| row.session.is_report_due());
                if let Some(row) = row
                    && reader.when_read(move || {
                        if let Some(shared) = shared.upgrade() {
                            shared.on_reports_read(rank, generation);
                        }
                    })
                {
                    row.session.withhold(run);
                }
            }
        } else if let Some(row) = state.workers.get_mut(rank) {
            row.session.release(run);
        }
        if state.workers.get(rank).is_some_and(|row| row.session.is_report_due()) {
            state.acknowledge(rank, after);
        }
    }

    /// The reader of a worker's reports has caught up.
    fn on_reports_read(&self, rank: Rank, generation: Generation) {
        let mut after = After::default();
        {
            let mut state = self.lock();
            if state.row(rank, generation).is_some() {
                state.acknowledge(rank, &mut after);
            }
        }
        after.flush.iter().for_each(Sender::flush);
    }
}

impl State {
    fn report(&self, task: Option<TaskId>, rank: Rank, value: Bytes) -> Report {
        let attempt = task.map_or(Attempt(1), |id| self.scheduler.attempt(id));
        Report::new(task, attempt, self.scheduler.node_of(rank), rank, Value::new(value, rank))
    }

    /// Acknowledges everything that has arrived from a worker.
    fn acknowledge(&mut self, rank: Rank, after: &mut After) {
        let Some(row) = self.workers.get_mut(rank) else { return };
        let sequence = row.session.acknowledge_all();
        self.push_to_worker(rank, ToWorker::Ack { sequence }, after);
    }
}

#[cfg(test)]
mod tests;
