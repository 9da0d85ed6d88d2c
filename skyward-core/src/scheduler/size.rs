//! Nodes that come to a pool, and nodes that leave it.
//!
//! Nodes are numbered without gaps, so those that leave are the last ones. In a joined world nodes come and go all at once, between two generations.

use std::time::Instant;

use super::nodes::Record;
use super::state::Worker;
use super::{Action, Scheduler};
use crate::error::{Error, ErrorKind, WorkerExit};
use crate::ids::{NodeIndex, Rank, TaskId};

impl Scheduler {
    /// The nodes that take what comes.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// The workers of the nodes that take what comes.
    pub fn active_workers(&self) -> u32 {
        self.active * self.workers_per_node
    }

    /// Tasks that any worker may run, and that wait for one, calls among them.
    pub fn backlog(&self) -> usize {
        self.any.len() + self.families.queued()
    }

    /// The machines are not the client's own host: another one may be sound where one is sick.
    pub fn set_apart(&mut self, apart: bool) {
        self.apart = apart;
    }

    /// Since when a node has nothing to do; none while it has, or is not ready.
    pub fn idle_since(&self, node: NodeIndex) -> Option<Instant> {
        let workers = self.workers_of(node)?;
        let idle = |worker: &Worker| worker.idle_since.filter(|_| worker.ready && worker.load() == 0);
        let since: Option<Vec<Instant>> = workers.iter().map(idle).collect();
        since?.into_iter().max().filter(|_| !self.has_own(node))
    }

    /// A node comes in, behind the others or in the place of one that has left. Its workers are to be started.
    pub fn add_node(&mut self, node: NodeIndex) {
        debug_assert_eq!(node.0, self.active);
        self.active = node.0 + 1;
        let index = node.0 as usize;
        if index < self.nodes.len() {
            let queue = std::mem::take(&mut self.nodes[index].queue);
            self.nodes[index] = Record::default();
            self.nodes[index].queue = queue;
            return;
        }
        self.nodes.push(Record::default());
        for _ in 0..self.workers_per_node {
            self.workers.push(Worker { node: index, ..Worker::default() });
        }
    }

    /// The last node that takes what comes is to leave: it takes nothing new, and [`Action::NodeDrained`] says when it has finished what it has and what was submitted for it by name.
    pub fn leave(&mut self, node: NodeIndex) {
        debug_assert_eq!(node.0 + 1, self.active);
        let Some(record) = self.nodes.get_mut(node.0 as usize) else { return };
        record.leaving = true;
        record.told = false;
        self.active = node.0;
        self.departing.push(node);
        self.refresh_node(node);
        // What was submitted for it by name while it took nothing is done now.
        for rank in self.ranks_of(node) {
            if self.failed.is_none() && self.takes_more(rank) {
                self.look_later(rank);
            }
        }
    }

    /// A node that was to leave stays after all.
    pub fn stay(&mut self, node: NodeIndex) {
        debug_assert_eq!(node.0, self.active);
        let Some(record) = self.nodes.get_mut(node.0 as usize) else { return };
        record.leaving = false;
        self.active = node.0 + 1;
        self.refresh_node(node);
        self.look_all();
    }

    /// A node's machine will end: it takes nothing more, and [`Action::NodeDrained`] says when it has finished what it has. What is for it by name waits for its next machine.
    pub fn cordon(&mut self, node: NodeIndex) {
        let Some(record) = self.nodes.get_mut(node.0 as usize) else { return };
        record.cordoned = true;
        record.told = false;
        self.departing.push(node);
        self.refresh_node(node);
    }

    /// A node has another machine, or takes tasks after all.
    pub fn uncordon(&mut self, node: NodeIndex) {
        let Some(record) = self.nodes.get_mut(node.0 as usize) else { return };
        record.cordoned = false;
        self.refresh_node(node);
        self.look_all();
    }

    /// Whether a node is to leave.
    pub fn is_leaving(&self, node: NodeIndex) -> bool {
        self.nodes.get(node.0 as usize).is_some_and(|record| record.leaving)
    }

    /// Whether a node that is to leave, or whose machine will end, has nothing more to do.
    pub fn is_drained(&self, node: NodeIndex) -> bool {
        let (Some(record), Some(workers)) = (self.nodes.get(node.0 as usize), self.workers_of(node)) else {
            return false;
        };
        let no_more = match record.leaving {
            true => !self.has_own(node),
            false => record.cordoned,
        };
        no_more && workers.iter().all(|worker| worker.load() == 0)
    }

    /// The workers of a node are stopped now: they are not lost.
    pub fn retire(&mut self, node: NodeIndex) {
        for rank in self.ranks_of(node) {
            self.workers[rank.0 as usize].ready = false;
            self.forget_endings(rank);
            self.drop_helped(rank);
            self.refresh(rank);
        }
    }

    /// A node that was to leave is gone. Where it was the last one so are those before it that had gone already; `rows` is how many are left.
    pub fn remove_node(&mut self, node: NodeIndex, rows: u32) {
        self.retire(node);
        self.truncate(rows);
    }

    /// A joined world's size is to change: no task and no gang comes in, and [`Action::WorldIdle`] says when those that are there have ended.
    pub fn hold(&mut self) {
        self.held = true;
        self.told_idle = false;
    }

    /// The size does not change after all.
    pub fn release_world(&mut self) {
        self.held = false;
        self.look_all();
    }

    /// Whether a world waits for its size to change.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Whether a world whose size is to change has nothing more to do.
    pub fn is_world_idle(&self) -> bool {
        self.held
            && self.gang_table.is_empty()
            && self.counts.sent == 0
            && self.backlog.lost.is_empty()
            && self.backlog.orphans.is_empty()
            && (self.active..self.nodes.len() as u32).all(|node| !self.has_own(NodeIndex(node)))
    }

    /// An idle world has its first `stay` nodes, and those that are added now; all workers are to be started, as its next generation.
    pub fn reshape(&mut self, stay: u32) {
        debug_assert!(self.is_world_idle());
        for rank in self.ranks() {
            if self.is_ready(rank) {
                self.lose(rank, Error::worker_exited(rank, WorkerExit::WorldEnded), None);
            }
        }
        self.truncate(stay);
        self.held = false;
    }

    /// Says which nodes that leave, and whether the world that waits, have nothing more to do.
    pub(super) fn tell_departures(&mut self) {
        for node in std::mem::take(&mut self.departing) {
            if !self.joined && self.is_drained(node) && !std::mem::replace(&mut self.nodes[node.0 as usize].told, true)
            {
                self.actions.push(Action::NodeDrained { node });
            }
        }
        if self.held && !self.told_idle && self.is_world_idle() {
            self.told_idle = true;
            self.actions.push(Action::WorldIdle);
        }
    }

    /// What was submitted for a node alone that is lost while it leaves cannot be run.
    pub(super) fn fail_own(&mut self, now: Instant, node: NodeIndex, cause: &Error) {
        let what = format!("node {node} was lost while it was to leave the pool: {}", cause.message());
        let error = Error::new(ErrorKind::NodeLost, what).with_source(cause.clone());
        let ranks = self.ranks_of(node).map(|rank| &self.workers[rank.0 as usize].queue);
        let queues = ranks.chain(self.nodes.get(node.0 as usize).map(|record| &record.queue));
        let own: Vec<TaskId> = queues.flat_map(|queue| queue.iter(&self.tasks)).collect();
        for id in own {
            self.abandon(now, id, error.clone());
        }
    }

    fn truncate(&mut self, nodes: u32) {
        let (rows, workers) = (nodes as usize, (nodes * self.workers_per_node) as usize);
        let from = workers.min(self.workers.len()) as u32;
        for rank in (from..self.workers.len() as u32).map(Rank) {
            self.forget_endings(rank);
            self.drop_helped(rank);
            self.workers[rank.0 as usize].ready = false;
            self.refresh(rank);
        }
        self.workers.truncate(workers);
        self.nodes.truncate(rows);
        self.active = self.active.min(nodes);
    }

    fn refresh_node(&mut self, node: NodeIndex) {
        self.ranks_of(node).for_each(|rank| self.refresh(rank));
    }

    pub(super) fn ranks_of(&self, node: NodeIndex) -> impl Iterator<Item = Rank> + use<> {
        let (first, end) = (node.0 * self.workers_per_node, self.workers.len() as u32);
        (first.min(end)..(first + self.workers_per_node).min(end)).map(Rank)
    }

    fn workers_of(&self, node: NodeIndex) -> Option<&[Worker]> {
        let (first, count) = ((node.0 * self.workers_per_node) as usize, self.workers_per_node as usize);
        self.workers.get(first..first + count)
    }

    /// Whether tasks wait for this node, or for a worker of it, by name.
    fn has_own(&self, node: NodeIndex) -> bool {
        let workers = self.workers_of(node).unwrap_or_default();
        workers.iter().any(|worker| !worker.queue.is_empty())
            || self.nodes.get(node.0 as usize).is_some_and(|record| !record.queue.is_empty())
    }
}

#[cfg(test)]
mod tests;
