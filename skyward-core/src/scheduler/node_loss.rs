//! Lost nodes: what becomes of their tasks.

use std::time::{Duration, Instant};

use super::Scheduler;
use crate::error::{Error, ErrorKind};
use crate::ids::{NodeIndex, TaskId};

impl Scheduler {
    /// A node's machine, or its replacement, is lost. Each task that ran there is tried again by
    /// its cause, or fails.
    pub fn on_node_lost(&mut self, now: Instant, node: NodeIndex, cause: &Error) {
        for rank in self.ranks_of(node) {
            if self.is_ready(rank) {
                self.lose(rank, Error::node_lost(node, rank, cause.clone()), None);
            }
        }
        self.end_world();
        self.hand_on();
        self.work(now);
        if self.is_draining(node) && !self.joined {
            self.fail_own(now, node, &format!("node {node} was lost while it was draining"), cause);
        }
        if let Some(record) = self.nodes.get_mut(node.0 as usize) {
            record.ready_since = None;
        }
    }

    /// For how long the machine of a node has been ready; zero if it is not.
    pub fn lasted(&self, now: Instant, node: NodeIndex) -> Duration {
        let since = self.nodes.get(node.0 as usize).and_then(|record| record.ready_since);
        since.map(|since| now.saturating_duration_since(since)).unwrap_or_default()
    }

    /// A lost node gets no other machine for now, because nobody sells one. Tasks that name the node
    /// fail.
    pub fn on_node_refused(&mut self, now: Instant, node: NodeIndex, cause: &Error) {
        self.fail_own(now, node, &format!("node {node} was lost, and gets no other machine for now"), cause);
    }

    /// Fails the tasks that name a node without a machine: they can run nowhere else.
    fn fail_own(&mut self, now: Instant, node: NodeIndex, what: &str, cause: &Error) {
        // First, all tasks of its workers go to its queues, also if they are more than a slice.
        while self.has_lost() {
            self.work(now);
        }
        let error = Error::new(ErrorKind::NodeLost, what).with_source(cause.clone());
        let ranks = self.ranks_of(node).map(|rank| &self.workers[rank.0 as usize].queue);
        let queues = ranks.chain(self.nodes.get(node.0 as usize).map(|record| &record.queue));
        let own: Vec<TaskId> = queues.flat_map(|queue| queue.iter(&self.tasks)).collect();
        for id in own {
            self.abandon(now, id, error.clone());
        }
    }

    /// The connection to a node's agent is back. Messages sent in the meantime may be lost, so
    /// interrupts are sent again.
    pub fn on_agent_back(&mut self, now: Instant, node: NodeIndex) {
        for rank in self.ranks_of(node) {
            let front = self.sent(rank).next().filter(|id| self.is_to_end(*id));
            if let Some(id) = front {
                self.forget_interrupt_of(rank, id);
                self.interrupt(now, rank, id);
            }
            // The kill at the end of their grace time may be lost as well.
            let helped: Vec<TaskId> = self.helped(rank).filter(|id| self.is_to_end(*id)).collect();
            for id in helped {
                self.forget_interrupt_of(rank, id);
                self.interrupt_helped(now, rank, id);
            }
        }
    }

    /// Whether a task that a worker has must end there: the task was abandoned, or its gang runs
    /// again.
    fn is_to_end(&self, id: TaskId) -> bool {
        let Some(task) = self.tasks.get(&id) else { return false };
        task.abandoned || self.is_retrying(task.gang)
    }
}
