//! How the scheduler starts gangs, tries them again, and ends them.

use std::time::Instant;

use super::{Gang, GangPhase, Member, MemberState};
use crate::error::{Error, ErrorKind, WorkerExit};
use crate::ids::{Attempt, Rank, TaskId};
use crate::payload::{Outcome, Target, TaskOptions};
use crate::scheduler::task::{Membership, Position};
use crate::scheduler::timers::Timer;
use crate::scheduler::timing::SUSPICION;
use crate::scheduler::tries::Next;
use crate::scheduler::{Action, Scheduler, TaskData};

impl Scheduler {
    /// Takes a gang: one task per rank, in the order of ranks.
    pub fn submit_gang(&mut self, now: Instant, ids: &[TaskId], options: TaskOptions, streaming: bool) {
        debug_assert_eq!(ids.len(), self.workers.len());
        debug_assert!(!self.is_held());
        let Some(first) = ids.first().copied() else { return };
        for (rank, id) in ids.iter().enumerate() {
            let rank = Rank(rank as u32);
            let member = Membership { first, rank };
            self.insert(now, *id, Target::Rank(rank), options, TaskData { streaming, bytes: 0 }, Some(member));
        }
        self.gang_table.insert(first, Gang::new(ids));
        self.gangs.push_back(&mut self.gang_table, first);
        self.start_gang(now);
        // The gang has one timer for its wait, if it waits.
        if self.gang_table.get(&first).is_some_and(Gang::waits) {
            self.wait(now, first);
        }
    }

    /// The first gang in the queue, if all its members wait and every worker is idle.
    pub(in crate::scheduler) fn next_gang(&self) -> Option<TaskId> {
        let idle = self.counts.idle == self.workers.len() && self.failed.is_none();
        self.gangs.front().filter(|first| idle && self.gang_table.get(first).is_some_and(Gang::is_whole))
    }

    /// Starts the first gang in the queue if it can start. Every function that makes a worker idle
    /// calls this.
    pub(in crate::scheduler) fn start_gang(&mut self, now: Instant) {
        let Some(first) = self.next_gang() else { return };
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        gang.phase = GangPhase::Running;
        gang.running = gang.members.len();
        let ids: Vec<TaskId> = gang.members.iter().map(|member| member.id).collect();
        self.gangs.remove(&mut self.gang_table, first);
        for (rank, id) in ids.into_iter().enumerate() {
            self.send(now, Rank(rank as u32), id);
        }
        self.watch(now, first);
    }

    /// A member's worker answered, or was lost.
    pub(in crate::scheduler) fn settle_member(&mut self, now: Instant, of: Membership, id: TaskId, outcome: Outcome) {
        let retry = self.retry(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.position = Position::Gang;
        let (abandoned, streaming) = (task.abandoned, task.streaming);
        if abandoned {
            self.tasks.remove(&id);
        }
        let first = of.first;
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        gang.running -= 1;
        if let Some(watch) = &mut gang.watch {
            watch.leave(of.rank);
        }
        if abandoned {
            return;
        }
        let error = match (outcome, &mut gang.phase) {
            (_, GangPhase::Again { away }) => {
                *away -= 1;
                return;
            }
            // A stream is not tried again, and its reader waits for its end.
            (Ok(value), _) if streaming => return self.finish_member(of, Ok(value)),
            (Ok(value), _) => {
                gang.keep(of.rank, MemberState::Returned(value));
                if gang.is_failed() || gang.kept.len() == gang.left {
                    self.release(first);
                }
                return;
            }
            (Err(error), GangPhase::Failed(_)) => error,
            (Err(error), _) => match gang.tries.next(first, error, retry, self.limits.poison) {
                Next::Again(attempt, error) => return self.begin_again(now, first, attempt, &error, true),
                Next::Over(error) => error,
            },
        };
        if !gang.is_failed() && error.kind() == ErrorKind::Raised && gang.running > 0 {
            // If a peer has died, that death is the cause, and not the exception that a collective
            // raised because of it.
            gang.keep(of.rank, MemberState::Raised(error));
            self.timers.add(now, SUSPICION, Timer::Suspicion(first));
            return;
        }
        let cause = gang.fail(&error);
        let error = if error.exit() == Some(&WorkerExit::WorldEnded) { cause } else { error };
        self.finish_member(of, Err(error));
        self.release(first);
    }

    /// No peer was lost: the members fail with the exceptions that they raised.
    pub(in crate::scheduler) fn end_suspicion(&mut self, first: TaskId) {
        let Some(gang) = self.gang_table.get(&first) else { return };
        let raised = |rank: &Rank| matches!(gang.members[rank.0 as usize].state, MemberState::Raised(_));
        if gang.kept.iter().any(raised) {
            self.release(first);
        }
    }

    /// A member's caller got an outcome before the member ended. A waiting gang cannot run without
    /// the member, and ends; a running gang cannot be tried again.
    pub(in crate::scheduler) fn leave_gang(&mut self, now: Instant, of: Membership) {
        let Some(gang) = self.gang_table.get_mut(&of.first) else { return };
        gang.end(of.rank);
        if gang.waits() {
            let error = Error::new(
                ErrorKind::Cancelled,
                "the task was cancelled: another task of its gang was cancelled before the gang started",
            );
            return self.fail_gang(now, of.first, &error);
        }
        gang.fail(&Error::new(ErrorKind::Cancelled, "another task of the gang was cancelled"));
        self.release(of.first);
        self.forget_empty(of.first);
    }

    /// Tries the whole gang again. With `interrupt`, the members that still run are interrupted.
    fn begin_again(&mut self, now: Instant, first: TaskId, attempt: Attempt, error: &Error, interrupt: bool) {
        self.unwatch(first);
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        gang.phase = GangPhase::Again { away: gang.running };
        gang.kept.clear();
        let mut ids = Vec::with_capacity(gang.members.len());
        for member in &mut gang.members {
            debug_assert!(!matches!(member.state, MemberState::Ended), "a gang without a member is not tried again");
            member.state = MemberState::Open;
            ids.push(member.id);
        }
        self.gangs.push_front(&mut self.gang_table, first);
        for id in ids {
            self.disarm(id);
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            task.tries.attempt = attempt;
            task.since = now;
            let position = task.position;
            self.actions.push(Action::Retried { task: id, attempt, error: error.clone() });
            if let (Position::Worker(rank), true) = (position, interrupt) {
                self.interrupt(now, rank, id);
            }
        }
        self.wait(now, first);
        self.start_gang(now);
    }

    /// A gang that made no progress is tried again or fails. Its world ends too.
    pub(in crate::scheduler) fn settle_stalled(&mut self, now: Instant, first: TaskId, running: TaskId, error: Error) {
        let retry = self.retry(running);
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        if gang.is_failed() {
            return;
        }
        match gang.tries.next(first, error, retry, self.limits.poison) {
            Next::Again(attempt, error) => self.begin_again(now, first, attempt, &error, false),
            Next::Over(error) => drop(gang.fail(&error)),
        }
    }

    /// Ends all members of a gang with one error: waiting members do not start, running members are
    /// interrupted.
    pub(in crate::scheduler) fn fail_gang(&mut self, now: Instant, first: TaskId, error: &Error) {
        self.unwatch(first);
        self.unqueue_gang(first);
        let Some(gang) = self.gang_table.remove(&first) else { return };
        for member in gang.members {
            self.abandon(now, member.id, error.clone());
        }
        self.lift_barrier(now);
    }

    /// Whether a gang begins again as soon as all of its members are back.
    pub(in crate::scheduler) fn is_retrying(&self, of: Option<Membership>) -> bool {
        let gang = of.and_then(|of| self.gang_table.get(&of.first));
        gang.is_some_and(|gang| matches!(gang.phase, GangPhase::Again { .. }))
    }

    /// The members of a gang that a worker has, with their ranks.
    pub(in crate::scheduler) fn running_of(&self, first: TaskId) -> Vec<(Rank, TaskId)> {
        let members = self.gang_table.get(&first).map(|gang| gang.members.as_slice()).unwrap_or_default();
        let position = |member: &Member| self.tasks.get(&member.id).map(|task| task.position);
        let rank = |member: &Member| match position(member)? {
            Position::Worker(rank) => Some((rank, member.id)),
            _ => None,
        };
        members.iter().filter_map(rank).collect()
    }

    /// Reports the outcomes that were held back to the callers.
    fn release(&mut self, first: TaskId) {
        let Some(gang) = self.gang_table.get_mut(&first) else { return };
        let kept = std::mem::take(&mut gang.kept);
        let mut outcomes = Vec::with_capacity(kept.len());
        for rank in kept {
            let member = &mut gang.members[rank.0 as usize];
            match std::mem::replace(&mut member.state, MemberState::Open) {
                MemberState::Returned(value) => outcomes.push((rank, Ok(value))),
                MemberState::Raised(error) => outcomes.push((rank, Err(error))),
                ended => member.state = ended,
            }
        }
        if let Some(Err(error)) = outcomes.iter().map(|(_, outcome)| outcome).find(|outcome| outcome.is_err()) {
            gang.fail(error);
        }
        let lost = match &gang.phase {
            GangPhase::Failed(error) if error.exit().is_some() => Some(error.clone()),
            _ => None,
        };
        for (rank, outcome) in outcomes {
            let outcome = outcome.map_err(|error| lost.clone().unwrap_or(error));
            self.finish_member(Membership { first, rank }, outcome);
        }
    }

    fn finish_member(&mut self, of: Membership, outcome: Outcome) {
        let Some(gang) = self.gang_table.get_mut(&of.first) else { return };
        let id = gang.members[of.rank.0 as usize].id;
        gang.end(of.rank);
        self.finish(id, outcome);
        self.forget_empty(of.first);
    }

    /// Removes the gang if all its members have their outcome.
    fn forget_empty(&mut self, first: TaskId) {
        if self.gang_table.get(&first).is_some_and(|gang| gang.left == 0) {
            self.unwatch(first);
            self.unqueue_gang(first);
            self.gang_table.remove(&first);
        }
    }

    fn unqueue_gang(&mut self, first: TaskId) {
        if self.gang_table.get(&first).is_some_and(Gang::waits) {
            self.gangs.remove(&mut self.gang_table, first);
        }
    }

    /// A waiting gang is gone: the tasks that it held back may start.
    fn lift_barrier(&mut self, now: Instant) {
        self.start_gang(now);
        self.look_all();
    }
}
