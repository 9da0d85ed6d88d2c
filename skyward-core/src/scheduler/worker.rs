//! A worker: its tasks, and how long they take.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::policy::{Average, long};
use super::table::List;
use super::timers::Timer;
use super::watch::Watch;
use crate::ids::TaskId;

#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) node: usize,
    pub(super) ready: bool,
    /// The process has ended. Answers that it sent before are still being read, and the worker gets
    /// no more tasks.
    pub(super) ended: bool,
    /// The running task is long: the worker gets no task ahead until it returns one.
    pub(super) long: bool,
    /// A first task was recalled before it had arrived at the worker. The worker gets no task ahead
    /// until a task is quick: a task ahead would be recalled and sent once more.
    pub(super) late: bool,
    /// Tasks that were sent and have not returned, in order: the first one runs.
    pub(super) sent: VecDeque<TaskId>,
    /// Calls that the main thread runs within the first task, each within the one before it.
    pub(super) frames: Vec<TaskId>,
    /// Calls that run on other threads; calls of a task that has ended may still be there.
    pub(super) asides: Vec<TaskId>,
    /// The task within which the main thread waits for calls, unless it runs a call in the
    /// meantime.
    pub(super) waits: Option<TaskId>,
    /// Whether the worker last took a task without a caller while calls waited.
    pub(super) took_root: bool,
    /// When the first task began.
    pub(super) began: Option<Instant>,
    /// Tasks that wait for this worker alone.
    pub(super) queue: List,
    pub(super) average: Average,
    /// The time that a message to the worker and its answer take.
    pub(super) round_trip: Duration,
    /// When the worker last became ready, or returned a task.
    pub(super) idle_since: Option<Instant>,
    /// The progress of the first task, while that is no task of a gang.
    pub(super) watch: Option<Watch>,
    /// The tasks that the worker was asked to end.
    pub(super) interrupts: Vec<Interrupt>,
    /// When the scheduler checks whether the running task is long.
    pub(super) recall: Option<(Instant, Timer)>,
    /// Whether the worker is in the backlog, to look for tasks.
    pub(super) looks: bool,
    /// The worker's entry in `open`.
    pub(super) listed: Option<usize>,
    /// The worker's share of the counts.
    pub(super) counted: Counts,
}

/// Counts of workers and of their tasks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) ready: usize,
    /// Workers that have tasks.
    pub(super) busy: usize,
    /// Workers that take tasks and have none.
    pub(super) idle: usize,
    /// Tasks that workers have, including the calls that they help with.
    pub(super) sent: usize,
}

/// A task that a worker was asked to end.
#[derive(Debug)]
pub(super) struct Interrupt {
    pub(super) task: TaskId,
    /// The time until the interrupt is repeated.
    pub(super) pause: Duration,
    pub(super) timers: [Option<(Instant, Timer)>; 2],
}

impl Worker {
    /// How many tasks the worker has, including the calls that it helps with.
    pub(super) fn load(&self) -> usize {
        self.sent.len() + self.frames.len() + self.asides.len()
    }

    /// The innermost task of the main thread.
    pub(super) fn innermost(&self) -> Option<TaskId> {
        self.frames.last().or(self.sent.front()).copied()
    }

    /// The innermost task of each thread.
    pub(super) fn runs(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.innermost().into_iter().chain(self.asides.iter().copied())
    }

    /// Whether the first task has been under way for longer than a short task may be.
    pub(super) fn is_first_long(&self, now: Instant) -> bool {
        self.began.is_some_and(|began| now.saturating_duration_since(began) >= long(self.round_trip))
    }

    /// Whether the worker can take tasks, or calls to help with.
    pub(super) fn lives(&self) -> bool {
        self.ready && !self.ended
    }
}

impl Counts {
    /// Replaces a share `before` of the counts with `after`.
    pub(super) fn replace(&mut self, before: Self, after: Self) {
        self.ready = self.ready - before.ready + after.ready;
        self.busy = self.busy - before.busy + after.busy;
        self.idle = self.idle - before.idle + after.idle;
        self.sent = self.sent - before.sent + after.sent;
    }
}
