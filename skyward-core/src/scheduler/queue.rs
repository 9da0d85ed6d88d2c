//! Waiting tasks, and their way to workers.

use std::time::Instant;

use super::policy::depth;
use super::{Action, Scheduler};
use crate::ids::{Rank, TaskId};
use crate::payload::Target;

impl Scheduler {
    pub(super) fn enqueue(&mut self, id: TaskId) {
        if let Some(queue) = self.queue_of(id) {
            queue.push_back(id);
        }
    }

    /// Puts a task back in front: it came before all that wait.
    pub(super) fn queue_front(&mut self, id: TaskId) {
        if let Some(queue) = self.queue_of(id) {
            queue.push_front(id);
        }
    }

    pub(super) fn unqueue(&mut self, id: TaskId) {
        if let Some(queue) = self.queue_of(id)
            && let Some(place) = queue.iter().position(|queued| *queued == id)
        {
            queue.remove(place);
        }
    }

    /// A task came into a queue: the workers that may take it look.
    pub(super) fn place(&mut self, now: Instant, id: TaskId) {
        match self.tasks.get(&id).map(|task| task.target) {
            Some(Target::Rank(rank)) => self.fill(now, rank),
            Some(Target::Node(node)) => {
                let ranks: Vec<Rank> = self.ranks().filter(|rank| self.node_of(*rank) == node).collect();
                for rank in ranks {
                    self.fill(now, rank);
                }
            }
            _ => {
                if let Some((_, rank)) = self.open.first().copied() {
                    self.fill(now, rank);
                }
            }
        }
    }

    pub(super) fn fill_all(&mut self, now: Instant) {
        self.start_gang(now);
        for rank in self.ranks() {
            self.fill(now, rank);
        }
    }

    /// Gives a worker what it may have.
    pub(super) fn fill(&mut self, now: Instant, rank: Rank) {
        while self.takes_more(rank) {
            let Some(id) = self.next_for(rank) else { break };
            self.send(now, rank, id);
        }
    }

    pub(super) fn send(&mut self, now: Instant, rank: Rank, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.sent_to = Some(rank);
        let worker = &mut self.workers[rank.0 as usize];
        worker.sent.push_back(id);
        let first = worker.sent.len() == 1;
        self.actions.push(Action::Send { rank, task: id });
        if first {
            self.begin_front(now, rank);
        }
        self.refresh(rank);
    }

    /// Keeps `open` true after a change of a worker.
    pub(super) fn refresh(&mut self, rank: Rank) {
        // One that leaves looks for its own tasks alone.
        let leaving = self.nodes[self.workers[rank.0 as usize].node].leaving;
        let takes_more = !leaving && self.takes_more(rank);
        let worker = &mut self.workers[rank.0 as usize];
        let entry = takes_more.then_some(worker.sent.len());
        if worker.listed == entry {
            return;
        }
        if let Some(load) = worker.listed {
            self.open.remove(&(load, rank));
        }
        if let Some(load) = entry {
            self.open.insert((load, rank));
        }
        worker.listed = entry;
    }

    fn takes_more(&self, rank: Rank) -> bool {
        let worker = &self.workers[rank.0 as usize];
        if !worker.ready || worker.leaving {
            return false;
        }
        let Some(last) = worker.sent.back() else { return true };
        // Nothing waits behind a stream or a gang: how long they take says nothing of the next task.
        let alone = |task: &super::state::TaskState| task.streaming || task.gang.is_some();
        worker.sent.len() < depth(&worker.average) && !self.tasks.get(last).is_some_and(alone)
    }

    /// Takes the oldest task that this worker may run and that no gang stands before.
    fn next_for(&mut self, rank: Rank) -> Option<TaskId> {
        let node = self.workers[rank.0 as usize].node;
        let leaving = self.nodes[node].leaving;
        if self.held && !leaving {
            return None;
        }
        let barrier = self.gangs.front().copied().unwrap_or(TaskId(u64::MAX));
        let any = (!leaving).then_some(&mut self.any);
        let own = [&mut self.by_rank[rank.0 as usize], &mut self.by_node[node]];
        let queue = any
            .into_iter()
            .chain(own)
            .filter(|queue| queue.front().is_some_and(|id| *id < barrier))
            .min_by_key(|queue| queue.front().copied())?;
        queue.pop_front()
    }

    fn queue_of(&mut self, id: TaskId) -> Option<&mut std::collections::VecDeque<TaskId>> {
        let task = self.tasks.get(&id)?;
        match task.target {
            _ if task.gang.is_some() => None,
            Target::Rank(rank) => self.by_rank.get_mut(rank.0 as usize),
            Target::Node(node) => self.by_node.get_mut(node.0 as usize),
            _ => Some(&mut self.any),
        }
    }
}
