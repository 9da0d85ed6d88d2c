//! How many calls stand below each task that Rust has submitted: counted as they pass, and reported
//! now and then, never one by one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::super::outbox::Told;
use super::super::shared::State;
use crate::event::PoolEvent;
use crate::ids::{Attempt, TaskId};

/// One try of a task that Rust has submitted, at the root of the calls below it.
pub(in crate::pool) type Root = (TaskId, Attempt);

/// The calls of all tasks. A pool without calls has no tree.
#[derive(Debug, Default)]
pub(in crate::pool) struct CallCounts {
    /// There is one for each root that runs and has called: no more than there are workers.
    trees: BTreeMap<Root, Tree>,
    /// When the trees that have changed are reported.
    due: Option<Instant>,
    /// Calls that no worker has begun, and calls that workers run, those included whose root's try
    /// is over.
    waiting: usize,
    running: usize,
}

/// The calls below one root.
#[derive(Debug, Default)]
struct Tree {
    done: usize,
    running: usize,
    waiting: usize,
    /// Since the last report.
    changed: bool,
}

impl CallCounts {
    /// Calls that no worker has begun.
    pub(in crate::pool) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Calls that workers run.
    pub(in crate::pool) fn running(&self) -> usize {
        self.running
    }

    /// A call was made.
    pub(super) fn made(&mut self, now: Instant, root: Root) {
        self.waiting += 1;
        self.trees.entry(root).or_default();
        self.change(now, root, |tree| tree.waiting += 1);
    }

    /// A worker has begun a call.
    pub(in crate::pool) fn began(&mut self, now: Instant, root: Root) {
        self.waiting -= 1;
        self.running += 1;
        self.change(now, root, |tree| {
            tree.waiting -= 1;
            tree.running += 1;
        });
    }

    /// A call that a worker had begun waits again.
    pub(in crate::pool) fn stopped(&mut self, now: Instant, root: Root) {
        self.running -= 1;
        self.waiting += 1;
        self.change(now, root, |tree| {
            tree.running -= 1;
            tree.waiting += 1;
        });
    }

    /// A call has its outcome.
    pub(in crate::pool) fn ended(&mut self, now: Instant, root: Root, has_begun: bool) {
        *if has_begun { &mut self.running } else { &mut self.waiting } -= 1;
        self.change(now, root, |tree| {
            *if has_begun { &mut tree.running } else { &mut tree.waiting } -= 1;
            tree.done += 1;
        });
    }

    /// A try of a task that Rust has submitted is over, and all calls below it end with it: the last
    /// report, where the one before says something else.
    pub(in crate::pool) fn conclude(&mut self, root: Root) -> Option<PoolEvent> {
        let mut tree = self.trees.remove(&root)?;
        let open = tree.running + tree.waiting;
        if !tree.changed && open == 0 {
            return None;
        }
        tree = Tree { done: tree.done + open, ..Tree::default() };
        Some(tree.report(root))
    }

    /// When [`take_due`](Self::take_due) has something to report.
    pub(in crate::pool) fn next_due(&self) -> Option<Instant> {
        self.due
    }

    /// The reports that are due.
    pub(in crate::pool) fn take_due(&mut self, now: Instant) -> Vec<PoolEvent> {
        if self.due.take_if(|due| *due <= now).is_none() {
            return Vec::new();
        }
        let changed = self.trees.iter_mut().filter(|(_, tree)| tree.changed);
        changed.map(|(root, tree)| tree.report(*root)).collect()
    }

    /// Changes the tree of a root whose try goes on.
    fn change(&mut self, now: Instant, root: Root, change: impl FnOnce(&mut Tree)) {
        let Some(tree) = self.trees.get_mut(&root) else { return };
        change(tree);
        tree.changed = true;
        self.due.get_or_insert(now + PACE);
    }
}

impl Tree {
    fn report(&mut self, (task, _): Root) -> PoolEvent {
        self.changed = false;
        PoolEvent::Calls { task, done: self.done, running: self.running, waiting: self.waiting }
    }
}

impl State {
    /// Has the reports told that are due.
    pub(in crate::pool) fn tell_calls(&mut self, now: Instant) {
        self.told.extend(self.calls.take_due(now).into_iter().map(Told::Event));
    }

    /// A try of a task is over: its last report of the calls below it is told, where one is due.
    pub(in crate::pool) fn conclude_calls(&mut self, id: TaskId) {
        if self.calls.trees.is_empty() {
            return;
        }
        let attempt = self.tasks.get(&id).map(|entry| entry.attempt);
        let report = attempt.and_then(|attempt| self.calls.conclude((id, attempt)));
        self.told.extend(report.map(Told::Event));
    }

    /// A worker has not done this task, and does not run it.
    pub(in crate::pool) fn take_back(&mut self, now: Instant, id: TaskId) {
        let Some(entry) = self.tasks.get_mut(&id) else { return };
        entry.run = None;
        if entry.began.take().is_some() {
            self.running -= 1;
            if let Some(root) = entry.root() {
                self.calls.stopped(now, root);
            }
        }
    }
}

/// From the first change to the report of all that have come by then.
const PACE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Root = (TaskId(1), Attempt(1));

    fn told(event: &PoolEvent) -> (u64, usize, usize, usize) {
        match event {
            PoolEvent::Calls { task, done, running, waiting } => (task.0, *done, *running, *waiting),
            other => panic!("{other:?}"),
        }
    }

    fn due(counts: &mut CallCounts, now: Instant) -> Vec<(u64, usize, usize, usize)> {
        counts.take_due(now).iter().map(told).collect()
    }

    #[test]
    fn thousands_of_changes_are_one_report_and_none_follows_until_something_changes() {
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
        assert_eq!(due(&mut counts, now + PACE / 2), []);
        assert_eq!(counts.next_due(), Some(now + PACE));
        assert_eq!(due(&mut counts, now + PACE), [(1, 200, 99, 701)]);
        assert_eq!((counts.running(), counts.waiting()), (99, 701));
        assert_eq!((due(&mut counts, now + PACE * 3), counts.next_due()), (vec![], None));
        counts.ended(now + PACE * 3, ROOT, false);
        assert_eq!(due(&mut counts, now + PACE * 4), [(1, 201, 99, 700)]);
    }

    #[test]
    fn the_last_report_of_a_try_counts_all_as_done_and_is_left_out_where_that_was_said() {
        let (mut counts, now) = (CallCounts::default(), Instant::now());
        let other = (TaskId(2), Attempt(1));
        for root in [ROOT, other] {
            counts.made(now, root);
            counts.made(now, root);
            counts.began(now, root);
        }
        assert_eq!(told(&counts.conclude(ROOT).unwrap()), (1, 2, 0, 0));
        counts.ended(now, other, true);
        counts.ended(now, other, false);
        assert_eq!(due(&mut counts, now + PACE), [(2, 2, 0, 0)]);
        assert!(counts.conclude(other).is_none() && counts.conclude(ROOT).is_none());
    }

    #[test]
    fn what_ends_after_its_roots_try_is_not_counted_in_the_next() {
        let (mut counts, now) = (CallCounts::default(), Instant::now());
        counts.made(now, ROOT);
        counts.began(now, ROOT);
        assert!(counts.conclude(ROOT).is_some());
        let again = (ROOT.0, Attempt(2));
        counts.made(now, again);
        counts.ended(now, ROOT, true);
        assert_eq!(due(&mut counts, now + PACE), [(1, 0, 0, 1)]);
        assert_eq!((counts.running(), counts.waiting()), (0, 1));
    }
}
