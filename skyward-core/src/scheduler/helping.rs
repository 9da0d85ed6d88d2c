//! A worker that waits for calls helps: within its wait, its main thread runs one of the calls that
//! its task waits for. Any other task might take longer than the wait, or might itself wait for the
//! worker's task.
//!
//! A worker's frames are the tasks that its main thread runs, each within the one before it: the
//! task that the worker was sent, and the calls that it helps with.

use std::time::Instant;

use super::task::{Help, Position};
use super::worker::Worker;
use super::{Action, Scheduler};
use crate::ids::{NodeIndex, Rank, TaskId};
use crate::payload::Outcome;

impl Scheduler {
    /// The main thread of a worker waits for calls of `frame`, the innermost task that the worker
    /// runs.
    pub fn on_waiting(&mut self, now: Instant, rank: Rank, frame: TaskId) {
        let Some(worker) = self.workers.get_mut(rank.0 as usize) else { return };
        // A sent task may have begun before the outcome of the task in front of it arrives.
        if worker.sent.contains(&frame) || worker.frames.contains(&frame) {
            worker.waits = Some(frame);
            self.help(now, rank);
        }
    }

    /// The main thread of a worker no longer waits.
    pub fn on_waited(&mut self, _now: Instant, rank: Rank) {
        if let Some(worker) = self.workers.get_mut(rank.0 as usize) {
            worker.waits = None;
        }
    }

    /// A worker refused to help with a call: it no longer waits.
    pub fn on_refused(&mut self, now: Instant, rank: Rank, id: TaskId) {
        if self.take_helped(rank, id).is_none() {
            return;
        }
        self.workers[rank.0 as usize].waits = None;
        self.disarm(id);
        self.end_calls(id);
        self.refresh(rank);
        if self.tasks.get(&id).is_some_and(|task| task.abandoned) {
            self.tasks.remove(&id);
        } else {
            self.queue_again(now, id);
            self.fallback.end();
            self.place(now, id);
            self.offer(now, id);
        }
        self.take_up(now, rank);
    }

    /// A call that a worker helped with has ended.
    pub fn on_helped(&mut self, now: Instant, rank: Rank, id: TaskId, outcome: Outcome, _micros: u64) {
        let Some(is_aside) = self.take_helped(rank, id) else { return };
        let worker = &mut self.workers[rank.0 as usize];
        if !is_aside {
            worker.waits = worker.innermost();
        }
        self.returns.add(NodeIndex(worker.node as u32));
        self.disarm(id);
        self.refresh(rank);
        self.settle(now, id, outcome);
        self.take_up(now, rank);
    }

    /// The calls that a worker helps with: those on its main thread, the outermost first, then
    /// those on other threads.
    pub fn helped(&self, rank: Rank) -> impl Iterator<Item = TaskId> + '_ {
        let worker = self.workers.get(rank.0 as usize);
        worker.into_iter().flat_map(|worker| worker.frames.iter().chain(&worker.asides)).copied()
    }

    /// The task that the worker was sent, and within which it runs, or may run, this call.
    pub fn root_on(&self, rank: Rank, call: TaskId) -> Option<TaskId> {
        self.above(call).find(|above| self.has(rank, *above))
    }

    /// A call came into the queue and no worker took it: the nearest caller above it whose worker
    /// waits helps.
    pub(super) fn offer(&mut self, now: Instant, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        if task.position != Position::Queue || task.call.is_none() || self.is_orphan(id) {
            return;
        }
        let is_helpable = task.help() == Help::Anytime;
        let waits = |caller: TaskId| self.runner(caller).filter(|rank| self.waits_in(*rank) == Some(caller));
        let found = self.above(id).find_map(waits).filter(|_| is_helpable);
        match found {
            Some(rank) => {
                self.unqueue(id);
                self.give(now, rank, id, false);
            }
            None => self.fall_back_at_once(now, id),
        }
    }

    /// Makes a waiting worker help with the deepest call that it may help with.
    pub(super) fn help(&mut self, now: Instant, rank: Rank) {
        match self.helpable_on(rank) {
            Some(id) => {
                self.unqueue(id);
                self.give(now, rank, id, false);
            }
            None => self.take_fallback(now, rank),
        }
    }

    /// The deepest call that a waiting worker may help with.
    fn helpable_on(&self, rank: Rank) -> Option<TaskId> {
        let frame = self.waits_in(rank)?;
        let family = self.tasks.get(&frame).and_then(|task| task.family)?;
        self.families.deepest_below(family, Help::Anytime)
    }

    /// Makes a worker help with a call.
    pub(super) fn give(&mut self, now: Instant, rank: Rank, id: TaskId, aside: bool) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.position = Position::Helped(rank);
        let worker = &mut self.workers[rank.0 as usize];
        let within = worker.innermost().filter(|_| !aside);
        if aside {
            worker.asides.push(id)
        } else {
            worker.frames.push(id)
        }
        self.actions.push(Action::Help { rank, task: id, within });
        self.started(now, rank, id);
        self.refresh(rank);
    }

    /// The innermost task of a worker, if the worker waits within it and may help at any time.
    fn waits_in(&self, rank: Rank) -> Option<TaskId> {
        let worker = self.workers.get(rank.0 as usize).filter(|_| self.failed.is_none())?;
        let frame = worker.waiting()?;
        let root = worker.sent.front().and_then(|id| self.tasks.get(id))?;
        (!root.alone).then_some(frame)
    }

    /// A worker's first task has left it.
    pub(super) fn leave_front(&mut self, rank: Rank) {
        let frames = std::mem::take(&mut self.workers[rank.0 as usize].frames);
        frames.into_iter().rev().for_each(|id| self.drop_call(rank, id));
        let worker = &mut self.workers[rank.0 as usize];
        worker.waits = worker.waits.filter(|frame| worker.sent.front() == Some(frame));
    }

    /// A worker is gone, together with the calls that it helped with.
    pub(super) fn drop_helped(&mut self, rank: Rank) {
        let worker = &mut self.workers[rank.0 as usize];
        worker.waits = None;
        let (frames, asides) = (std::mem::take(&mut worker.frames), std::mem::take(&mut worker.asides));
        frames.into_iter().chain(asides).rev().for_each(|id| self.drop_call(rank, id));
        self.refresh(rank);
    }

    /// A task's worker was lost while it helped: during the task's next tries, calls run there only
    /// when they fall back.
    pub(super) fn leave_alone(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.alone = true;
        }
    }

    /// The task within which a worker runs a call has ended, and the worker may be about to begin
    /// the call.
    fn cancel_call(&mut self, rank: Rank, id: TaskId) {
        self.actions.push(Action::Cancel { rank, task: id, interrupt: true });
        self.drop_call(rank, id);
    }

    /// A call that a worker helped with ended together with the task that it ran within.
    fn drop_call(&mut self, rank: Rank, id: TaskId) {
        self.forget_interrupt_of(rank, id);
        self.disarm(id);
        self.end_calls(id);
        if self.tasks.get(&id).is_some_and(|task| task.abandoned) {
            self.tasks.remove(&id);
        } else {
            self.finish(id, Err(super::calls::ended_caller()));
        }
    }

    /// Removes a call from those that a worker helps with. Returns whether it ran on another
    /// thread, or `None` if the worker did not have it.
    fn take_helped(&mut self, rank: Rank, id: TaskId) -> Option<bool> {
        let worker = self.workers.get_mut(rank.0 as usize)?;
        if let Some(place) = worker.asides.iter().position(|aside| *aside == id) {
            worker.asides.remove(place);
            self.forget_interrupt_of(rank, id);
            return Some(true);
        }
        let place = worker.frames.iter().position(|frame| *frame == id)?;
        let within = worker.frames.split_off(place + 1);
        worker.frames.pop();
        within.into_iter().rev().for_each(|id| self.cancel_call(rank, id));
        self.forget_interrupt_of(rank, id);
        Some(false)
    }

    /// A worker helps with one call less: it looks for the next work.
    fn take_up(&mut self, now: Instant, rank: Rank) {
        self.refresh(rank);
        self.help(now, rank);
        // The worker may be idle now: it may have had nothing but a call on another thread.
        self.start_gang(now);
        self.fill(now, rank);
    }
}

impl Worker {
    /// The innermost task of a live worker, if the main thread waits within that task.
    pub(super) fn waiting(&self) -> Option<TaskId> {
        self.innermost().filter(|frame| self.lives() && self.waits == Some(*frame))
    }
}

#[cfg(any(test, debug_assertions))]
impl Scheduler {
    /// Checks that the calls a worker helps with descend from its task, and that no call waits that
    /// the worker would help with.
    pub(super) fn check_frames(&self, rank: Rank) {
        let worker = &self.workers[rank.0 as usize];
        assert!(worker.ready || worker.load() == 0, "rank {rank} is lost and helps: {self:?}");
        let mut below = worker.sent.front();
        for id in &worker.frames {
            self.check_helped(rank, *id, below);
            below = Some(id);
        }
        worker.asides.iter().for_each(|id| self.check_helped(rank, *id, worker.sent.front()));
        assert!(worker.long || !self.has_caller(rank), "rank {rank} runs a caller that is not long: {self:?}");
        assert!(self.has_work() || self.helpable_on(rank).is_none(), "rank {rank} could help: {self:?}");
    }

    /// An abandoned call may have lost its callers.
    fn check_helped(&self, rank: Rank, id: TaskId, below: Option<&TaskId>) {
        let task = self.tasks.get(&id).filter(|task| task.position == Position::Helped(rank));
        let descends = self.above(id).any(|above| Some(&above) == below);
        assert!(task.is_some_and(|task| task.abandoned || descends), "call {id} is not of {below:?}: {self:?}");
    }
}

#[cfg(test)]
mod tests;
