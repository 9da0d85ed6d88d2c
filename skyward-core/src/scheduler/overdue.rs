//! Tasks that have run for longer than their timeout.
//!
//! Before the scheduler interrupts such a task, it asks the worker where the task is, for the error.
//! The task ends when the worker has answered, or after a short while without an answer. If the task
//! returns in the meantime, that is its outcome. The members of a gang end together, and their error
//! has the stacks of all of them.

use std::time::{Duration, Instant};

use super::task::Position;
use super::timers::Timer;
use super::timing::LOCATED;
use super::{Action, Scheduler};
use crate::error::{Error, ErrorKind, RankStacks, places};
use crate::ids::{Rank, TaskId};

impl Scheduler {
    /// A task has run for as long as it may, or its worker has not answered in time where it is.
    pub(super) fn on_run_timer(&mut self, now: Instant, id: TaskId) {
        match self.runner_of(id) {
            Some(rank) if !self.overdue.contains_key(&id) => {
                self.overdue.insert(id, None);
                let timer = self.timers.add(now, LOCATED, Timer::Run(id));
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.timer = timer;
                }
                self.actions.push(Action::Locate { rank });
            }
            _ => self.end_overdue(now, id),
        }
    }

    /// A worker reports its stacks: the overdue tasks that it runs can end.
    pub(super) fn locate(&mut self, now: Instant, rank: Rank, text: &str) {
        let overdue: Vec<TaskId> = self.overdue.keys().copied().collect();
        let here: Vec<TaskId> = overdue.into_iter().filter(|id| self.runner_of(*id) == Some(rank)).collect();
        for id in &here {
            self.overdue.insert(*id, Some(text.to_owned()));
        }
        for id in here {
            if self.together(id).iter().all(|(_, member)| self.overdue.get(member).is_none_or(Option::is_some)) {
                self.end_overdue(now, id);
            }
        }
    }

    /// Ends an overdue task, and the overdue tasks of its gang.
    fn end_overdue(&mut self, now: Instant, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        let (is_imported, limit) = (!task.importing, task.options.timeout.unwrap_or_default());
        let mut ids = vec![id];
        let mut stacks = Vec::new();
        let together = self.together(id);
        let longest = (MOST / together.len().max(1)).max(LEAST);
        for (rank, member) in together {
            if let Some(answer) = self.overdue.remove(&member) {
                stacks.push(RankStacks::new(rank, answer.as_deref().unwrap_or_default(), longest));
                ids.push(member);
            }
        }
        let error = match is_imported {
            true => late(limit),
            false => late_import(self.limits.hooks),
        };
        let error = match stacks.iter().any(|one| one.place.is_some()) {
            true => error.with_context("where", places(&stacks)).with_stacks(stacks),
            false => error,
        };
        // A task that has an outcome already keeps it.
        ids.into_iter().for_each(|id| self.abandon(now, id, error.clone()));
    }

    /// A task and the other tasks of its gang, as far as workers have them.
    fn together(&self, id: TaskId) -> Vec<(Rank, TaskId)> {
        match self.tasks.get(&id).and_then(|task| task.gang) {
            Some(gang) => self.running_of(gang.first),
            None => self.runner_of(id).into_iter().map(|rank| (rank, id)).collect(),
        }
    }

    /// The rank of the worker that runs a task, or helps with it.
    fn runner_of(&self, id: TaskId) -> Option<Rank> {
        match self.tasks.get(&id)?.position {
            Position::Worker(rank) if self.sent(rank).next() == Some(id) => Some(rank),
            Position::Helped(rank) => Some(rank),
            _ => None,
        }
    }
}

/// The error of a task that ran longer than this limit.
fn late(limit: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("the task ran longer than its timeout of {limit:?}"))
        .with_hint("`.timeout(…)` counts from the task's start on a worker; give it more, or let the payload do less")
}

/// The error of a task whose payload was imported for longer than this limit.
fn late_import(limit: Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("the payload of the task was not imported within {limit:?}"))
        .with_hint("what a payload imports may wait for something; `Limits::hooks` gives imports more time")
}

/// The most bytes of stacks in an error.
const MOST: usize = 64 << 10;
/// The bytes of stacks that each rank gets in any case.
const LEAST: usize = 1 << 10;

#[cfg(test)]
mod tests;
