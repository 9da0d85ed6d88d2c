use super::*;

impl Scheduler {
    /// Checks that calls are in the families of running tasks, and that the counts are right.
    /// Returns how many calls wait there.
    pub(in crate::scheduler) fn check_calls(&self) -> usize {
        let families = &self.families;
        let (mut placed, mut queued, mut open) = (0, 0, 0);
        for (id, family) in &families.table {
            for list in &family.queued {
                for call in list.iter(&self.tasks) {
                    let task = self.tasks.get(&call).filter(|task| task.position == Position::Queue && !task.abandoned);
                    assert!(task.is_some() && family.open.contains(&call), "call {call}: {self:?}");
                }
                assert_eq!(list.iter(&self.tasks).count(), list.len(), "family {id:?}: {self:?}");
            }
            placed += family.len();
            open += family.open.len();
            assert!(!family.open.is_empty(), "family {id:?}: {self:?}");
            let of_it = |call: &Call| call.family == *id && call.parent == family.parent && call.depth == family.depth;
            for call in &family.open {
                let task = self.tasks.get(call).filter(|task| !task.abandoned);
                assert!(task.and_then(|task| task.call).as_ref().is_some_and(of_it), "call {call}: {self:?}");
            }
            let listed = families.callers.contains(&family.key(*id));
            if family.ended {
                assert!(!listed && self.backlog.orphans.contains(id), "family {id:?}: {self:?}");
                continue;
            }
            queued += family.len();
            assert_eq!(listed, family.len() > 0, "family {id:?}: {self:?}");
            let parent = self.tasks.get(&family.parent).filter(|task| task.family == Some(*id) && !task.abandoned);
            assert!(parent.is_some_and(|task| task.gang.is_none()), "family {id:?} without a caller: {self:?}");
            let runs = self.runner(family.parent).is_some_and(|rank| self.workers[rank.0 as usize].ready);
            assert!(runs, "the caller {} does not run: {self:?}", family.parent);
            for below in &family.below {
                let below = families.table.get(below).filter(|below| !below.ended);
                assert!(below.is_some_and(|below| family.open.contains(&below.parent)), "family {id:?}: {self:?}");
            }
            let above = parent.and_then(|task| task.call).map(|call| call.family);
            let above = above.and_then(|above| families.table.get(&above));
            assert!(above.is_none_or(|above| above.below.contains(id)), "family {id:?}: {self:?}");
        }
        assert_eq!(queued, families.queued, "{self:?}");
        assert_eq!(open, families.open, "{self:?}");
        assert!(families.callers.iter().all(|(_, _, id)| families.table.contains_key(id)), "{self:?}");
        for rank in self.ranks() {
            self.check_frames(rank);
        }
        self.check_fallback();
        placed
    }
}
