//! Keeps track of what a pool waits for.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::making::Made;
use super::shared::Shared;
use super::state::State;
use crate::compute::{PoolPhase, WaitingFor};
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

impl MakingMachine {
    pub(crate) fn begin(shared: &Arc<Shared>, launch: Launch) -> Self {
        shared.lock().making.machines.insert(launch.machine, Made::new(launch.node, None));
        Self { shared: Arc::clone(shared), launch }
    }

    pub(crate) fn step(&self, step: &'static str) {
        let mut made = Made::new(self.launch.node, Some(step));
        let mut state = self.shared.lock();
        if let Some(before) = state.making.machines.get(&self.launch.machine) {
            made.queued = (before.queued(Instant::now()), None);
        }
        state.making.machines.insert(self.launch.machine, made);
    }

    /// Records what the provider reports about a machine that is not running yet, and emits an
    /// event if the report has changed.
    pub(crate) fn on_report(&self, machine: &MachineId, report: &MachineReport) {
        let (now, text, node) = (Instant::now(), report.to_string(), self.launch.node);
        let is_news = {
            let mut state = self.shared.lock();
            let Some(made) = state.making.machines.get_mut(&self.launch.machine) else { return };
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
            if let Some(made) = shared.lock().making.machines.get_mut(&machine) {
                made.trouble = Some(error.clone());
            }
        }
    }
}

impl Drop for MakingMachine {
    fn drop(&mut self) {
        self.shared.lock().making.machines.remove(&self.launch.machine);
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
            let deadline = self.lock().making.deadline(began, limit, Some(machine));
            let late = match timeout_at(deadline, &mut ready).await {
                Ok(ready) => return Ok(ready),
                Err(late) => late,
            };
            if self.lock().making.deadline(began, limit, Some(machine)) <= deadline {
                return Err(late);
            }
        }
    }
}

impl State {
    /// Everything that the pool waits for, the machines first.
    pub(crate) fn waiting_for(&self) -> Vec<WaitingFor> {
        if self.life.phase() == PoolPhase::Closed {
            return Vec::new();
        }
        let mut all: Vec<WaitingFor> = self.making.machines.values().map(Made::waiting_for).collect();
        for (node, _) in self.nodes.iter().filter(|(node, _)| !self.fleet.has_left(*node)) {
            let loss = self.fleet.loss(node);
            // A node that was lost before it was to leave gets a machine for the work that it still
            // has.
            if self.fleet.is_draining(node) && (loss.is_none() || self.scheduler.is_drained(node)) {
                all.push(WaitingFor::Tasks { node });
                continue;
            }
            if let Some(cause) = loss {
                all.push(WaitingFor::Replacement { node, cause: cause.to_owned() });
                continue;
            }
            if self.fleet.is_away(node) {
                all.push(WaitingFor::Connection { node });
            }
            let ranks = self.scheduler.layout().ranks_of(node);
            let workers = ranks.filter(|rank| !self.scheduler.is_ready(*rank)).count() as u32;
            if workers > 0 {
                all.push(WaitingFor::Hooks { node, workers });
            }
        }
        // A pool that has failed or ends gives up what is under way, and ends all machines together.
        if self.scheduler.failure().is_none() {
            all.extend(self.fleet.is_held().then_some(WaitingFor::World));
            all.extend(self.fleet.dismissing().map(|machine| WaitingFor::End { machine }));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::layout::Layout;
    use crate::pool::fleet::Fleet;
    use crate::pool::tasks::replies::tests::pool;
    use crate::spec::Nodes;

    #[tokio::test]
    async fn a_pool_that_has_failed_waits_neither_for_its_world_nor_for_the_ends_of_machines() {
        let shared = pool();
        let mut fleet = Fleet::new(true, Layout::new(1), Nodes::fixed(1), vec![MachineNumber(0)], std::iter::empty());
        fleet.set_target(2);
        fleet.on_failed(MachineNumber(1));
        fleet.on_ready(MachineNumber(2));
        shared.lock().fleet = fleet;
        let waits = [WaitingFor::World, WaitingFor::End { machine: MachineNumber(1) }];
        assert_eq!(shared.lock().waiting_for(), waits);
        shared.act(|state, _| state.scheduler.close(Error::new(ErrorKind::Start, "no worker starts")));
        assert_eq!(shared.lock().waiting_for(), []);
    }
}
