//! The tasks without an outcome, and how many of them run.

use std::time::Instant;

use super::counts::CallCounts;
use super::effect::Numbers;
use super::task::Entry;
use crate::event::PoolEvent;
use crate::ids::TaskId;
use crate::scheduler::table::TaskTable;

/// The tasks without an outcome. Whether a task runs is counted here and nowhere else.
#[derive(Default)]
pub(crate) struct Entries {
    table: TaskTable<Entry>,
    /// The number of tasks that a worker has begun.
    running: usize,
    calls: CallCounts,
}

impl Entries {
    pub(crate) fn get(&self, id: TaskId) -> Option<&Entry> {
        self.table.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Entry> {
        self.table.get_mut(&id)
    }

    /// How many tasks wait and run, and how many of them are calls.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            queued: self.table.len().saturating_sub(self.running),
            running: self.running,
            calls_waiting: self.calls.waiting(),
            calls_running: self.calls.running(),
        }
    }

    /// Adds a task, which waits from now on.
    pub(crate) fn add(&mut self, now: Instant, id: TaskId, entry: Entry) {
        if let Some(root) = entry.root() {
            self.calls.made(now, root);
        }
        self.table.insert(id, entry);
    }

    /// A worker has begun a task, or begins it about now. Returns false if the task had begun before
    /// and was not given back since.
    pub(super) fn begin(&mut self, now: Instant, id: TaskId) -> Option<bool> {
        let entry = self.table.get_mut(&id)?;
        let first = entry.began.replace(now).is_none();
        if first {
            self.running += 1;
            if let Some(root) = entry.root() {
                self.calls.began(now, root);
            }
        }
        Some(first)
    }

    /// A worker has not done this task and does not run it: the task waits as before.
    pub(super) fn take_back(&mut self, now: Instant, id: TaskId) {
        if let Some(entry) = self.table.get_mut(&id)
            && entry.began.take().is_some()
        {
            self.running -= 1;
            if let Some(root) = entry.root() {
                self.calls.stopped(now, root);
            }
        }
    }

    /// A try at a task is over, and the task waits for the next.
    pub(super) fn again(&mut self, now: Instant, id: TaskId) {
        self.take_back(now, id);
        if let Some(entry) = self.table.get_mut(&id) {
            entry.ran = None;
            entry.unread = None;
        }
    }

    /// A task has its outcome.
    pub(super) fn remove(&mut self, now: Instant, id: TaskId) -> Option<Box<Entry>> {
        let entry = self.table.remove(&id)?;
        let has_begun = entry.began.is_some();
        self.running -= usize::from(has_begun);
        if let Some(root) = entry.root() {
            self.calls.ended(now, root, has_begun);
        }
        Some(entry)
    }

    /// Ends a try of a task, and with it all calls below it. Returns the last report of the calls
    /// of a task that Rust has submitted, if it differs from the one before.
    pub(super) fn conclude_calls(&mut self, id: TaskId) -> Option<PoolEvent> {
        self.calls.conclude(id)
    }

    /// When [`take_due`](Self::take_due) has reports to return.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.calls.next_due()
    }

    /// The reports about calls that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<PoolEvent> {
        self.calls.take_due(now)
    }
}
