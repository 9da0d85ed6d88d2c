//! The actions that a scheduler emits.

use std::time::Duration;

use crate::error::{Error, LastWords, RankStacks, WorkerExit};
use crate::ids::{Attempt, NodeIndex, Rank, TaskId};
use crate::payload::Outcome;

/// What the owner of a [`Scheduler`](super::Scheduler) must do. The owner carries out actions in the
/// order in which the scheduler emits them.
#[derive(Debug, Clone)]
pub enum Action {
    /// Send the task to the worker.
    Send {
        /// Which worker.
        rank: Rank,
        /// Which task.
        task: TaskId,
    },
    /// The worker starts the task about now.
    Started {
        /// Which worker.
        rank: Rank,
        /// Which task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// How long the task waited for this try's start.
        waited: Duration,
    },
    /// Make the worker run the call within the task that it runs. [`Action::Started`] follows.
    /// Report the worker's answer to [`on_helped`](super::Scheduler::on_helped) or
    /// [`on_refused`](super::Scheduler::on_refused); the worker also answers when that task has ended
    /// in the meantime.
    Help {
        /// Which worker.
        rank: Rank,
        /// Which call.
        task: TaskId,
        /// The task within which the worker's main thread waits and runs the call. `None`: another
        /// thread of the worker runs the call.
        within: Option<TaskId>,
    },
    /// Report the outcome to the task's caller, and drop the task's arguments.
    Finish {
        /// Which task.
        task: TaskId,
        /// How it ended.
        outcome: Outcome,
    },
    /// The task is tried again.
    Retried {
        /// Which task.
        task: TaskId,
        /// The next try.
        attempt: Attempt,
        /// Why the previous try failed.
        error: Error,
    },
    /// Make the worker drop or end the task, which may be a call that it helps with.
    Cancel {
        /// Which worker.
        rank: Rank,
        /// Which task.
        task: TaskId,
        /// Whether it is running, so that the agent has to interrupt the worker.
        interrupt: bool,
    },
    /// End the worker's whole process tree: it did not react to an interrupt.
    Kill {
        /// Which worker.
        rank: Rank,
    },
    /// Ask the worker to return the tasks that it has not begun. Report the answer to
    /// [`on_not_begun`](super::Scheduler::on_not_begun).
    Recall {
        /// Which worker.
        rank: Rank,
    },
    /// Ask the worker for the stacks of its threads. Report the answer to
    /// [`on_stacks`](super::Scheduler::on_stacks).
    Inspect {
        /// Which worker.
        rank: Rank,
        /// The task that the worker runs.
        task: TaskId,
    },
    /// Ask the worker for the stacks of its threads, because a task that it runs has passed its
    /// timeout. Report the answer to [`on_stacks`](super::Scheduler::on_stacks).
    Locate {
        /// Which worker.
        rank: Rank,
    },
    /// Report that a gang has made no progress. The gang goes on.
    Stalled {
        /// The gang's tasks that a worker has.
        tasks: Vec<TaskId>,
        /// For how long the gang has made no progress.
        silent: Duration,
        /// The stacks of each of their ranks.
        stacks: Vec<RankStacks>,
    },
    /// This worker was lost, or must end: start it again. A joined world ends with it: start all of
    /// its workers together, as a new generation.
    Lost {
        /// Which worker.
        rank: Rank,
        /// What the loss says about the worker's node.
        loss: Loss,
    },
    /// A draining node has no more tasks.
    NodeDrained {
        /// Which node.
        node: NodeIndex,
    },
    /// A resizing world has no more tasks.
    WorldIdle,
}

/// What the loss of a worker says about its node.
#[derive(Debug, Clone, Default)]
pub struct Loss {
    /// How the worker ended, if it ended by itself while it ran no task: the environment or the
    /// machine is the cause. Also what it wrote last on standard error.
    pub idle: Option<(WorkerExit, LastWords)>,
    /// For how long the worker had been ready, or had run its last task.
    pub lasted: Duration,
}
