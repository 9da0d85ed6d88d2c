//! How a task begins, ends for its caller, or is tried again.

use std::time::{Duration, Instant};

use super::calls::ended_caller;
use super::task::Position;
use super::timers::Timer;
use super::tries::Next;
use super::{Action, Scheduler};
use crate::error::{Cause, Error};
use crate::ids::{Rank, TaskId};
use crate::payload::{Outcome, RetryPolicy};

impl Scheduler {
    /// Ends a task for its caller. A worker that has the task is asked to end it within the grace
    /// time.
    pub(super) fn abandon(&mut self, now: Instant, id: TaskId, error: Error) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.abandoned {
            return;
        }
        task.abandoned = true;
        let (position, gang) = (task.position, task.gang);
        self.disarm(id);
        self.actions.push(Action::Finish { task: id, outcome: Err(error) });
        self.unqueue(id);
        self.leave_family(id);
        self.end_calls(id);
        match position {
            Position::Queue | Position::Gang => {
                self.tasks.remove(&id);
            }
            Position::Worker(rank) => {
                let interrupt = self.workers[rank.0 as usize].sent.front() == Some(&id);
                if interrupt {
                    self.interrupt(now, rank, id);
                } else {
                    self.actions.push(Action::Cancel { rank, task: id, interrupt });
                }
            }
            Position::Helped(rank) => self.interrupt_helped(now, rank, id),
            Position::Lost => {}
        }
        if let Some(gang) = gang {
            self.leave_gang(now, gang);
        }
    }

    /// Reports a task's outcome, or tries the task again.
    pub(super) fn settle(&mut self, now: Instant, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let Some(gang) = task.gang {
            return self.settle_member(now, gang, id, outcome);
        }
        if task.abandoned {
            self.tasks.remove(&id);
            return;
        }
        let is_call = task.call.is_some();
        self.end_calls(id);
        if is_call && self.is_orphan(id) {
            return self.finish(id, Err(ended_caller()));
        }
        let error = match outcome {
            Ok(value) => return self.finish(id, Ok(value)),
            Err(error) => error,
        };
        let retry = self.retry(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let Some(call) = &mut task.call {
            call.risky |= Cause::of(&error).is_some_and(Cause::ended_worker);
        }
        match task.tries.next(id, error, retry, self.limits.poison) {
            Next::Again(attempt, error) => {
                task.since = now;
                self.actions.push(Action::Retried { task: id, attempt, error });
                self.queue_again(now, id);
                self.place(now, id);
                self.offer(now, id);
            }
            Next::Over(error) => self.finish(id, Err(error)),
        }
    }

    /// The causes after which the scheduler retries a task. It retries no task of a pool that takes
    /// no tasks any more, and no stream: the reader may have received items of the failed try.
    pub(super) fn retry(&self, id: TaskId) -> RetryPolicy {
        match self.tasks.get(&id) {
            Some(task) if self.failed.is_none() && !task.streaming => task.options.retry.unwrap_or_default(),
            _ => RetryPolicy::never(),
        }
    }

    pub(super) fn finish(&mut self, id: TaskId, outcome: Outcome) {
        self.leave_family(id);
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
            // The task was cancelled while it waited on the worker; the worker may be past the
            // point where it reads the cancel.
            return self.interrupt(now, rank, id);
        }
        let alone = task.gang.is_none();
        self.started(now, rank, id);
        if alone {
            self.watch_alone(now, rank);
        }
    }

    /// A worker has begun a task, or begins it about now.
    pub(super) fn started(&mut self, now: Instant, rank: Rank, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.importing = false;
        let waited = now.saturating_duration_since(task.since);
        self.actions.push(Action::Started { rank, task: id, attempt: task.tries.attempt, waited });
        let timeout = task.options.timeout;
        self.arm_run(now, id, timeout);
    }

    /// Lets a task that runs end after this time, or without it whenever it returns.
    pub(super) fn arm_run(&mut self, now: Instant, id: TaskId, timeout: Option<Duration>) {
        self.disarm(id);
        let timer = timeout.and_then(|timeout| self.timers.add(now, timeout, Timer::Run(id)));
        if let Some(task) = self.tasks.get_mut(&id) {
            task.timer = timer;
        }
    }

    /// Removes the task's timer: what the timer bounds has happened.
    pub(super) fn disarm(&mut self, id: TaskId) {
        if let Some(timer) = self.tasks.get_mut(&id).and_then(|task| task.timer.take()) {
            self.timers.remove(timer);
        }
        self.overdue.remove(&id);
    }
}
