//! How long tasks may wait until they start, and the error of a task that waited too long.

use std::time::Instant;

use super::Scheduler;
use super::table::Linked;
use super::task::Position;
use super::timers::Timer;
use super::worker::Counts;
use crate::error::{Error, ErrorKind};
use crate::ids::{Rank, TaskId};
use crate::payload::Target;

impl Scheduler {
    /// A task waits to be started. One that a worker gave back has waited since its try's begin.
    pub(super) fn wait(&mut self, now: Instant, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some(timeout) = task.options.queue_timeout.filter(|_| task.timer.is_none()) else { return };
        let left = timeout.saturating_sub(now.saturating_duration_since(task.since));
        task.timer = self.timers.add(now, left, Timer::Queue(id));
    }

    /// A task, or the gang whose first task it is, did not start in time.
    pub(super) fn on_waited_too_long(&mut self, now: Instant, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        let waited = now.saturating_duration_since(task.since);
        let gang = task.gang.map(|gang| gang.first);
        let before = match gang {
            Some(first) => format!("{} before its gang", count(self.gangs_before(first), "gang")),
            None => format!("{} before it", count(self.tasks_before(id), "task")),
        };
        let error = Error::new(
            ErrorKind::QueueTimeout,
            format!("the task was not started within {waited:?}: {before}, and {}", self.waits_for(task.target, gang)),
        )
        .temporary()
        .with_hint("`.queue_timeout(…)` bounds the wait for a worker; give it more, or the pool more workers");
        match gang {
            Some(first) => self.fail_gang(now, first, &error),
            None => self.abandon(now, id, error),
        }
    }

    fn tasks_before(&self, id: TaskId) -> usize {
        let Some(task) = self.tasks.get(&id) else { return 0 };
        if let Position::Worker(rank) = task.position {
            return self.sent(rank).position(|sent| sent == id).unwrap_or_default();
        }
        let own = task.links.before(&self.tasks).take(COUNTED).count();
        // Queues are in the order of ids, except for retried tasks, which stand in front.
        let also_any = matches!(task.target, Target::Rank(_) | Target::Node(_));
        let any = self.any.iter(&self.tasks).take(COUNTED).take_while(|queued| also_any && *queued < id).count();
        own + any
    }

    fn gangs_before(&self, first: TaskId) -> usize {
        let links = self.gang_table.get(&first).map(|gang| *gang.links()).unwrap_or_default();
        links.before(&self.gang_table).take(COUNTED).count()
    }

    /// What the workers do in the meantime, for the error of a task that did not start.
    fn waits_for(&self, target: Target, gang: Option<TaskId>) -> String {
        let (mut workers, mut counts) = (self.workers.len(), self.counts);
        let mut alone = (workers == 1).then_some(Rank(0));
        match (gang, target) {
            (None, Target::Rank(rank)) => alone = Some(rank),
            (None, Target::Node(node)) => {
                (workers, counts) = (0, Counts::default());
                for rank in self.ranks_of(node) {
                    workers += 1;
                    counts.replace(Counts::default(), self.workers[rank.0 as usize].counted);
                    alone = (workers == 1).then_some(rank);
                }
            }
            _ => {}
        }
        if let Some(rank) = alone {
            let worker = &self.workers[rank.0 as usize];
            return match worker.sent.front() {
                Some(running) => format!("the worker of rank {rank} ran task {running}"),
                None if !worker.ready => format!("the worker of rank {rank} was being started"),
                None => format!("the worker of rank {rank} was kept free for a gang"),
            };
        }
        let (busy, starting) = (counts.busy, workers - counts.ready);
        let mut text = format!("of {workers} workers {busy} ran tasks and {starting} were being started");
        if gang.is_none() && !self.gangs.is_empty() {
            text.push_str("; a gang waited for all of them");
        }
        text
    }
}

fn count(number: usize, what: &str) -> String {
    let more = if number >= COUNTED { "at least " } else { "" };
    let be = if number == 1 { "was" } else { "were" };
    format!("{more}{number} {what}{} {be}", if number == 1 { "" } else { "s" })
}

/// How many of the tasks in front of a task are counted at most. Many tasks may wait too long at the
/// same moment, each with others in front, and the memory of tasks that have waited long is slow to
/// read.
const COUNTED: usize = 10;
