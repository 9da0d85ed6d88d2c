//! The state of a running pool: the fleet, the scheduler, the tasks without an outcome, and the
//! links to nodes and workers.

use std::time::Instant;

use super::after::After;
use super::effect::{Effect, Effects};
use super::entries::Entries;
use super::held::{Held, Unread};
use super::life::Life;
use super::machine_ends::MachineEnds;
use super::making::Making;
use super::node_rows::NodeRows;
use super::rendezvous::Rendezvous;
use super::worker::WorkerRow;
use super::worker_rows::WorkerRows;
use crate::compute::{NodeStatus, PoolPhase};
use crate::error::{Result, WorkerExit};
use crate::ids::{Generation, NodeIndex, Rank, TaskId};
use crate::pool::fleet::Fleet;
use crate::scheduler::Scheduler;
use crate::spec::Limits;
use crate::worker::message::{Awaited, Signal, ToAgent, ToWorker};

pub(crate) struct State {
    pub(crate) scheduler: Scheduler,
    pub(crate) life: Life,
    pub(crate) rendezvous: Rendezvous,
    /// The decisions about the nodes. Only the driver changes them.
    pub(crate) fleet: Fleet,
    pub(crate) nodes: NodeRows,
    pub(crate) workers: WorkerRows,
    pub(crate) tasks: Entries,
    /// The machines that are being made ready.
    pub(crate) making: Making,
    pub(crate) machine_ends: MachineEnds,
    /// Outcomes whose output has not arrived yet.
    pub(crate) held: Held<Effect>,
    pub(super) timeout: Option<Instant>,
    /// Reports to deliver after the state is unlocked.
    pub(super) effects: Effects,
}

impl State {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            scheduler: Scheduler::new(0, 0, false, limits),
            life: Life::default(),
            rendezvous: Rendezvous::default(),
            fleet: Fleet::default(),
            nodes: NodeRows::default(),
            workers: WorkerRows::default(),
            tasks: Entries::default(),
            making: Making::default(),
            machine_ends: MachineEnds::default(),
            held: Held::default(),
            timeout: None,
            effects: Effects::default(),
        }
    }

    /// The row of a rank, if it belongs to this generation.
    pub(crate) fn row(&mut self, rank: Rank, generation: Generation) -> Option<&mut WorkerRow> {
        self.workers.get_mut(rank).filter(|row| row.generation() == generation)
    }

    /// How far the client has read the streams that a rank's worker runs.
    pub(crate) fn streams(&self, rank: Rank) -> Vec<Awaited> {
        let Some(row) = self.workers.get(rank) else { return Vec::new() };
        let awaited = |(run, task)| Some(self.tasks.get(task)?.items()?.awaited(run));
        row.session.sent().filter_map(awaited).collect()
    }

    /// A node has left: messages that still arrive from it are ignored.
    pub(crate) fn leave(&mut self, node: NodeIndex) {
        for rank in self.scheduler.layout().ranks_of(node) {
            self.workers.leave(rank);
            self.held.release(rank);
        }
        self.nodes.clear(node);
    }

    pub(crate) fn truncate(&mut self, rows: u32) {
        self.nodes.truncate(rows);
        self.workers.truncate(self.scheduler.layout().workers(rows));
    }

    /// The status of each node, in order.
    pub(super) fn node_statuses(&self) -> impl Iterator<Item = NodeStatus> {
        self.nodes.iter().map(|(node, row)| NodeStatus {
            node,
            machine: row.machine.id.clone(),
            address: row.place.address.clone(),
            ready: row.agent.is_some(),
            draining: self.fleet.is_draining(node),
            ending: self.machine_ends.notices.announced(&row.machine.id).map(|notice| notice.reason),
        })
    }

    /// A worker has not begun these tasks, and never will.
    pub(crate) fn on_not_begun(&mut self, now: Instant, rank: Rank, tasks: &[TaskId]) {
        for task in tasks {
            self.tasks.take_back(now, *task);
        }
        self.scheduler.on_not_begun(now, rank, tasks);
    }

    /// Asks the agent of a worker to keep the worker from beginning the runs that were sent so far;
    /// [`Shared::on_recalled`](super::shared::Shared::on_recalled) handles the answer.
    pub(crate) fn recall(&mut self, rank: Rank, after: &mut After) {
        let Some(row) = self.workers.get_mut(rank) else { return };
        let Some(pid) = row.process.pid() else { return };
        let upto = row.session.recall();
        row.requests.recall(upto);
        self.push_to_agent(rank, |generation, worker| ToAgent::Recall { generation, worker, pid, upto }, after);
    }

    pub(crate) fn may_submit(&self) -> Result<()> {
        match (self.life.phase(), self.scheduler.failure()) {
            (PoolPhase::Ready, None) => Ok(()),
            (PoolPhase::Ready, Some(error)) => Err(error.clone()),
            _ => Err(self.life.refusal()),
        }
    }

    pub(crate) fn push_to_worker(&mut self, rank: Rank, message: ToWorker<'_>, after: &mut After) {
        let row = self.workers.get(rank);
        let Some(link) = row.and_then(|row| row.connection.link().cloned()) else { return };
        if let Ok((head, body)) = message.encode()
            && link.push(&head, body).is_ok()
        {
            after.flush.push(link);
        }
    }

    pub(crate) fn kill(&mut self, rank: Rank, reason: WorkerExit, after: &mut After) {
        if let Some(row) = self.workers.get_mut(rank) {
            row.requests.kill(reason);
        }
        self.signal(rank, Signal::Kill, after);
    }

    pub(crate) fn signal(&mut self, rank: Rank, signal: Signal, after: &mut After) {
        self.push_to_agent(rank, |generation, worker| ToAgent::Signal { generation, worker, signal }, after);
    }

    /// Sends the agent of a worker a message about that worker, which is named by its generation
    /// and by its number on the node.
    fn push_to_agent(&mut self, rank: Rank, message: impl FnOnce(u64, u32) -> ToAgent, after: &mut After) {
        let Some(generation) = self.workers.get(rank).map(|row| row.generation().0) else { return };
        let layout = self.scheduler.layout();
        let (node, worker) = (layout.node(rank), layout.worker(rank));
        let Some(agent) = self.nodes.get(node).and_then(|row| row.agent.as_ref()) else { return };
        if let Ok((head, body)) = message(generation, worker).encode()
            && agent.push(&head, body).is_ok()
        {
            after.flush.push(agent.clone());
        }
    }

    /// Delivers a report after the output that is still missing.
    pub(crate) fn emit_after(&mut self, now: Instant, unread: Option<Unread>, effect: Effect) {
        let row = |unread: &Unread| self.workers.get(unread.rank);
        match unread.filter(|unread| row(unread).is_some_and(|row| !row.has_emitted(unread))) {
            Some(unread) => self.held.hold(now, unread, effect),
            None => self.effects.push(effect),
        }
    }

    /// Delivers the reports whose output has arrived, and those that have waited for their output
    /// for too long.
    pub(crate) fn emit_held(&mut self, now: Instant) {
        for rank in self.held.overdue(now) {
            self.effects.push(Effect::OutputLate(rank));
            if let Some(row) = self.workers.get_mut(rank) {
                row.output.on_late();
            }
        }
        self.effects.extend(self.held.take_ready());
    }

    /// When the next timer is due.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let calls = self.tasks.next_due();
        self.scheduler.next_timeout().into_iter().chain(self.held.next_due()).chain(calls).min()
    }

    /// Delivers the reports about calls that are due.
    pub(crate) fn emit_calls(&mut self, now: Instant) {
        self.effects.extend(self.tasks.take_due(now).into_iter().map(Effect::Event));
    }

    /// A try of a task is over: delivers the last report about the calls below it, if there is one.
    pub(crate) fn conclude_calls(&mut self, id: TaskId) {
        self.effects.extend(self.tasks.conclude_calls(id).map(Effect::Event));
    }
}
