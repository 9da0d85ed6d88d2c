//! The state of a running pool: the fleet, the scheduler, the tasks without an outcome, and the
//! links to nodes and workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::after::After;
use super::effect::{Effect, Effects};
use super::entries::Entries;
use super::held::{Held, Unread};
use super::life::Life;
use super::machine_ends::MachineEnds;
use super::making::Making;
use super::rendezvous::Rendezvous;
use super::worker::{WorkerSlot, slots_of};
use crate::compute::{NodeStatus, PoolPhase};
use crate::error::{Result, WorkerExit};
use crate::ids::{Generation, NodeIndex, Rank, TaskId};
use crate::pool::environment::Environment;
use crate::pool::fleet::Fleet;
use crate::provider::{Machine, Place};
use crate::scheduler::Scheduler;
use crate::spec::Limits;
use crate::worker::link::Sender;
use crate::worker::message::{Awaited, Signal, ToAgent, ToWorker};

/// What messages to a node and the status of a pool need of the node.
pub(crate) struct NodeRow {
    pub(crate) machine: Arc<Machine>,
    pub(crate) place: Arc<Place>,
    /// The link to the node's agent; `None` if the node is lost or has left.
    pub(crate) agent: Option<Sender>,
    /// What is installed there; `None` if the node is lost or has left, and no other machine was
    /// admitted to its place yet.
    pub(crate) environment: Option<Environment>,
}

pub(crate) struct State {
    pub(crate) scheduler: Scheduler,
    pub(crate) life: Life,
    pub(crate) rendezvous: Rendezvous,
    /// The decisions about the nodes. Only the driver changes them.
    pub(crate) fleet: Fleet,
    pub(crate) nodes: Vec<NodeRow>,
    pub(crate) workers: Vec<WorkerSlot>,
    pub(crate) tasks: Entries,
    /// The machines that are being made ready.
    pub(crate) making: Making,
    pub(crate) machine_ends: MachineEnds,
    /// Outcomes whose output has not arrived yet.
    pub(crate) held: Held<Effect>,
    /// How many bytes the workers of ranks that have left had written, and in which generation.
    pub(crate) written: BTreeMap<u32, (Generation, [u64; 2])>,
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
            nodes: Vec::new(),
            workers: Vec::new(),
            tasks: Entries::default(),
            making: Making::default(),
            machine_ends: MachineEnds::default(),
            held: Held::default(),
            written: BTreeMap::new(),
            timeout: None,
            effects: Effects::default(),
        }
    }

    /// The slot of a rank, if it belongs to this generation.
    pub(crate) fn slot(&mut self, rank: Rank, generation: Generation) -> Option<&mut WorkerSlot> {
        self.workers.get_mut(rank.0 as usize).filter(|slot| slot.generation() == generation)
    }

    /// How far the client has read the streams that a rank's worker runs.
    pub(crate) fn streams(&self, rank: Rank) -> Vec<Awaited> {
        let Some(slot) = self.workers.get(rank.0 as usize) else { return Vec::new() };
        let awaited = |(run, task)| Some(self.tasks.get(task)?.items()?.awaited(run));
        slot.session.sent().filter_map(awaited).collect()
    }

    /// A node has left: messages that still arrive from it are ignored.
    pub(crate) fn leave(&mut self, node: NodeIndex) {
        for (rank, slot) in slots_of(&mut self.workers, self.scheduler.layout(), node) {
            slot.leave(WorkerExit::Left);
            self.held.release(rank);
            self.written.insert(rank.0, (slot.generation(), slot.output.written()));
        }
        self.clear_row(node);
    }

    /// A node has no machine now.
    pub(super) fn clear_row(&mut self, node: NodeIndex) {
        if let Some(row) = self.nodes.get_mut(node.0 as usize) {
            row.agent = None;
            row.environment = None;
        }
    }

    pub(crate) fn truncate(&mut self, rows: u32) {
        self.nodes.truncate(rows as usize);
        self.workers.truncate(self.scheduler.layout().workers(rows) as usize);
    }

    /// The nodes with their rows, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (NodeIndex, &NodeRow)> {
        (0..).map(NodeIndex).zip(&self.nodes)
    }

    /// The status of each node, in order.
    pub(super) fn node_statuses(&self) -> impl Iterator<Item = NodeStatus> {
        self.rows().map(|(node, row)| NodeStatus {
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
        let Some(slot) = self.workers.get_mut(rank.0 as usize) else { return };
        let Some(pid) = slot.process.pid() else { return };
        let upto = slot.session.recall();
        slot.requests.recall(upto);
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
        let slot = self.workers.get(rank.0 as usize);
        let Some(link) = slot.and_then(|slot| slot.connection.link().cloned()) else { return };
        if let Ok((head, body)) = message.encode()
            && link.push(&head, body).is_ok()
        {
            after.flush.push(link);
        }
    }

    pub(crate) fn kill(&mut self, rank: Rank, reason: WorkerExit, after: &mut After) {
        if let Some(slot) = self.workers.get_mut(rank.0 as usize) {
            slot.requests.kill(reason);
        }
        self.signal(rank, Signal::Kill, after);
    }

    pub(crate) fn signal(&mut self, rank: Rank, signal: Signal, after: &mut After) {
        self.push_to_agent(rank, |generation, worker| ToAgent::Signal { generation, worker, signal }, after);
    }

    /// Sends the agent of a worker a message about that worker, which is named by its generation
    /// and by its number on the node.
    fn push_to_agent(&mut self, rank: Rank, message: impl FnOnce(u64, u32) -> ToAgent, after: &mut After) {
        let Some(generation) = self.workers.get(rank.0 as usize).map(|slot| slot.generation().0) else { return };
        let layout = self.scheduler.layout();
        let (node, worker) = (layout.node(rank), layout.worker(rank));
        let Some(agent) = self.nodes.get(node.0 as usize).and_then(|row| row.agent.as_ref()) else { return };
        if let Ok((head, body)) = message(generation, worker).encode()
            && agent.push(&head, body).is_ok()
        {
            after.flush.push(agent.clone());
        }
    }

    /// Delivers a report after the output that is still missing.
    pub(crate) fn emit_after(&mut self, now: Instant, unread: Option<Unread>, effect: Effect) {
        let slot = |unread: &Unread| self.workers.get(unread.rank.0 as usize);
        match unread.filter(|unread| slot(unread).is_some_and(|slot| !slot.has_emitted(unread))) {
            Some(unread) => self.held.hold(now, unread, effect),
            None => self.effects.push(effect),
        }
    }

    /// Delivers the reports whose output has arrived, and those that have waited for their output
    /// for too long.
    pub(crate) fn emit_held(&mut self, now: Instant) {
        for rank in self.held.overdue(now) {
            self.effects.push(Effect::OutputLate(rank));
            if let Some(slot) = self.workers.get_mut(rank.0 as usize) {
                slot.output.on_late();
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
