//! Calls: tasks that running tasks submit.

use std::time::Instant;

use super::task::TaskState;
use super::{Action, Scheduler, TaskData};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{Attempt, TaskId};
use crate::payload::{Target, TaskOptions};

impl Scheduler {
    /// Takes a call that the running task `parent`, its caller, makes. Any worker may run the call;
    /// without `help`, any worker that runs none of its callers.
    ///
    /// A call ends no later than the try of its caller.
    ///
    /// # Errors
    ///
    /// - the error that the pool has failed with, when it takes no tasks;
    /// - [`ErrorKind::Cancelled`] when the caller does not run, or has been cancelled;
    /// - [`ErrorKind::InvalidSpec`] when the caller belongs to a gang, or has 64 callers above it;
    /// - [`ErrorKind::InvalidSpec`], which is temporary, when the pool has
    ///   [`Limits::max_calls`](crate::spec::Limits::max_calls) calls without an outcome.
    pub fn submit_call(
        &mut self,
        now: Instant,
        id: TaskId,
        parent: TaskId,
        options: TaskOptions,
        help: bool,
    ) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let rank = self.runner(parent).filter(|rank| self.workers[rank.0 as usize].lives());
        let caller = self.tasks.get(&parent).filter(|caller| !caller.abandoned);
        let (Some(rank), Some(caller)) = (rank, caller) else { return Err(ended_caller()) };
        if caller.gang.is_some() {
            let what = "a task of a gang cannot make calls: all workers of its world are busy with the gang";
            return Err(Error::new(ErrorKind::InvalidSpec, what)
                .with_hint("call from a task that runs on one worker, or do the work in the gang's own tasks"));
        }
        if caller.depth() >= MAX_DEPTH {
            let what = format!("calls are nested more than {MAX_DEPTH} deep");
            return Err(
                Error::new(ErrorKind::InvalidSpec, what).with_hint("check the function for an endless recursion")
            );
        }
        if self.families.open() >= self.limits.max_calls {
            let what = format!("the tasks of the pool have made {} calls that have no outcome", self.families.open());
            return Err(Error::new(ErrorKind::InvalidSpec, what)
                .temporary()
                .with_hint("wait for the results of some calls before making more, or raise `Limits::max_calls`"));
        }
        let is_first = caller.family.is_none();
        // Large arguments of a call are in the store, so the call itself is small.
        self.insert(now, id, Target::Any, options, TaskData::default(), None);
        self.join_family(id, parent, help);
        self.enqueue(id);
        let worker = &mut self.workers[rank.0 as usize];
        worker.long = true;
        if is_first && worker.sent.len() > 1 {
            // The caller could be waiting for a task that waits behind it.
            self.actions.push(Action::Recall { rank });
        }
        self.refresh(rank);
        self.wait(now, id);
        self.arm_fallback(now);
        self.place(now, id);
        self.offer(now, id);
        Ok(())
    }

    /// How many callers a task has above it: 0 for a task that no other task has called.
    pub fn depth(&self, id: TaskId) -> u32 {
        self.tasks.get(&id).map_or(0, TaskState::depth)
    }

    /// The try of a task that runs, or the next try.
    pub fn attempt(&self, id: TaskId) -> Attempt {
        self.tasks.get(&id).map_or(Attempt(1), |task| task.tries.attempt)
    }

    /// A task waits again, in front of tasks that came after it. A call ends instead when its
    /// caller's try is over, or when the pool takes no tasks.
    pub(super) fn queue_again(&mut self, now: Instant, id: TaskId) {
        let is_call = self.tasks.get(&id).is_some_and(|task| task.call.is_some());
        if is_call {
            let over = if self.is_orphan(id) { Some(ended_caller()) } else { self.failed.clone() };
            if let Some(error) = over {
                self.disarm(id);
                return self.finish(id, Err(error));
            }
        }
        self.queue_front(id);
        self.wait(now, id);
        if is_call {
            self.arm_fallback(now);
        }
    }
}

/// The error of a call whose caller's try is over.
pub(super) fn ended_caller() -> Error {
    Error::new(ErrorKind::Cancelled, "the task that made the call has ended")
}

/// How many callers a call may have above it.
pub const MAX_DEPTH: u32 = 64;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod random;
