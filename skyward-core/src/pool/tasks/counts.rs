//! Counts the calls below each task that Rust has submitted. Changes are counted as they occur and
//! reported together from time to time, never one by one.

use std::collections::BTreeMap;
use std::time::Instant;

use super::timing::REPORT_DELAY;
use crate::event::PoolEvent;
use crate::ids::{Attempt, TaskId};

/// One try of a task that Rust has submitted: the root of the calls below it.
pub(crate) type Root = (TaskId, Attempt);

/// The calls of all tasks. A pool without calls has no tree.
#[derive(Debug, Default)]
pub(crate) struct CallCounts {
    /// One tree for each root that runs and has made calls, so there are no more trees than
    /// workers.
    trees: BTreeMap<TaskId, Tree>,
    /// When the changed trees are reported next.
    due: Option<Instant>,
    /// Calls that no worker has begun, and calls that workers run. Both include calls whose root's
    /// try is over.
    waiting: usize,
    running: usize,
}

/// The calls below one root.
#[derive(Debug)]
struct Tree {
    /// The try of the root.
    attempt: Attempt,
    done: usize,
    running: usize,
    waiting: usize,
    /// Whether the counts have changed since the last report.
    changed: bool,
}

impl CallCounts {
    /// Calls that no worker has begun.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Calls that workers run.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// A call was made.
    pub(crate) fn made(&mut self, now: Instant, root: Root) {
        self.waiting += 1;
        let (task, attempt) = root;
        let tree = self.trees.entry(task).or_insert(Tree::of(attempt));
        if tree.attempt < attempt {
            *tree = Tree::of(attempt);
        }
        self.change(now, root, |tree| tree.waiting += 1);
    }

    /// A worker has begun a call.
    pub(crate) fn began(&mut self, now: Instant, root: Root) {
        self.waiting -= 1;
        self.running += 1;
        self.change(now, root, |tree| {
            tree.waiting -= 1;
            tree.running += 1;
        });
    }

    /// A call that a worker had begun waits again.
    pub(crate) fn stopped(&mut self, now: Instant, root: Root) {
        self.running -= 1;
        self.waiting += 1;
        self.change(now, root, |tree| {
            tree.running -= 1;
            tree.waiting += 1;
        });
    }

    /// A call has its outcome.
    pub(crate) fn ended(&mut self, now: Instant, root: Root, has_begun: bool) {
        *if has_begun { &mut self.running } else { &mut self.waiting } -= 1;
        self.change(now, root, |tree| {
            *if has_begun { &mut tree.running } else { &mut tree.waiting } -= 1;
            tree.done += 1;
        });
    }

    /// Ends a try of a task that Rust has submitted, and with it all calls below it. Returns the
    /// last report, if it differs from the one before.
    pub(crate) fn conclude(&mut self, task: TaskId) -> Option<PoolEvent> {
        let tree = self.trees.remove(&task)?;
        let open = tree.running + tree.waiting;
        if !tree.changed && open == 0 {
            return None;
        }
        Some(Tree { done: tree.done + open, ..Tree::of(tree.attempt) }.report(task))
    }

    /// When [`take_due`](Self::take_due) has reports to return.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// The reports that are due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<PoolEvent> {
        if self.due.take_if(|due| *due <= now).is_none() {
            return Vec::new();
        }
        let changed = self.trees.iter_mut().filter(|(_, tree)| tree.changed);
        changed.map(|(task, tree)| tree.report(*task)).collect()
    }

    /// Changes the tree of a root whose try is not over.
    fn change(&mut self, now: Instant, (task, attempt): Root, change: impl FnOnce(&mut Tree)) {
        let Some(tree) = self.trees.get_mut(&task).filter(|tree| tree.attempt == attempt) else { return };
        change(tree);
        tree.changed = true;
        self.due.get_or_insert(now + REPORT_DELAY);
    }
}

impl Tree {
    fn of(attempt: Attempt) -> Self {
        Self { attempt, done: 0, running: 0, waiting: 0, changed: false }
    }

    fn report(&mut self, task: TaskId) -> PoolEvent {
        self.changed = false;
        PoolEvent::Calls { task, done: self.done, running: self.running, waiting: self.waiting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Root = (TaskId(1), Attempt(1));

    fn counts_of(event: &PoolEvent) -> (u64, usize, usize, usize) {
        match event {
            PoolEvent::Calls { task, done, running, waiting } => (task.0, *done, *running, *waiting),
            other => panic!("{other:?}"),
        }
    }

    fn due(counts: &mut CallCounts, now: Instant) -> Vec<(u64, usize, usize, usize)> {
        counts.take_due(now).iter().map(counts_of).collect()
    }

    #[test]
    fn thousands_of_changes_are_one_report_and_no_report_follows_without_a_change() {
        let (mut counts, now) = (CallCounts::default(), Instant::now());
        assert_eq!(counts.next_due(), None, "a pool without calls is not woken");
        for _ in 0..1000 {
            counts.made(now, ROOT);
        }
        for _ in 0..300 {
            counts.began(now, ROOT);
        }
        for _ in 0..200 {
            counts.ended(now, ROOT, true);
        }
        counts.stopped(now, ROOT);
        assert_eq!(due(&mut counts, now + REPORT_DELAY / 2), []);
        assert_eq!(counts.next_due(), Some(now + REPORT_DELAY));
        assert_eq!(due(&mut counts, now + REPORT_DELAY), [(1, 200, 99, 701)]);
        assert_eq!(counts.running(), 99);
        assert_eq!(counts.waiting(), 701);
        assert!(due(&mut counts, now + REPORT_DELAY * 3).is_empty());
        assert_eq!(counts.next_due(), None);
        counts.ended(now + REPORT_DELAY * 3, ROOT, false);
        assert_eq!(due(&mut counts, now + REPORT_DELAY * 4), [(1, 201, 99, 700)]);
    }

    #[test]
    fn the_last_report_of_a_try_counts_all_calls_as_done_and_is_omitted_if_it_repeats_the_one_before() {
        let (mut counts, now) = (CallCounts::default(), Instant::now());
        let other = (TaskId(2), Attempt(1));
        for root in [ROOT, other] {
            counts.made(now, root);
            counts.made(now, root);
            counts.began(now, root);
        }
        assert_eq!(counts_of(&counts.conclude(ROOT.0).unwrap()), (1, 2, 0, 0));
        counts.ended(now, other, true);
        counts.ended(now, other, false);
        assert_eq!(due(&mut counts, now + REPORT_DELAY), [(2, 2, 0, 0)]);
        assert!(counts.conclude(other.0).is_none() && counts.conclude(ROOT.0).is_none());
    }

    #[test]
    fn calls_that_end_after_the_try_of_their_root_are_not_counted_in_the_next_try() {
        let (mut counts, now) = (CallCounts::default(), Instant::now());
        counts.made(now, ROOT);
        counts.began(now, ROOT);
        assert!(counts.conclude(ROOT.0).is_some());
        let again = (ROOT.0, Attempt(2));
        counts.made(now, again);
        counts.ended(now, ROOT, true);
        assert_eq!(due(&mut counts, now + REPORT_DELAY), [(1, 0, 0, 1)]);
        assert_eq!(counts.running(), 0);
        assert_eq!(counts.waiting(), 1);
    }
}
