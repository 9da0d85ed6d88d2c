//! Gangs: tasks that must run at the same time, one per rank. The tasks of a gang share one fate:
//! they start together or not at all, and are tried again together or not at all.

mod lifecycle;

use super::table::{Linked, Links};
use super::tries::Tries;
use super::watch::Watch;
use crate::error::Error;
use crate::ids::{Rank, TaskId};
use crate::payload::Value;

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

#[cfg(test)]
mod tests;
