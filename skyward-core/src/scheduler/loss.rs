//! What happens to a lost worker and to its tasks.

use std::time::Instant;

use super::{Action, Loss, Scheduler};
use crate::error::{Error, LastWords, WorkerExit};
use crate::ids::{Rank, TaskId};

impl Scheduler {
    /// A worker process has ended, and answers that it sent before are still being read. The worker
    /// gets no more tasks.
    pub fn on_ended(&mut self, rank: Rank) {
        self.workers[rank.0 as usize].ended = true;
        self.refresh(rank);
    }

    /// A worker process has ended. Each task that it still has may have begun; `last` is the task
    /// that began last, if known. `words` is what the process wrote last on standard error.
    pub fn on_lost(&mut self, now: Instant, rank: Rank, exit: &WorkerExit, words: &LastWords, last: Option<TaskId>) {
        if !self.workers[rank.0 as usize].ready {
            return;
        }
        let worker = &self.workers[rank.0 as usize];
        let is_idle = worker.load() == 0 && !exit.is_node_loss();
        let lasted = worker.idle_since.map(|since| now.saturating_duration_since(since)).unwrap_or_default();
        self.lose(rank, Error::worker_exited(rank, exit.clone()).with_last_words(rank, words), last);
        self.end_world();
        self.hand_on();
        self.work(now);
        self.report_lost(rank, Loss { idle: is_idle.then(|| (exit.clone(), words.clone())), lasted });
    }

    /// In a joined world, the loss of one worker is the loss of all.
    pub(super) fn end_world(&mut self) {
        for rank in self.ranks() {
            if self.joined && self.is_ready(rank) {
                self.lose(rank, Error::worker_exited(rank, WorkerExit::WorldEnded), None);
            }
        }
    }

    pub(super) fn report_lost(&mut self, rank: Rank, loss: Loss) {
        if self.failed.is_none() {
            self.actions.push(Action::Lost { rank, loss });
        }
    }

    /// Idle workers take the tasks that a lost worker had not begun: no other event may make them
    /// look, and a worker that has ended does not come back. A joined world starts anew as a whole.
    pub(super) fn hand_on(&mut self) {
        if !self.joined {
            self.look_all();
        }
    }

    /// Takes the tasks of a lost worker. One of them failed with the worker: `last`, or the first
    /// one if the last that began is not known. The other tasks are not at fault: those before
    /// `last` had returned and their answers were lost with the worker, so they are retried as lost
    /// and do not count as ends of a worker.
    pub(super) fn lose(&mut self, rank: Rank, error: Error, last: Option<TaskId>) {
        let worker = &mut self.workers[rank.0 as usize];
        worker.ready = false;
        worker.waits = None;
        let helped = worker.load() > worker.sent.len();
        let sent = std::mem::take(&mut worker.sent);
        self.forget_interrupts(rank);
        self.refresh(rank);
        let failed = last.filter(|id| sent.contains(id)).or_else(|| sent.front().copied());
        let by_itself = error.exit().is_some_and(|exit| !exit.is_node_loss() && *exit != WorkerExit::WorldEnded);
        let behind = if by_itself { Error::worker_exited(rank, WorkerExit::Unreachable) } else { error.clone() };
        if let Some(failed) = failed.filter(|_| helped && by_itself) {
            self.leave_alone(failed);
        }
        // From the last to the first: retried tasks then stand in front of all others in their
        // order.
        for id in sent.into_iter().rev() {
            let error = if failed == Some(id) { &error } else { &behind };
            self.leave_behind(id, error.clone());
        }
        self.drop_helped(rank);
    }
}
