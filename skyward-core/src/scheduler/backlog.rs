//! The work that one call leaves behind when it touches many tasks at once. It is done in slices,
//! so that the owner can release its lock between them.

use std::time::Instant;

use super::Scheduler;
use super::state::{Backlog, Ends};
use super::task::Position;
use crate::error::Error;
use crate::ids::{NodeIndex, Rank, TaskId};

impl Scheduler {
    /// Does a slice of the work that earlier calls have left. Returns whether more is left; the
    /// owner then calls this again.
    pub fn work(&mut self, now: Instant) -> bool {
        let mut left = SLICE;
        while left > 0 {
            let done = if let Some((id, error)) = self.backlog.lost.pop_front() {
                self.disarm(id);
                self.settle(now, id, Err(error));
                1
            } else if let Some(family) = self.backlog.orphans.front().copied() {
                self.end_orphan(now, family);
                1
            } else if self.backlog.ends.is_some() {
                self.end_next(now)
            } else if let Some(rank) = self.backlog.looks.pop_front() {
                1 + self.look(now, rank)
            } else {
                return false;
            };
            left = left.saturating_sub(done);
        }
        self.has_work()
    }

    /// Whether earlier calls have left work.
    pub fn has_work(&self) -> bool {
        let Backlog { lost, orphans, ends, looks } = &self.backlog;
        !lost.is_empty() || !orphans.is_empty() || ends.is_some() || !looks.is_empty()
    }

    /// Whether tasks of lost workers are left that are neither tried again nor failed.
    pub(super) fn has_lost(&self) -> bool {
        !self.backlog.lost.is_empty()
    }

    /// All tasks end with this error, and no more tasks are sent.
    pub(super) fn end_all(&mut self, error: Error) {
        // Tasks that are already ending keep the first error.
        self.backlog.ends = Some(Ends { from: TaskId(0), error, only_waiting: false });
    }

    /// All waiting tasks end with this error, and no more tasks are sent.
    pub(super) fn end_waiting(&mut self, error: Error) {
        self.backlog.ends = Some(Ends { from: TaskId(0), error, only_waiting: true });
    }

    /// Makes every worker that takes tasks look for some.
    pub(super) fn look_all(&mut self) {
        if self.failed.is_some() {
            return;
        }
        for rank in self.ranks() {
            if self.takes_more(rank) {
                self.look_later(rank);
            }
        }
    }

    /// Makes the workers of a node that take tasks look for some.
    pub(super) fn look_on(&mut self, node: NodeIndex) {
        for rank in self.ranks_of(node) {
            if self.failed.is_none() && self.takes_more(rank) {
                self.look_later(rank);
            }
        }
    }

    pub(super) fn look_later(&mut self, rank: Rank) {
        if !std::mem::replace(&mut self.workers[rank.0 as usize].looks, true) {
            self.backlog.looks.push_back(rank);
        }
    }

    /// `count` tasks came into the queue for any worker: makes as many workers that take tasks look
    /// for some, those with the fewest tasks first.
    pub(super) fn look_first(&mut self, count: usize) {
        let open: Vec<Rank> = self.open.iter().take(count).map(|(_, rank)| *rank).collect();
        open.into_iter().for_each(|rank| self.look_later(rank));
    }

    fn look(&mut self, now: Instant, rank: Rank) -> usize {
        let Some(worker) = self.workers.get_mut(rank.0 as usize) else { return 0 };
        worker.looks = false;
        let sent = self.fill(now, rank);
        // When the worker's task turned out to be long, the worker takes nothing, and the next one
        // looks.
        if sent == 0 && self.workers[rank.0 as usize].long && self.backlog() > 0 {
            self.look_first(1);
        }
        sent
    }

    /// Ends the next task while all tasks are ending. Returns how many tasks ended.
    fn end_next(&mut self, now: Instant) -> usize {
        let Some(Ends { from, error, only_waiting }) = &mut self.backlog.ends else { return 0 };
        let Some(id) = self.tasks.next_from(*from) else {
            self.backlog.ends = None;
            return 0;
        };
        *from = TaskId(id.0 + 1);
        let (error, only_waiting) = (error.clone(), *only_waiting);
        if only_waiting && self.is_under_way(id) {
            return 1;
        }
        self.end_task(now, id, error)
    }

    /// Ends a task together with its gang. Returns how many tasks ended.
    pub(super) fn end_task(&mut self, now: Instant, id: TaskId, error: Error) -> usize {
        let gang = self.tasks.get(&id).and_then(|task| task.gang);
        match gang.and_then(|gang| Some((gang.first, self.gang_table.get(&gang.first)?.size()))) {
            Some((first, size)) => {
                self.fail_gang(now, first, &error);
                size
            }
            None => {
                self.abandon(now, id, error);
                1
            }
        }
    }

    /// Whether a worker has the task, or another task of its gang.
    fn is_under_way(&self, id: TaskId) -> bool {
        let Some(task) = self.tasks.get(&id) else { return false };
        let gang = task.gang.and_then(|gang| self.gang_table.get(&gang.first));
        matches!(task.position, Position::Worker(_) | Position::Helped(_))
            || gang.is_some_and(|gang| gang.running() > 0)
    }

    /// A worker was lost with this task.
    pub(super) fn leave_behind(&mut self, id: TaskId, error: Error) {
        self.end_calls(id);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.position = Position::Lost;
            self.backlog.lost.push_back((id, error));
        }
    }
}

/// How many tasks one slice handles: well below a millisecond of work.
pub(super) const SLICE: usize = 256;
