//! What a scheduler says is to be done.

use std::time::Duration;

use super::Scheduler;
use crate::error::{Error, RankStacks};
use crate::ids::{Attempt, NodeIndex, Rank, TaskId};
use crate::payload::Outcome;

/// What the owner of a [`Scheduler`] has to do, in this order.
#[derive(Debug, Clone)]
pub enum Action {
    /// Send the task to the worker.
    Send {
        /// Which worker.
        rank: Rank,
        /// Which task.
        task: TaskId,
    },
    /// The worker begins with the task about now.
    Started {
        /// Which worker.
        rank: Rank,
        /// Which task.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
    },
    /// Have the worker run the call within the task that it runs. [`Action::Started`] follows;
    /// [`Scheduler::on_helped`] or [`Scheduler::on_refused`] takes the answer, which is one also where
    /// that task has ended meanwhile.
    Help {
        /// Which worker.
        rank: Rank,
        /// Which call.
        task: TaskId,
        /// Which try.
        attempt: Attempt,
        /// The task within which its main thread waits, and is to run the call; none: on another thread of the worker.
        within: Option<TaskId>,
    },
    /// Give the task's caller its outcome, and forget the task's arguments.
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
        /// The try that comes.
        attempt: Attempt,
        /// Why the one before failed.
        error: Error,
    },
    /// Tell the worker to drop or to end the task, which may be a call that it helps with.
    Cancel {
        /// Which worker.
        rank: Rank,
        /// Which task.
        task: TaskId,
        /// Whether it is running, so that the agent has to interrupt the worker.
        interrupt: bool,
    },
    /// End the worker's whole process tree: it did not heed an interrupt.
    Kill {
        /// Which worker.
        rank: Rank,
    },
    /// Ask the worker to give back the tasks that it has not begun: [`Scheduler::on_not_begun`] takes the answer.
    Recall {
        /// Which worker.
        rank: Rank,
    },
    /// Ask the worker where it is: [`Scheduler::on_stacks`] takes the answer.
    Inspect {
        /// Which worker.
        rank: Rank,
        /// What it runs.
        task: TaskId,
    },
    /// Say that a gang has made no progress. It goes on.
    Stalled {
        /// Those of its tasks that a worker has.
        tasks: Vec<TaskId>,
        /// For how long.
        silent: Duration,
        /// Where each of their ranks is.
        stacks: Vec<RankStacks>,
    },
    /// Start this worker again.
    RestartWorker {
        /// Which worker.
        rank: Rank,
    },
    /// End every worker and start all of them together, as a new generation.
    RestartWorld {
        /// The first that was lost, or that is to be ended.
        lost: Rank,
    },
    /// End what is left of this node's machine, launch another, and start its workers there; in a joined world all workers.
    ReplaceNode {
        /// Which node.
        node: NodeIndex,
    },
    /// The node's machine is of no use: its workers cannot be started. It is to be taken for lost.
    NodeSick {
        /// Which node.
        node: NodeIndex,
        /// What the last start failed with.
        error: Error,
    },
    /// A node that is to leave has nothing more to do.
    NodeDrained {
        /// Which node.
        node: NodeIndex,
    },
    /// A world whose size is to change has nothing more to do.
    WorldIdle,
}

impl Scheduler {
    /// What is to be done since the last call.
    pub fn take_actions(&mut self, into: &mut Vec<Action>) {
        self.tell_departures();
        into.append(&mut self.actions);
        #[cfg(debug_assertions)]
        self.check_if_small();
    }
}
