//! What happens to a lost worker and to its tasks.

use std::time::Instant;

use super::{Action, Scheduler, policy};
use crate::error::{Error, ErrorKind, WorkerExit};
use crate::ids::{NodeIndex, Rank, TaskId};

impl Scheduler {
    /// A worker process has ended, and answers that it sent before are still being read. The worker
    /// gets no more tasks.
    pub fn on_ended(&mut self, rank: Rank) {
        self.workers[rank.0 as usize].ended = true;
        self.refresh(rank);
    }

    /// A worker process has ended. Each task that it still has may have begun; `last` is the task
    /// that began last, if known.
    pub fn on_lost(&mut self, now: Instant, rank: Rank, exit: &WorkerExit, last: Option<TaskId>) {
        if !self.workers[rank.0 as usize].ready {
            return;
        }
        // The task that the worker ran is the cause; without a task it is the environment, or the
        // machine.
        let worker = &self.workers[rank.0 as usize];
        let barren = worker.load() == 0 && !exit.is_node_loss();
        if worker.idle_since.is_some_and(|since| now.saturating_duration_since(since) >= policy::SOUND) {
            let node = worker.node;
            self.barren_restarts = 0;
            self.nodes[node].sick = 0;
        }
        self.lose(rank, Error::worker_exited(rank, exit.clone()), last);
        self.end_world();
        self.hand_on();
        self.work(now);
        if barren {
            self.start_again(rank, |times| {
                let what = format!(
                    "idle workers ended {times} times in a row, and no task returned in between; the last worker {exit}"
                );
                Error::new(ErrorKind::WorkerExited, what)
            });
        } else {
            self.restart(rank);
        }
    }

    /// A worker could not be started again.
    pub fn on_start_failed(&mut self, rank: Rank, error: &Error) {
        self.start_again(rank, |times| {
            let what = format!(
                "workers were lost or could not be started again {times} times without one task returning in between"
            );
            Error::new(error.kind(), what).with_source(error.clone())
        });
    }

    /// In a joined world, the loss of one worker is the loss of all.
    pub(super) fn end_world(&mut self) {
        for rank in self.ranks() {
            if self.joined && self.is_ready(rank) {
                self.lose(rank, Error::worker_exited(rank, WorkerExit::WorldEnded), None);
            }
        }
    }

    /// Restarts a worker, or its world, that was lost while it ran no task. Reports a sick node, or
    /// fails the pool, when restarts have not helped.
    fn start_again(&mut self, rank: Rank, why: impl FnOnce(u32) -> Error) {
        let Some(node) = self.workers.get(rank.0 as usize).map(|worker| worker.node) else { return };
        if self.failed.is_some() {
            return;
        }
        self.barren_restarts += 1;
        self.nodes[node].sick += 1;
        let times = self.nodes[node].sick;
        let alone = self.nodes.iter().filter(|record| record.sick > 0).count() == 1;
        if times > policy::MAX_SICK && alone && (self.apart || self.active() > 1) {
            // If the workers of all nodes failed, the machines are not the cause.
            self.barren_restarts = 0;
            self.nodes[node].sick = 0;
            return self.actions.push(Action::NodeSick { node: NodeIndex(node as u32), error: why(times) });
        }
        if self.barren_restarts > policy::MAX_BARREN_RESTARTS {
            let why = why(self.barren_restarts);
            let hint = "look at the workers' output: the environment or the machine is broken";
            self.fail(why.of_kind(ErrorKind::Failed).with_hint(hint));
        } else {
            self.restart(rank);
        }
    }

    pub(super) fn restart(&mut self, rank: Rank) {
        if self.failed.is_some() {
            return;
        }
        self.actions.push(match self.joined {
            true => Action::RestartWorld { lost: rank },
            false => Action::RestartWorker { rank },
        });
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
