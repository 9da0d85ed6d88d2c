//! What one call leaves to do where it touches many tasks at once: it is done in slices, between which the owner's lock can be released.

use std::collections::VecDeque;
use std::time::Instant;

use super::Scheduler;
use super::family::FamilyId;
use super::state::Place;
use crate::error::Error;
use crate::ids::{Rank, TaskId};

/// What is left to do.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Tasks of workers that were lost, and what they failed with there.
    pub(super) lost: VecDeque<(TaskId, Error)>,
    /// Calls of tries that have ended.
    pub(super) orphans: VecDeque<FamilyId>,
    /// Every task from this one on ends with this error.
    pub(super) ends: Option<Ends>,
    /// Workers that look for tasks.
    looks: VecDeque<Rank>,
}

/// Tasks that are to end.
#[derive(Debug)]
pub(super) struct Ends {
    from: TaskId,
    error: Error,
    /// Whether those that a worker has go on.
    only_waiting: bool,
}

impl Scheduler {
    /// Does a slice of what earlier calls have left to do. Gives whether more is left, for which this is to be called again.
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
                self.rescue_on(now);
                return false;
            };
            left = left.saturating_sub(done);
        }
        self.has_work()
    }

    /// Whether earlier calls have left something to do.
    pub fn has_work(&self) -> bool {
        let Backlog { lost, orphans, ends, looks } = &self.backlog;
        !lost.is_empty() || !orphans.is_empty() || ends.is_some() || !looks.is_empty()
    }

    /// All tasks end with this error, and none is sent any more.
    pub(super) fn end_all(&mut self, error: Error) {
        // Those that are ending already are told why by the first.
        self.backlog.ends = Some(Ends { from: TaskId(0), error, only_waiting: false });
        self.held = false;
    }

    /// All tasks that wait end with this error, and none is sent any more.
    pub(super) fn end_waiting(&mut self, error: Error) {
        self.backlog.ends = Some(Ends { from: TaskId(0), error, only_waiting: true });
        self.held = false;
    }

    /// Every worker that takes tasks looks for some.
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

    pub(super) fn look_later(&mut self, rank: Rank) {
        if !std::mem::replace(&mut self.workers[rank.0 as usize].looks, true) {
            self.backlog.looks.push_back(rank);
        }
    }

    /// So many tasks came into the queue for any worker: as many workers that take tasks look for some, those with the
    /// fewest tasks first.
    pub(super) fn look_first(&mut self, count: usize) {
        let open: Vec<Rank> = self.open.iter().take(count).map(|(_, rank)| *rank).collect();
        open.into_iter().for_each(|rank| self.look_later(rank));
    }

    fn look(&mut self, now: Instant, rank: Rank) -> usize {
        let Some(worker) = self.workers.get_mut(rank.0 as usize) else { return 0 };
        worker.looks = false;
        let sent = self.fill(now, rank);
        // Where its task turns out to be long, it takes nothing, and the next one looks.
        if sent == 0 && self.workers[rank.0 as usize].long && self.backlog() > 0 {
            self.look_first(1);
        }
        sent
    }

    /// Ends the next task of those that are all to end.
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

    /// Ends a task, with its gang. Gives how many tasks that were.
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
        matches!(task.place, Place::Worker(_) | Place::Helped(_)) || gang.is_some_and(|gang| gang.running() > 0)
    }

    /// A worker is lost with this task.
    pub(super) fn leave_behind(&mut self, id: TaskId, error: Error) {
        self.end_calls(id);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.place = Place::Lost;
            self.backlog.lost.push_back((id, error));
        }
    }
}

/// Tasks that are handled in one go: well below a millisecond.
pub(super) const SLICE: usize = 256;
