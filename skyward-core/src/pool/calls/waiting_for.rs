//! Keeps track of what a pool waits for.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::in_progress::Made;
use super::shared::Shared;
use super::state::State;
use crate::compute::WaitingFor;
use crate::error::Error;
use crate::event::PoolEvent;
use crate::ids::{MachineId, MachineNumber};
use crate::pool::fleet::launch::Launch;
use crate::provider::{MachineReport, MachineState};

/// Marks a machine as being made ready, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct MakingMachine {
    shared: Arc<Shared>,
    launch: Launch,
}

/// Marks a machine as being ended, for as long as the value lives.
#[derive(Debug)]
pub(crate) struct EndingMachine {
    shared: Arc<Shared>,
    machine: MachineNumber,
}

impl MakingMachine {
    pub(crate) fn begin(shared: &Arc<Shared>, launch: Launch) -> Self {
        shared.lock().in_progress.making.insert(launch.machine, Made::new(launch.node, None));
        Self { shared: Arc::clone(shared), launch }
    }

    pub(crate) fn step(&self, step: &'static str) {
        let mut made = Made::new(self.launch.node, Some(step));
        let mut state = self.shared.lock();
        if let Some(before) = state.in_progress.making.get(&self.launch.machine) {
            made.queued = (before.queued(Instant::now()), None);
        }
        state.in_progress.making.insert(self.launch.machine, made);
    }

    /// Records what the provider reports about a machine that is not running yet, and emits an
    /// event if the report has changed.
    pub(crate) fn on_report(&self, machine: &MachineId, report: &MachineReport) {
        let (now, text, node) = (Instant::now(), report.to_string(), self.launch.node);
        let is_news = {
            let mut state = self.shared.lock();
            let Some(made) = state.in_progress.making.get_mut(&self.launch.machine) else { return };
            made.queued = match report.state {
                MachineState::Queued => (made.queued.0, Some(made.queued.1.unwrap_or(now))),
                // Nothing is concluded from an unknown state.
                MachineState::Unknown => made.queued,
                _ => (made.queued(now), None),
            };
            let waits = matches!(report.state, MachineState::Queued | MachineState::Starting);
            let before = std::mem::replace(&mut made.report, waits.then(|| text.clone()));
            waits && before.as_ref() != Some(&text)
        };
        if is_news {
            self.shared.emit(PoolEvent::NodeWaiting { node, machine: machine.clone(), report: text });
        }
    }

    /// Returns a function that records the error of the present step while the step is tried again.
    pub(crate) fn trouble(&self) -> impl Fn(&Error) + Send + Sync + 'static {
        let (shared, machine) = (Arc::clone(&self.shared), self.launch.machine);
        move |error| {
            if let Some(made) = shared.lock().in_progress.making.get_mut(&machine) {
                made.trouble = Some(error.clone());
            }
        }
    }
}

impl Drop for MakingMachine {
    fn drop(&mut self) {
        self.shared.lock().in_progress.making.remove(&self.launch.machine);
    }
}

impl Shared {
    /// Waits until a machine is ready, up to `limit` after `began`. The time for which the machine
    /// is queued does not count.
    ///
    /// # Cancel safety
    ///
    /// That of `ready`.
    pub(crate) async fn until_ready<F: Future + Unpin>(
        &self,
        began: Instant,
        limit: Duration,
        machine: MachineNumber,
        mut ready: F,
    ) -> std::result::Result<F::Output, Elapsed> {
        loop {
            let deadline = self.lock().in_progress.deadline(began, limit, Some(machine));
            let late = match timeout_at(deadline, &mut ready).await {
                Ok(ready) => return Ok(ready),
                Err(late) => late,
            };
            if self.lock().in_progress.deadline(began, limit, Some(machine)) <= deadline {
                return Err(late);
            }
        }
    }
}

impl EndingMachine {
    pub(crate) fn begin(shared: &Arc<Shared>, machine: MachineNumber) -> Self {
        shared.lock().in_progress.ending.insert(machine);
        Self { shared: Arc::clone(shared), machine }
    }
}

impl Drop for EndingMachine {
    fn drop(&mut self) {
        self.shared.lock().in_progress.ending.remove(&self.machine);
    }
}

impl State {
    /// Everything that the pool waits for, the machines first.
    pub(crate) fn waiting_for(&self) -> Vec<WaitingFor> {
        let in_progress = &self.in_progress;
        let mut all: Vec<WaitingFor> = in_progress.making.values().map(Made::waiting_for).collect();
        for (node, row) in self.rows() {
            // A node that was lost before it was to leave gets a machine for the work that it still
            // has.
            let lost = in_progress.lost.get(&node);
            if self.scheduler.is_draining(node) && (lost.is_none() || self.scheduler.is_drained(node)) {
                // A node that has left is nothing to wait for, even if a node behind it has not
                // left.
                let leaves = row.agent.is_some() || lost.is_some();
                all.extend(leaves.then_some(WaitingFor::Tasks { node }));
                continue;
            }
            if let Some(cause) = lost {
                all.push(WaitingFor::Replacement { node, cause: cause.clone() });
                continue;
            }
            if in_progress.away.contains(&node) {
                all.push(WaitingFor::Connection { node });
            }
            let ranks = self.scheduler.layout().ranks_of(node);
            let workers = ranks.filter(|rank| !self.scheduler.is_ready(*rank)).count() as u32;
            if workers > 0 {
                all.push(WaitingFor::Hooks { node, workers });
            }
        }
        all.extend(self.scheduler.is_held().then_some(WaitingFor::World));
        all.extend(in_progress.ending.iter().map(|machine| WaitingFor::End { machine: *machine }));
        all
    }
}
