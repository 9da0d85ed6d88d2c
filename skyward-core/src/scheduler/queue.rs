//! Waiting tasks, and their way to workers.

use std::time::Instant;

use super::node::Record;
use super::policy::{LARGE, depth, is_far};
use super::table::List;
use super::task::{Position, TaskState};
use super::timing::AGED;
use super::worker::Worker;
use super::{Action, Scheduler};
use crate::ids::{NodeIndex, Rank, TaskId};
use crate::payload::Target;

impl Scheduler {
    pub(super) fn enqueue(&mut self, id: TaskId) {
        self.queue_at(id, List::push_back);
    }

    /// Puts a task back in front: it came before all waiting tasks.
    pub(super) fn queue_front(&mut self, id: TaskId) {
        self.queue_at(id, List::push_front);
    }

    /// Takes a task out of its queue.
    pub(super) fn unqueue(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id).filter(|task| task.position == Position::Queue) else { return };
        if task.call.is_some() {
            return self.unqueue_call(id);
        }
        let target = task.target;
        if let Some(queue) = queue_of(target, &mut self.any, &mut self.nodes, &mut self.workers) {
            queue.remove(&mut self.tasks, id);
        }
        let node = match target {
            Target::Rank(rank) => self.node_of(rank),
            Target::Node(node) => node,
            _ => return,
        };
        if self.is_draining(node) {
            self.departing.push(node);
        }
    }

    /// A task came into a queue: the workers that may take it look for tasks.
    pub(super) fn place(&mut self, now: Instant, id: TaskId) {
        match self.tasks.get(&id).map(|task| task.target) {
            Some(Target::Rank(rank)) => {
                self.fill(now, rank);
            }
            Some(Target::Node(node)) => {
                for rank in self.ranks_of(node) {
                    self.fill(now, rank);
                }
            }
            _ => {
                while let Some((_, rank)) = self.open.first().copied() {
                    self.fill(now, rank);
                    // When the worker's task turned out to be long, the worker takes nothing, and
                    // the next one looks.
                    let worker = &self.workers[rank.0 as usize];
                    if !worker.long || worker.listed.is_some() {
                        return;
                    }
                }
            }
        }
    }

    /// Sends a worker the tasks that it may have. Returns how many tasks were sent.
    pub(super) fn fill(&mut self, now: Instant, rank: Rank) -> usize {
        let worker = &mut self.workers[rank.0 as usize];
        if !worker.sent.is_empty() && !worker.long && worker.is_first_long(now) {
            worker.long = true;
            self.refresh(rank);
        }
        let mut sent = 0;
        while self.takes_more(rank) {
            let Some(id) = self.next_for(now, rank) else { break };
            self.send(now, rank, id);
            sent += 1;
        }
        sent
    }

    pub(super) fn send(&mut self, now: Instant, rank: Rank, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.position = Position::Worker(rank);
        let worker = &mut self.workers[rank.0 as usize];
        worker.sent.push_back(id);
        self.actions.push(Action::Send { rank, task: id });
        if worker.sent.len() == 1 {
            self.begin_front(now, rank);
        } else {
            self.watch_length(now, rank);
        }
        self.refresh(rank);
    }

    pub(super) fn takes_more(&self, rank: Rank) -> bool {
        let worker = &self.workers[rank.0 as usize];
        // A call that still runs on another thread may yet end the worker.
        if !worker.lives() || !worker.asides.is_empty() {
            return false;
        }
        let Some(last) = worker.sent.back() else { return true };
        // No task waits behind a stream or a gang: their duration does not predict that of the next
        // task. Nor does a task wait behind large arguments that are on a long way.
        let far = is_far(worker.round_trip);
        let alone = |task: &TaskState| task.streaming || task.gang.is_some() || far && task.bytes > LARGE;
        !worker.long
            && !worker.late
            && worker.sent.len() < depth(&worker.average, worker.round_trip)
            && !self.tasks.get(last).is_some_and(alone)
    }

    /// Takes the next task that this worker may run. That is a call, unless there is none, or it is
    /// the turn of another task that has waited for long. The other task must have come before every
    /// waiting gang.
    fn next_for(&mut self, now: Instant, rank: Rank) -> Option<TaskId> {
        if self.failed.is_some() {
            return None;
        }
        let node = self.workers[rank.0 as usize].node;
        let (draining, cordoned) = (self.is_draining(NodeIndex(node as u32)), self.is_cordoned(node));
        let none = (self.is_held() || cordoned) && !draining;
        let barrier = self.gangs.front().unwrap_or(TaskId(u64::MAX));
        let any = (!draining).then_some(&self.any);
        let own = [&self.workers[rank.0 as usize].queue, &self.nodes[node].queue];
        let fronts = any.into_iter().chain(own).filter_map(List::front);
        let root = fronts.filter(|id| !none && *id < barrier).min();
        let late = |id: TaskId| {
            let task = self.tasks.get(&id);
            task.is_some_and(|task| now.saturating_duration_since(task.since) >= AGED)
        };
        let call = self.families.first_queued().filter(|_| !draining && !cordoned);
        let next = match (call, root) {
            (Some(call), Some(root)) if late(root) => {
                let took_root = &mut self.workers[rank.0 as usize].took_root;
                *took_root = !*took_root;
                if *took_root { root } else { call }
            }
            (call, root) => call.or(root)?,
        };
        self.unqueue(next);
        Some(next)
    }

    fn queue_at(&mut self, id: TaskId, add: fn(&mut List, &mut super::table::TaskTable<TaskState>, TaskId)) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        debug_assert!(task.gang.is_none(), "a gang waits as one");
        task.position = Position::Queue;
        if task.call.is_some() {
            return self.queue_call(id, add);
        }
        let target = task.target;
        if let Some(queue) = queue_of(target, &mut self.any, &mut self.nodes, &mut self.workers) {
            add(queue, &mut self.tasks, id);
        }
    }
}

fn queue_of<'a>(
    target: Target,
    any: &'a mut List,
    nodes: &'a mut [Record],
    workers: &'a mut [Worker],
) -> Option<&'a mut List> {
    match target {
        Target::Rank(rank) => workers.get_mut(rank.0 as usize).map(|worker| &mut worker.queue),
        Target::Node(node) => nodes.get_mut(node.0 as usize).map(|node| &mut node.queue),
        _ => Some(any),
    }
}
