//! The family of a task: the calls that one try of the task has made and that have no outcome.
//! Calls that wait are queued here, and not in the queue of the pool.
//!
//! Only a running task has a family, so the number of families is bounded by the workers and the
//! calls that they help with.

use std::time::Instant;

use super::Scheduler;
use super::calls::ended_caller;
use super::families::Family;
use super::table::{List, TaskTable};
use super::task::{Call, FamilyId, Position, TaskState};
use crate::ids::{Rank, TaskId};

impl Scheduler {
    /// Puts a call into the family of its caller's try. The first call makes the family.
    pub(super) fn join_family(&mut self, id: TaskId, parent: TaskId, help: bool) {
        let Some(caller) = self.tasks.get_mut(&parent) else { return };
        let (above, depth) = (caller.call.map(|call| call.family), caller.depth() + 1);
        let is_new = caller.family.is_none();
        let family = *caller.family.get_or_insert_with(|| {
            self.families.last += 1;
            FamilyId(self.families.last)
        });
        if is_new && let Some(above) = above.and_then(|above| self.families.table.get_mut(&above)) {
            above.below.insert(family);
        }
        let members = self.families.table.entry(family).or_insert_with(|| Family::new(parent, depth));
        members.open.insert(id);
        self.families.open += 1;
        if let Some(task) = self.tasks.get_mut(&id) {
            task.call = Some(Call { family, parent, depth, risky: false, help });
        }
    }

    /// A call has its outcome.
    pub(super) fn leave_family(&mut self, id: TaskId) {
        // Pools without calls must not pay for calls.
        if self.families.open == 0 {
            return;
        }
        let Some(call) = self.tasks.get(&id).and_then(|task| task.call) else { return };
        let Some(family) = self.families.table.get_mut(&call.family) else { return };
        self.families.open -= usize::from(family.open.remove(&id));
        if !family.open.is_empty() {
            return;
        }
        let (parent, ended) = (family.parent, family.ended);
        self.families.table.remove(&call.family);
        if !ended && let Some(above) = self.tasks.get_mut(&parent) {
            above.family = None;
            self.forget_below(parent, call.family);
        }
    }

    /// A try of a task is over: its calls, and their calls, no longer begin, and the backlog ends
    /// them.
    pub(super) fn end_calls(&mut self, id: TaskId) {
        if !self.is_caller(id) {
            return;
        }
        let Some(family) = self.tasks.get(&id).and_then(|task| task.family) else { return };
        self.forget_below(id, family);
        let mut left = vec![family];
        while let Some(id) = left.pop() {
            let Some(family) = self.families.table.get_mut(&id) else { continue };
            family.ended = true;
            left.extend(std::mem::take(&mut family.below));
            self.families.queued -= family.len();
            self.families.callers.remove(&family.key(id));
            if let Some(task) = self.tasks.get_mut(&family.parent) {
                task.family = None;
            }
            self.backlog.orphans.push_back(id);
        }
        self.disarm_fallback();
    }

    /// Ends the next call of a family whose caller's try is over.
    pub(super) fn end_orphan(&mut self, now: Instant, family: FamilyId) {
        match self.families.get(family).and_then(|family| family.open.first().copied()) {
            Some(id) => self.abandon(now, id, ended_caller()),
            None => drop(self.backlog.orphans.pop_front()),
        }
    }

    /// Whether the try that made this call is over.
    pub(super) fn is_orphan(&self, id: TaskId) -> bool {
        let call = self.tasks.get(&id).and_then(|task| task.call);
        call.is_some_and(|call| self.families.get(call.family).is_none_or(|family| family.ended))
    }

    /// The calls of a task that have no outcome.
    pub(super) fn calls_of(&self, id: TaskId) -> impl Iterator<Item = TaskId> + '_ {
        let family = self.tasks.get(&id).and_then(|task| task.family);
        family.and_then(|family| self.families.get(family)).into_iter().flat_map(|family| family.open.iter().copied())
    }

    /// Whether a task has calls without an outcome.
    pub(super) fn is_caller(&self, id: TaskId) -> bool {
        self.families.open > 0 && self.tasks.get(&id).is_some_and(|task| task.family.is_some())
    }

    /// Whether what a worker was sent first has calls without an outcome.
    pub(super) fn has_caller(&self, rank: Rank) -> bool {
        self.sent(rank).next().is_some_and(|id| self.is_caller(id))
    }

    pub(super) fn queue_call(&mut self, id: TaskId, add: fn(&mut List, &mut TaskTable<TaskState>, TaskId)) {
        let Some(task) = self.tasks.get(&id) else { return };
        let (Some(call), list) = (task.call, task.help() as usize) else { return };
        let Some(family) = self.families.table.get_mut(&call.family) else { return };
        debug_assert!(!family.ended, "a call of a try that is over does not wait");
        add(&mut family.queued[list], &mut self.tasks, id);
        self.families.queued += 1;
        self.families.callers.insert(family.key(call.family));
    }

    pub(super) fn unqueue_call(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        let (Some(call), list) = (task.call, task.help() as usize) else { return };
        let Some(family) = self.families.table.get_mut(&call.family) else { return };
        family.queued[list].remove(&mut self.tasks, id);
        if family.ended {
            return;
        }
        self.families.queued -= 1;
        if family.len() == 0 {
            self.families.callers.remove(&family.key(call.family));
        }
        self.disarm_fallback();
    }

    /// The callers above a task, the nearest first.
    pub(crate) fn above(&self, id: TaskId) -> impl Iterator<Item = TaskId> + '_ {
        let parent = |id: &TaskId| self.tasks.get(id).and_then(|task| task.call).map(|call| call.parent);
        std::iter::successors(parent(&id), parent)
    }

    /// The worker that runs a task.
    pub(crate) fn runner(&self, id: TaskId) -> Option<Rank> {
        match self.tasks.get(&id)?.position {
            Position::Worker(rank) | Position::Helped(rank) => Some(rank),
            _ => None,
        }
    }

    /// Removes a caller's family from the families below the one that the caller belongs to.
    fn forget_below(&mut self, caller: TaskId, family: FamilyId) {
        let above = self.tasks.get(&caller).and_then(|task| task.call).map(|call| call.family);
        if let Some(above) = above.and_then(|above| self.families.table.get_mut(&above)) {
            above.below.remove(&family);
        }
    }
}

/// The invariants of families.
#[cfg(any(test, debug_assertions))]
mod sanity;
