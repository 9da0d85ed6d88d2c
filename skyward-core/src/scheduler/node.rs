//! A node: its history, and the queue of the tasks that name it.

use std::time::Instant;

use super::policy;
use super::table::List;

/// The history of a node, and its queue.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// How many machines the node has lost since one of its tasks returned.
    pub(super) barren: u32,
    /// How often in a row the node's workers were lost idle, or could not start.
    pub(super) sick: u32,
    pub(super) ready_since: Option<Instant>,
    /// Tasks that wait for any worker of this node.
    pub(super) queue: List,
    /// Whether [`Action::NodeDrained`] was emitted.
    pub(super) reported: bool,
}

impl Record {
    pub(super) fn on_ready(&mut self, now: Instant) {
        self.ready_since.get_or_insert(now);
    }

    /// One of the node's workers returned a task.
    pub(super) fn on_returned(&mut self) {
        self.barren = 0;
        self.sick = 0;
    }

    /// The node's machine is lost, or could not be replaced. Returns how often in a row that has
    /// happened.
    pub(super) fn on_lost(&mut self, now: Instant) -> u32 {
        let since = self.ready_since.take();
        if since.is_some_and(|since| now.saturating_duration_since(since) >= policy::SOUND) {
            self.barren = 0;
        }
        self.sick = 0;
        self.barren += 1;
        self.barren
    }
}
