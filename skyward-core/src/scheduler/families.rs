//! The families of calls: which calls wait for a worker, below which caller.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::table::List;
use super::task::{FamilyId, Help};
use crate::ids::TaskId;

/// The calls of one try of a task.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) parent: TaskId,
    /// The depth of its calls.
    pub(super) depth: u32,
    /// Waiting calls, by [`Help`].
    pub(super) queued: [List; 4],
    /// All calls of the family.
    pub(super) open: BTreeSet<TaskId>,
    /// The families of its calls that make calls themselves.
    pub(super) below: BTreeSet<FamilyId>,
    /// Whether the parent's try is over, which ends the calls too.
    pub(super) ended: bool,
}

/// All families.
#[derive(Debug, Default)]
pub(super) struct Families {
    pub(super) table: BTreeMap<FamilyId, Family>,
    pub(super) last: u64,
    /// The families with waiting calls: the deepest first, then those of the oldest caller.
    pub(super) callers: BTreeSet<(Reverse<u32>, TaskId, FamilyId)>,
    pub(super) queued: usize,
    pub(super) open: usize,
}

impl Families {
    /// The number of calls that wait for a worker and whose caller runs.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// The number of calls without an outcome.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// The next call for a free worker.
    pub(super) fn first_queued(&self) -> Option<TaskId> {
        let (_, _, family) = self.callers.first()?;
        self.table.get(family)?.first()
    }

    /// The families with waiting calls, the deepest first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Family> {
        self.callers.iter().filter_map(|(_, _, family)| self.table.get(family))
    }

    /// The deepest waiting call in this family and those below it that a caller's worker may run, if
    /// it may run calls up to `most`.
    pub(super) fn deepest_below(&self, top: FamilyId, most: Help) -> Option<TaskId> {
        let mut deepest: Option<(Reverse<u32>, TaskId, TaskId)> = None;
        let mut left = vec![top];
        while let Some(family) = left.pop().and_then(|family| self.table.get(&family)) {
            left.extend(&family.below);
            if let Some(id) = family.helpable(most) {
                let found = (Reverse(family.depth), family.parent, id);
                deepest = Some(deepest.map_or(found, |deepest| deepest.min(found)));
            }
        }
        deepest.map(|(_, _, id)| id)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty() && self.callers.is_empty() && (self.queued, self.open) == (0, 0)
    }

    pub(super) fn get(&self, family: FamilyId) -> Option<&Family> {
        self.table.get(&family)
    }
}

impl Family {
    /// The oldest waiting call.
    pub(super) fn first(&self) -> Option<TaskId> {
        self.queued.iter().filter_map(List::front).min()
    }

    /// The waiting call that a caller's worker runs first, if it may run calls up to `most`.
    pub(super) fn helpable(&self, most: Help) -> Option<TaskId> {
        self.queued[..=most as usize].iter().find_map(List::front)
    }

    pub(super) fn len(&self) -> usize {
        self.queued.iter().map(List::len).sum()
    }

    pub(super) fn key(&self, id: FamilyId) -> (Reverse<u32>, TaskId, FamilyId) {
        (Reverse(self.depth), self.parent, id)
    }
}

impl Family {
    pub(super) fn new(parent: TaskId, depth: u32) -> Self {
        Self { parent, depth, queued: Default::default(), open: BTreeSet::new(), below: BTreeSet::new(), ended: false }
    }
}
