//! How a task begins, ends for its caller, or is tried again.

use std::time::Instant;

use super::state::{Place, Timer};
use super::tries::Next;
use super::{Action, Scheduler};
use crate::error::Error;
use crate::ids::{Rank, TaskId};
use crate::payload::Outcome;

impl Scheduler {
    /// Ends a task for its caller; a worker that has it is told, and gets the grace to heed.
    pub(super) fn abandon(&mut self, now: Instant, id: TaskId, error: Error) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.abandoned {
            return;
        }
        task.abandoned = true;
        let (place, gang) = (task.place, task.gang);
        self.disarm(id);
        self.actions.push(Action::Finish { task: id, outcome: Err(error) });
        match place {
            Place::Queue | Place::Gang => {
                self.unqueue(id);
                self.tasks.remove(&id);
            }
            Place::Worker(rank) => {
                let interrupt = self.workers[rank.0 as usize].sent.front() == Some(&id);
                if interrupt {
                    self.interrupt(now, rank, id);
                } else {
                    self.actions.push(Action::Cancel { rank, task: id, interrupt });
                }
            }
            Place::Lost => {}
        }
        if let Some(gang) = gang {
            self.leave_gang(now, gang);
        }
    }

    /// Gives a task its outcome, or tries it again.
    pub(super) fn settle(&mut self, now: Instant, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let Some(gang) = task.gang {
            return self.settle_member(now, gang, id, outcome);
        }
        if task.abandoned {
            self.tasks.remove(&id);
            return;
        }
        let error = match outcome {
            Ok(value) => return self.finish(id, Ok(value)),
            Err(error) => error,
        };
        match task.tries.next(id, error, task.retry(), self.limits.poison) {
            Next::Again(attempt, error) => {
                self.actions.push(Action::Retried { task: id, attempt, error });
                self.queue_front(id);
                self.wait(now, id);
                self.place(now, id);
            }
            Next::Over(error) => self.finish(id, Err(error)),
        }
    }

    pub(super) fn finish(&mut self, id: TaskId, outcome: Outcome) {
        self.tasks.remove(&id);
        self.actions.push(Action::Finish { task: id, outcome });
    }

    /// The first task of a worker begins about now.
    pub(super) fn begin_front(&mut self, now: Instant, rank: Rank) {
        let worker = &mut self.workers[rank.0 as usize];
        let Some(id) = worker.sent.front().copied() else { return };
        worker.began = Some(now);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.abandoned {
            // It was cancelled while it waited on the worker; the worker may be past the point where it reads that.
            return self.interrupt(now, rank, id);
        }
        self.actions.push(Action::Started { rank, task: id, attempt: task.tries.attempt });
        if let Some(waited) = task.timer.take() {
            self.timers.remove(waited);
        }
        if let Some(timeout) = task.options.timeout {
            task.timer = self.timers.add(now, timeout, Timer::Run(id));
        }
    }

    /// What the task waits for has come.
    pub(super) fn disarm(&mut self, id: TaskId) {
        if let Some(timer) = self.tasks.get_mut(&id).and_then(|task| task.timer.take()) {
            self.timers.remove(timer);
        }
    }
}
