//! Nodes that join a pool, and nodes that leave it.
//!
//! Nodes are numbered without gaps, so the last nodes leave first. In a joined world, nodes join
//! and leave together, between two generations.

use std::time::Instant;

use super::eligible::Eligible;
use super::node::Record;
use super::worker::Worker;
use super::{Action, Scheduler};
use crate::error::{Error, WorkerExit};
use crate::ids::{NodeIndex, Rank};
use crate::layout::Layout;

impl Scheduler {
    /// The number of nodes that take any task. A node that joins counts when it has been
    /// [added](Self::add_node).
    pub fn active(&self) -> u32 {
        self.eligible.active.min(self.nodes.len() as u32)
    }

    /// The number of workers on nodes that take any task.
    pub fn active_workers(&self) -> u32 {
        self.layout.workers(self.active())
    }

    /// The number of tasks that any worker may run and that wait for one, including calls.
    pub fn backlog(&self) -> usize {
        self.any.len() + self.families.queued()
    }

    /// Since when a node has no tasks; `None` while it has some, or is not ready.
    pub fn idle_since(&self, node: NodeIndex) -> Option<Instant> {
        let workers = self.workers_of(node)?;
        let idle = |worker: &Worker| worker.idle_since.filter(|_| worker.ready && worker.load() == 0);
        let since: Option<Vec<Instant>> = workers.iter().map(idle).collect();
        since?.into_iter().max().filter(|_| !self.has_own(node))
    }

    /// Other nodes take tasks than before. [`Action::NodeDrained`] reports when a node that takes no
    /// more tasks has finished those that it has, and [`Action::WorldIdle`] when a held world has.
    pub fn follow(&mut self, eligible: Eligible) {
        if eligible == self.eligible {
            return;
        }
        let before = std::mem::replace(&mut self.eligible, eligible);
        for node in (0..self.nodes.len() as u32).map(NodeIndex) {
            if before.takes(node) != self.eligible.takes(node) {
                self.nodes[node.0 as usize].reported = false;
                self.departing.push(node);
                self.ranks_of(node).for_each(|rank| self.refresh(rank));
                self.look_on(node);
            }
        }
        if before.held != self.eligible.held {
            self.reported_idle = false;
            self.look_all();
        }
    }

    /// A node joins, behind the others or in the place of one that has left. Its workers must be
    /// started.
    pub fn add_node(&mut self, node: NodeIndex) {
        let index = node.0 as usize;
        if index < self.nodes.len() {
            let queue = std::mem::take(&mut self.nodes[index].queue);
            self.nodes[index] = Record::default();
            self.nodes[index].queue = queue;
            return;
        }
        self.nodes.push(Record::default());
        for _ in 0..self.layout.workers_per_node() {
            self.workers.push(Worker { node: index, ..Worker::default() });
        }
    }

    /// Whether a node is draining, or has left: it takes only tasks that name it.
    pub(super) fn is_draining(&self, node: NodeIndex) -> bool {
        self.eligible.is_draining(node)
    }

    /// Whether the machine of a node will end.
    pub(super) fn is_cordoned(&self, node: usize) -> bool {
        self.eligible.cordoned.contains(&NodeIndex(node as u32))
    }

    /// Whether a node takes no tasks that any node may run.
    pub(super) fn is_leaving(&self, node: usize) -> bool {
        self.is_draining(NodeIndex(node as u32)) || self.is_cordoned(node)
    }

    /// Whether a node that is draining, or whose machine will end, has no more tasks.
    pub fn is_drained(&self, node: NodeIndex) -> bool {
        let Some(workers) = self.workers_of(node) else { return false };
        let no_more = match self.is_draining(node) {
            true => !self.has_own(node),
            false => self.is_cordoned(node.0 as usize),
        };
        no_more && workers.iter().all(|worker| worker.load() == 0)
    }

    /// The workers of a node are being stopped: that is not a loss.
    pub fn retire(&mut self, node: NodeIndex) {
        for rank in self.ranks_of(node) {
            self.workers[rank.0 as usize].ready = false;
            self.forget_interrupts(rank);
            self.drop_helped(rank);
            self.refresh(rank);
        }
    }

    /// A drained node is gone. `rows` is how many nodes are left; if the node was the last one,
    /// nodes before it that had gone already are removed too.
    pub fn remove_node(&mut self, node: NodeIndex, rows: u32) {
        self.retire(node);
        self.truncate(rows);
    }

    /// Whether the world waits for a resize. A scheduler that takes no tasks any more waits for none.
    pub fn is_held(&self) -> bool {
        self.eligible.held && self.failed.is_none()
    }

    /// Whether the world waits for a resize and has no more tasks.
    pub fn is_world_idle(&self) -> bool {
        self.is_held()
            && self.gang_table.is_empty()
            && self.counts.sent == 0
            && self.backlog.lost.is_empty()
            && self.backlog.orphans.is_empty()
            && (self.active()..self.nodes.len() as u32).all(|node| !self.has_own(NodeIndex(node)))
    }

    /// A held world that is idle keeps its first `stay` nodes, and new nodes may be added now. All
    /// workers must be started, as its next generation.
    pub fn reshape(&mut self, stay: u32) {
        // Another thread may have made the pool fail since the driver looked.
        debug_assert!(self.failed.is_some() || self.is_world_idle());
        for rank in self.ranks() {
            if self.is_ready(rank) {
                self.lose(rank, Error::worker_exited(rank, WorkerExit::WorldEnded), None);
            }
        }
        self.truncate(stay);
        self.reported_idle = false;
    }

    /// Emits actions for draining nodes, and for a world that waits for a resize, that have no more
    /// tasks.
    pub(super) fn report_departures(&mut self) {
        for node in std::mem::take(&mut self.departing) {
            if !self.joined
                && self.is_drained(node)
                && !std::mem::replace(&mut self.nodes[node.0 as usize].reported, true)
            {
                self.actions.push(Action::NodeDrained { node });
            }
        }
        if !self.reported_idle && self.is_world_idle() {
            self.reported_idle = true;
            self.actions.push(Action::WorldIdle);
        }
    }

    fn truncate(&mut self, nodes: u32) {
        let (rows, workers) = (nodes as usize, self.layout.workers(nodes) as usize);
        let from = workers.min(self.workers.len()) as u32;
        for rank in (from..self.workers.len() as u32).map(Rank) {
            self.forget_interrupts(rank);
            self.unwatch_alone(rank);
            self.drop_helped(rank);
            self.workers[rank.0 as usize].ready = false;
            self.refresh(rank);
        }
        self.workers.truncate(workers);
        self.nodes.truncate(rows);
    }

    /// The mapping from ranks to nodes and workers.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) fn ranks_of(&self, node: NodeIndex) -> impl Iterator<Item = Rank> + use<> {
        self.layout.rows_of(node, self.workers.len()).map(|row| Rank(row as u32))
    }

    fn workers_of(&self, node: NodeIndex) -> Option<&[Worker]> {
        let rows = self.layout.rows_of(node, self.workers.len());
        (rows.len() == self.layout.workers_per_node() as usize).then(|| &self.workers[rows])
    }

    /// Whether tasks wait that name this node, or a worker of it.
    fn has_own(&self, node: NodeIndex) -> bool {
        let workers = self.workers_of(node).unwrap_or_default();
        workers.iter().any(|worker| !worker.queue.is_empty())
            || self.nodes.get(node.0 as usize).is_some_and(|record| !record.queue.is_empty())
    }
}

#[cfg(test)]
mod tests;
