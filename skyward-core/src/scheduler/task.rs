//! A task: its options, where it is, and its part in a gang or in the calls of another task.

use std::time::Instant;

use super::table::{Linked, Links};
use super::timers::Timer;
use super::tries::Tries;
use crate::ids::{Rank, TaskId};
use crate::payload::{Target, TaskOptions};

/// The data of a task.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskData {
    /// The result arrives item by item.
    pub streaming: bool,
    /// The bytes of the arguments.
    pub bytes: usize,
}

#[derive(Debug)]
pub(super) struct TaskState {
    pub(super) target: Target,
    pub(super) options: TaskOptions,
    pub(super) streaming: bool,
    /// The bytes of the arguments.
    pub(super) bytes: usize,
    pub(super) gang: Option<Membership>,
    /// The data of a call, if the task is one.
    pub(super) call: Option<Call>,
    /// The family of this try's calls, while a call has no outcome.
    pub(super) family: Option<FamilyId>,
    /// A worker that helped with this task's calls was lost: no worker helps with them again while
    /// there is another way.
    pub(super) alone: bool,
    pub(super) tries: Tries,
    pub(super) position: Position,
    pub(super) links: Links,
    /// Since when this try has waited to be started.
    pub(super) since: Instant,
    /// The deadline that runs: that of the task's start, or that of its end.
    pub(super) timer: Option<(Instant, Timer)>,
    /// The worker imports the payload, which the timeout does not count.
    pub(super) importing: bool,
    /// The caller has an outcome; only the worker is not done with the task yet.
    pub(super) abandoned: bool,
}

/// A task's part in a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Membership {
    /// The gang's first task.
    pub(super) first: TaskId,
    pub(super) rank: Rank,
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// In the queue of the task's target.
    Queue,
    /// With the gang: the task waits for the others to start, or its value is held back.
    Gang,
    Worker(Rank),
    /// On a worker that runs the call within another task.
    Helped(Rank),
    /// In the backlog: the task's worker is lost.
    Lost,
}

/// When the worker of a caller may run a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Help {
    /// Whenever its main thread waits.
    Anytime,
    /// When the call falls back. The call has a timeout, and if it ignores the interrupt, it ends
    /// its worker.
    Late,
    /// When the call falls back and no worker is being started. The call has ended a worker.
    Last,
    /// Never.
    Never,
}

/// The number of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FamilyId(pub(super) u64);

/// The data that only a call has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) family: FamilyId,
    pub(super) parent: TaskId,
    pub(super) depth: u32,
    /// Whether the call has ended a worker.
    pub(super) risky: bool,
    /// Whether the workers of its callers may run the call.
    pub(super) help: bool,
}

impl TaskState {
    /// How many callers the task has above it.
    pub(super) fn depth(&self) -> u32 {
        self.call.map_or(0, |call| call.depth)
    }

    /// When the worker of a caller may run the call: what ends the call may end the caller too.
    pub(super) fn help(&self) -> Help {
        match self.call {
            Some(Call { help: true, risky: false, .. }) if self.options.timeout.is_none() => Help::Anytime,
            Some(Call { help: true, risky: false, .. }) => Help::Late,
            Some(Call { help: true, risky: true, .. }) => Help::Last,
            Some(Call { help: false, .. }) | None => Help::Never,
        }
    }
}

impl Linked for TaskState {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}
