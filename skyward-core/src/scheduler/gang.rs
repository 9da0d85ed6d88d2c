//! Gangs: tasks that must run at the same time, one per rank. What happens to one of them decides for all: they start together, and are tried again together or not at all.

use std::time::{Duration, Instant};

use super::stall::Watch;
use super::state::{TaskState, Timer};
use super::tries::{Next, Tries};
use super::{Action, Scheduler};
use crate::error::{Error, ErrorKind, WorkerExit};
use crate::ids::{Rank, TaskId};
use crate::payload::{Outcome, Value};

/// The tasks of a gang that have no outcome yet.
#[derive(Debug, Default)]
pub(super) struct Gang {
    pub(super) members: Vec<(Rank, TaskId)>,
    /// Members that wait to be started; the gang starts when all of them do.
    pub(super) waiting: usize,
    /// Values that were returned, kept back until all members have returned: until then the gang may have to run again.
    pub(super) held: Vec<(TaskId, Value)>,
    /// Members that raised while others run: perhaps only because a peer is gone, which is told a little later.
    pub(super) suspects: Vec<(TaskId, Error)>,
    pub(super) tries: Tries,
    /// It is to run again as soon as all members are back.
    pub(super) retrying: bool,
    /// What a member failed with for good: the others are on their own, and those that are lost with it fail with the same.
    pub(super) failure: Option<Error>,
    pub(super) watch: Option<Watch>,
}

impl Scheduler {
    pub(super) fn enqueue_gang(&mut self, ids: &[TaskId]) {
        let Some(first) = ids.first() else { return };
        let members: Vec<_> = ids.iter().enumerate().map(|(rank, id)| (Rank(rank as u32), *id)).collect();
        self.gang_table.insert(*first, Gang { waiting: members.len(), members, ..Gang::default() });
        self.gangs.push_back(*first);
    }

    /// Starts the gang in front if all its members wait and every worker is idle.
    pub(super) fn start_gang(&mut self, now: Instant) {
        while let Some(first) = self.gangs.front().copied() {
            let Some(gang) = self.gang_table.get_mut(&first) else {
                self.gangs.pop_front();
                continue;
            };
            let idle = self.workers.iter().all(|worker| worker.ready && !worker.leaving && worker.sent.is_empty());
            if !idle || gang.waiting < gang.members.len() {
                return;
            }
            gang.waiting = 0;
            gang.retrying = false;
            let members = gang.members.clone();
            self.gangs.pop_front();
            for (rank, id) in members {
                self.send(now, rank, id);
            }
            self.watch(now, first);
        }
    }

    /// A member's worker answered, or was lost.
    pub(super) fn settle_member(&mut self, now: Instant, first: TaskId, id: TaskId, outcome: Outcome) {
        if self.tasks.get(&id).is_none_or(|task| task.abandoned) {
            self.tasks.remove(&id);
            return;
        }
        let others_run = self.others_run(first, id);
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        if gang.retrying {
            gang.waiting += 1;
            return;
        }
        match outcome {
            // A stream is not tried again, and its reader waits for its end.
            Ok(value) if self.tasks.get(&id).is_some_and(|task| task.streaming) => {
                self.finish_member(first, id, Ok(value))
            }
            Ok(value) => {
                gang.held.push((id, value));
                if gang.failure.is_some() || gang.held.len() + gang.suspects.len() == gang.members.len() {
                    self.release(first);
                }
            }
            Err(error) => {
                let retry = self.tasks.get(&id).map(TaskState::retry).unwrap_or_default();
                let error = if gang.failure.is_some() {
                    error
                } else {
                    match gang.tries.next(first, error, retry, self.limits.poison) {
                        Next::Again(_, error) => return self.retry_gang(now, first, id, error),
                        Next::Over(error) => error,
                    }
                };
                if gang.failure.is_none() && error.kind() == ErrorKind::Remote && others_run {
                    return self.suspect(now, first, id, error);
                }
                let cause = gang.failure.get_or_insert_with(|| error.clone()).clone();
                let error = if error.exit() == Some(&WorkerExit::WorldEnded) { cause } else { error };
                self.finish_member(first, id, Err(error));
                self.release(first);
            }
        }
    }

    /// No peer was lost: what the members raised is what they failed with.
    pub(super) fn end_suspicion(&mut self, first: TaskId) {
        if self.gang_table.get(&first).is_some_and(|gang| !gang.suspects.is_empty()) {
            self.release(first);
        }
    }

    /// A member's caller does not wait any more. A gang that waits cannot run without it.
    pub(super) fn leave_gang(&mut self, first: TaskId, id: TaskId) {
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        gang.members.retain(|(_, member)| *member != id);
        gang.held.retain(|(member, _)| *member != id);
        gang.suspects.retain(|(member, _)| *member != id);
        let cancelled = || Error::new(ErrorKind::Cancelled, "another task of the gang was cancelled");
        gang.failure.get_or_insert_with(cancelled);
        if gang.waiting > 0 {
            let others: Vec<TaskId> = gang.members.iter().map(|(_, member)| *member).collect();
            let others =
                others.into_iter().filter(|other| self.tasks.get(other).is_some_and(|task| task.sent_to.is_none()));
            for other in others.collect::<Vec<_>>() {
                let error = Error::new(
                    ErrorKind::Cancelled,
                    "the task was cancelled: another task of its gang was, before the gang started",
                );
                self.finish_member(first, other, Err(error));
            }
        }
        self.release(first);
        self.forget_empty(first);
    }

    fn retry_gang(&mut self, now: Instant, first: TaskId, failed: TaskId, error: Error) {
        self.unwatch(first);
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        gang.retrying = true;
        gang.held.clear();
        gang.suspects.clear();
        let attempt = gang.tries.attempt;
        let members = gang.members.clone();
        gang.waiting = 0;
        for (rank, id) in members {
            self.disarm(id);
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            task.tries.attempt = attempt;
            let running = id != failed && task.sent_to.is_some();
            self.actions.push(Action::Retried { task: id, attempt, error: error.clone() });
            if running {
                self.interrupt(now, rank, id);
            } else if let Some(gang) = self.gang_table.get_mut(&first) {
                gang.waiting += 1;
            }
        }
        self.gangs.push_front(first);
        self.wait(now, first);
        self.start_gang(now);
    }

    /// Ends all members of a gang with one error: those that wait do not start, those that run are told to end.
    pub(super) fn fail_gang(&mut self, now: Instant, first: TaskId, error: &Error) {
        self.unwatch(first);
        let Some(gang) = self.gang_table.remove(&first) else { return };
        self.gangs.retain(|queued| *queued != first);
        for (_, id) in gang.members {
            if let Some(task) = self.tasks.get_mut(&id) {
                task.gang = None;
            }
            self.abandon(now, id, error.clone());
        }
    }

    /// Whether a gang begins anew as soon as all of its members are back.
    pub(super) fn is_retrying(&self, first: Option<TaskId>) -> bool {
        first.and_then(|first| self.gang_table.get(&first)).is_some_and(|gang| gang.retrying)
    }

    fn others_run(&self, first: TaskId, id: TaskId) -> bool {
        let runs = |member: &TaskId| self.tasks.get(member).is_some_and(|task| task.sent_to.is_some());
        self.gang_table
            .get(&first)
            .is_some_and(|gang| gang.members.iter().any(|(_, member)| *member != id && runs(member)))
    }

    /// Keeps an error back for a moment: where a peer has died, its death is the cause, and what a collective raised because of it is not.
    fn suspect(&mut self, now: Instant, first: TaskId, id: TaskId, error: Error) {
        if let Some(gang) = self.gang_table.get_mut(&first) {
            gang.suspects.push((id, error));
            self.timers.add(now, SUSPICION, Timer::Suspicion(first));
        }
    }

    /// Gives the callers what was kept back.
    fn release(&mut self, first: TaskId) {
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        let suspects = std::mem::take(&mut gang.suspects);
        if let Some((_, error)) = suspects.first() {
            gang.failure.get_or_insert_with(|| error.clone());
        }
        let lost = gang.failure.clone().filter(|failure| failure.exit().is_some());
        for (id, value) in std::mem::take(&mut gang.held) {
            self.finish_member(first, id, Ok(value));
        }
        for (id, error) in suspects {
            self.finish_member(first, id, Err(lost.clone().unwrap_or(error)));
        }
    }

    fn finish_member(&mut self, first: TaskId, id: TaskId, outcome: Outcome) {
        self.finish(id, outcome);
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        gang.members.retain(|(_, member)| *member != id);
        self.forget_empty(first);
    }

    /// Nobody waits for any of its members any more.
    fn forget_empty(&mut self, first: TaskId) {
        if self.gang_table.get(&first).is_some_and(|gang| gang.members.is_empty()) {
            self.unwatch(first);
            self.gang_table.remove(&first);
            self.gangs.retain(|queued| *queued != first);
        }
    }
}

/// How much later than a peer's error the end of a process may be told.
const SUSPICION: Duration = Duration::from_secs(1);
