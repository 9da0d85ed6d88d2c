//! Imports of payloads that no timeout counts.
//!
//! Payloads that a pool declares are imported before it is ready. Any other is imported by its first
//! call on each worker. The call's timeout begins when its payload is imported; until then, the time
//! for hooks bounds the import.

use std::time::Instant;

use super::Scheduler;
use crate::ids::{Rank, TaskId};

impl Scheduler {
    /// The worker of a task begins to import its payload, which stops the timeout, or has imported it,
    /// which begins the timeout anew.
    pub fn on_import(&mut self, now: Instant, rank: Rank, id: TaskId, begins: bool) {
        self.on_progress(now, rank);
        let runs = self.sent(rank).next() == Some(id);
        let Some(task) = self.tasks.get_mut(&id).filter(|task| runs && task.importing != begins) else { return };
        let Some(timeout) = task.options.timeout.filter(|_| !task.abandoned) else { return };
        task.importing = begins;
        self.arm_run(now, id, Some(if begins { self.limits.hooks } else { timeout }));
    }
}

#[cfg(test)]
mod tests;
