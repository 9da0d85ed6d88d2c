//! The deadlines that run, in the order in which they are due.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::ids::{Rank, TaskId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The deadline for the start of the task.
    Queue(TaskId),
    /// The deadline for the end of the task, or for the answer where the overdue task is.
    Run(TaskId),
    /// The interrupt of a task that still runs is repeated.
    Again(Rank, TaskId),
    /// The grace time of an interrupted task is over.
    Grace(Rank, TaskId),
    /// The worker's task may be long, and other tasks wait behind it.
    Recall(Rank),
    /// The deadline for progress of the gang, or for the stacks of its ranks.
    Stall(TaskId),
    /// The deadline for progress of a worker that runs no gang, or for its stacks.
    Silence(Rank),
    /// The gang's errors are no longer held back.
    Suspicion(TaskId),
    /// Checks for calls that no worker has taken.
    Fallback,
}

#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    /// Adds a timer that is due after this time. Returns `None` if that is further away than a
    /// clock can count: the timer is then never due.
    pub(super) fn add(&mut self, now: Instant, after: Duration, timer: Timer) -> Option<(Instant, Timer)> {
        let at = now.checked_add(after)?;
        self.0.insert((at, timer));
        Some((at, timer))
    }

    pub(super) fn remove(&mut self, timer: (Instant, Timer)) {
        self.0.remove(&timer);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        let (at, _) = self.0.first()?;
        if *at > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}

/// How many timers one slice handles. A timer costs up to a millisecond where many tasks have waited
/// long: its task is no longer in the processor's caches, and the allocator may first sort the memory
/// that was freed.
pub(super) const SLICE: usize = 16;
