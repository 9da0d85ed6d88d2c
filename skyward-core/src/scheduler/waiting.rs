//! How long tasks may wait until they are started, and what those are told that waited too long.

use std::time::Instant;

use super::Scheduler;
use super::state::Timer;
use crate::error::{Error, ErrorKind};
use crate::ids::{Rank, TaskId};
use crate::payload::Target;

impl Scheduler {
    /// A task waits to be started from now on.
    pub(super) fn wait(&mut self, now: Instant, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        // It may have been sent at once.
        let Some(timeout) = task.options.queue_timeout.filter(|_| task.timer.is_none()) else { return };
        task.since = Some(now);
        task.timer = self.timers.add(now, timeout, Timer::Queue(id));
    }

    /// A task, and the gang that it stands for, was not started in time.
    pub(super) fn on_waited_too_long(&mut self, now: Instant, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        let waited = task.since.map(|since| now.saturating_duration_since(since)).unwrap_or_default();
        let before = match task.gang {
            Some(first) => format!("{} before its gang", count(self.gangs_before(first), "gang")),
            None => format!("{} before it", count(self.tasks_before(id), "task")),
        };
        let error = Error::new(
            ErrorKind::QueueTimeout,
            format!(
                "the task was not started within {waited:?}: {before}, and {}",
                self.waits_for(task.target, task.gang)
            ),
        )
        .temporary()
        .with_hint("`.queue_timeout(…)` bounds the wait for a worker; give it more, or the pool more workers");
        match task.gang {
            Some(first) => self.fail_gang(now, first, &error),
            None => self.abandon(now, id, error),
        }
    }

    fn tasks_before(&self, id: TaskId) -> usize {
        let Some(task) = self.tasks.get(&id) else { return 0 };
        let (queue, also_any) = match (task.sent_to, task.target) {
            (Some(rank), _) => (&self.workers[rank.0 as usize].sent, false),
            (None, Target::Rank(rank)) => (&self.by_rank[rank.0 as usize], true),
            (None, Target::Node(node)) => (&self.by_node[node.0 as usize], true),
            (None, _) => (&self.any, false),
        };
        // Queues are in the order of ids, but for what is tried again, which stands in front.
        let own = queue.iter().position(|queued| *queued == id).unwrap_or_default();
        let any = if also_any { self.any.iter().take_while(|queued| **queued < id).count() } else { 0 };
        own + any
    }

    fn gangs_before(&self, first: TaskId) -> usize {
        self.gangs.iter().position(|queued| *queued == first).unwrap_or_default()
    }

    /// What the pool is at, for a task that is not started.
    fn waits_for(&self, target: Target, gang: Option<TaskId>) -> String {
        let ranks: Vec<Rank> = match (gang, target) {
            (None, Target::Rank(rank)) => vec![rank],
            (None, Target::Node(node)) => self.ranks().filter(|rank| self.node_of(*rank) == node).collect(),
            _ => self.ranks().collect(),
        };
        let worker = |rank: &Rank| &self.workers[rank.0 as usize];
        let starting = ranks.iter().filter(|rank| !worker(rank).ready).count();
        let busy = ranks.iter().filter(|rank| !worker(rank).sent.is_empty()).count();
        if let [rank] = ranks[..] {
            return match worker(&rank).sent.front() {
                Some(running) => format!("the worker of rank {rank} ran task {running}"),
                None if starting > 0 => format!("the worker of rank {rank} was being started"),
                None => format!("the worker of rank {rank} was kept free for a gang"),
            };
        }
        let mut text = format!("of {} workers {busy} ran tasks and {starting} were being started", ranks.len());
        if gang.is_none() && !self.gangs.is_empty() {
            text.push_str("; a gang waited for all of them");
        }
        text
    }
}

fn count(number: usize, what: &str) -> String {
    let be = if number == 1 { "was" } else { "were" };
    format!("{number} {what}{} {be}", if number == 1 { "" } else { "s" })
}
