//! Gangs: tasks that must run at the same time, one per rank. The tasks of a gang share one fate:
//! they start together or not at all, and are tried again together or not at all.

use std::time::{Duration, Instant};

use super::stall::Watch;
use super::state::{Membership, Place, TaskState, Timer};
use super::table::{Linked, Links};
use super::tries::{Next, Tries};
use super::{Action, Scheduler};
use crate::error::{Error, ErrorKind, WorkerExit};
use crate::ids::{Attempt, Rank, TaskId};
use crate::payload::{Outcome, TaskOptions, Value};

/// A gang. It exists until each of its tasks has an outcome.
#[derive(Debug)]
pub(super) struct Gang {
    /// By rank.
    members: Vec<Member>,
    phase: GangPhase,
    /// The number of members that have no outcome yet.
    left: usize,
    /// The number of members that a worker has.
    running: usize,
    /// The members whose outcome is held back.
    kept: Vec<Rank>,
    tries: Tries,
    links: Links,
    pub(super) watch: Option<Watch>,
}

/// The state of a gang. While a gang waits, the first time or for another try, it is in the queue
/// of gangs; it starts only from there, with all of its members.
#[derive(Debug)]
enum GangPhase {
    /// The gang waits until every worker is idle.
    Waiting,
    /// The workers have its members.
    Running,
    /// A try has failed. The gang starts again when `away` more members are back from their
    /// workers, and every worker is idle.
    Again { away: usize },
    /// The gang failed for good with this error. Each member now ends alone; members that are lost
    /// with the world fail with the same error.
    Failed(Error),
}

#[derive(Debug)]
struct Member {
    id: TaskId,
    state: MemberState,
}

#[derive(Debug)]
enum MemberState {
    /// The member has no outcome yet.
    Open,
    /// The member returned. The value is held back until all members have returned: until then the
    /// gang may have to run again.
    Returned(Value),
    /// The member raised while others run. The cause may be a lost peer, which is reported a little
    /// later.
    Raised(Error),
    /// The caller has the outcome.
    Ended,
}

impl Scheduler {
    /// Takes a gang: one task per rank, in the order of ranks.
    pub fn submit_gang(&mut self, now: Instant, ids: &[TaskId], options: TaskOptions, streaming: bool) {
        debug_assert_eq!(ids.len(), self.workers.len());
        debug_assert!(!self.held);
        let Some(first) = ids.first().copied() else { return };
        for (rank, id) in ids.iter().enumerate() {
            let rank = Rank(rank as u32);
            let member = Membership { first, rank };
            self.insert(*id, crate::payload::Target::Rank(rank), options, streaming, Some(member));
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
    pub(super) fn next_gang(&self) -> Option<TaskId> {
        let idle = self.counts.idle == self.workers.len() && self.failed.is_none();
        self.gangs.front().filter(|first| idle && self.gang_table.get(first).is_some_and(Gang::is_whole))
    }

    /// Starts the first gang in the queue if it can start. Every function that makes a worker idle
    /// calls this.
    pub(super) fn start_gang(&mut self, now: Instant) {
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
    pub(super) fn settle_member(&mut self, now: Instant, of: Membership, id: TaskId, outcome: Outcome) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.place = Place::Gang;
        let (abandoned, streaming, retry) = (task.abandoned, task.streaming, task.retry());
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
    pub(super) fn end_suspicion(&mut self, first: TaskId) {
        let Some(gang) = self.gang_table.get(&first) else { return };
        let raised = |rank: &Rank| matches!(gang.members[rank.0 as usize].state, MemberState::Raised(_));
        if gang.kept.iter().any(raised) {
            self.release(first);
        }
    }

    /// A member's caller got an outcome before the member ended. A waiting gang cannot run without
    /// the member, and ends; a running gang cannot be tried again.
    pub(super) fn leave_gang(&mut self, now: Instant, of: Membership) {
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
            let place = task.place;
            self.actions.push(Action::Retried { task: id, attempt, error: error.clone() });
            if let (Place::Worker(rank), true) = (place, interrupt) {
                self.interrupt(now, rank, id);
            }
        }
        self.wait(now, first);
        self.start_gang(now);
    }

    /// A gang that made no progress is tried again or fails. Its world ends too.
    pub(super) fn settle_stalled(&mut self, now: Instant, first: TaskId, running: TaskId, error: Error) {
        let retry = self.tasks.get(&running).map(TaskState::retry).unwrap_or_default();
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
    pub(super) fn fail_gang(&mut self, now: Instant, first: TaskId, error: &Error) {
        self.unwatch(first);
        self.unqueue_gang(first);
        let Some(gang) = self.gang_table.remove(&first) else { return };
        for member in gang.members {
            self.abandon(now, member.id, error.clone());
        }
        self.lift_barrier(now);
    }

    /// Whether a gang begins again as soon as all of its members are back.
    pub(super) fn is_retrying(&self, of: Option<Membership>) -> bool {
        let gang = of.and_then(|of| self.gang_table.get(&of.first));
        gang.is_some_and(|gang| matches!(gang.phase, GangPhase::Again { .. }))
    }

    /// The members of a gang that a worker has, with their ranks.
    pub(super) fn running_of(&self, first: TaskId) -> Vec<(Rank, TaskId)> {
        let members = self.gang_table.get(&first).map(|gang| gang.members.as_slice()).unwrap_or_default();
        let place = |member: &Member| self.tasks.get(&member.id).map(|task| task.place);
        let rank = |member: &Member| match place(member)? {
            Place::Worker(rank) => Some((rank, member.id)),
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

impl Gang {
    fn new(ids: &[TaskId]) -> Self {
        Self {
            members: ids.iter().map(|id| Member { id: *id, state: MemberState::Open }).collect(),
            phase: GangPhase::Waiting,
            left: ids.len(),
            running: 0,
            kept: Vec::new(),
            tries: Tries::default(),
            links: Links::default(),
            watch: None,
        }
    }

    pub(super) fn size(&self) -> usize {
        self.members.len()
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn ids(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.members.iter().map(|member| member.id)
    }

    /// Whether a waiting gang has all of its members, and the counts are right.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn is_possible(&self) -> bool {
        let open = self.members.iter().filter(|member| matches!(member.state, MemberState::Open)).count();
        let ended = self.members.iter().filter(|member| matches!(member.state, MemberState::Ended)).count();
        let away = match self.phase {
            GangPhase::Again { away } => away,
            GangPhase::Waiting => 0,
            _ => self.running,
        };
        away == self.running
            && self.left == self.members.len() - ended
            && self.kept.len() == self.left - open
            && (!self.waits() || open == self.members.len())
    }

    /// Whether the gang is in the queue of gangs.
    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, GangPhase::Waiting | GangPhase::Again { .. })
    }

    /// Whether all of its members wait.
    fn is_whole(&self) -> bool {
        matches!(self.phase, GangPhase::Waiting | GangPhase::Again { away: 0 })
    }

    fn is_failed(&self) -> bool {
        matches!(self.phase, GangPhase::Failed(_))
    }

    /// Makes the gang fail for good. Returns the error that it failed with first.
    fn fail(&mut self, error: &Error) -> Error {
        match &self.phase {
            GangPhase::Failed(first) => first.clone(),
            _ => {
                self.phase = GangPhase::Failed(error.clone());
                error.clone()
            }
        }
    }

    fn keep(&mut self, rank: Rank, state: MemberState) {
        self.members[rank.0 as usize].state = state;
        self.kept.push(rank);
    }

    fn end(&mut self, rank: Rank) {
        let member = &mut self.members[rank.0 as usize];
        if !matches!(std::mem::replace(&mut member.state, MemberState::Ended), MemberState::Ended) {
            self.left -= 1;
        }
    }
}

impl Linked for Gang {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// How much later than a peer's error the report of an ended process may arrive.
const SUSPICION: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
