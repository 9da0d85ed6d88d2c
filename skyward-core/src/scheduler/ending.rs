//! Running tasks that are told to end: they are interrupted, and killed with their worker when their grace is over.
//!
//! A worker may be told to end several: the task that it runs, and calls that it helps with. Each has its own grace.
//!
//! The interrupt goes through the agent and what it is for through the worker's own link, so it may come first and find nothing to interrupt. It is repeated; a worker raises in its task once.

use std::time::{Duration, Instant};

use super::state::Timer;
use super::{Action, Scheduler};
use crate::ids::{Rank, TaskId};

/// What a worker was told to end.
#[derive(Debug)]
pub(super) struct Ending {
    task: TaskId,
    /// Until it is told again.
    pause: Duration,
    timers: [Option<(Instant, Timer)>; 2],
}

impl Scheduler {
    /// Tells a worker to end a task that it runs, or helps with.
    pub(super) fn interrupt(&mut self, now: Instant, rank: Rank, id: TaskId) {
        self.actions.push(Action::Cancel { rank, task: id, interrupt: true });
        if self.is_being_ended(rank, id) {
            return;
        }
        let grace = self.timers.add(now, self.limits.grace, Timer::Grace(rank, id));
        let again = self.timers.add(now, AGAIN, Timer::Again(rank, id));
        self.workers[rank.0 as usize].endings.push(Ending { task: id, pause: AGAIN, timers: [grace, again] });
    }

    /// A worker has a new connection: what it was told over the old one may be lost.
    pub fn on_connected(&mut self, now: Instant, rank: Rank) {
        self.recall_again(rank);
        let sent: Vec<TaskId> = self.sent(rank).collect();
        for (place, id) in sent.into_iter().enumerate() {
            if !self.tasks.get(&id).is_some_and(|task| task.abandoned) {
                continue;
            }
            if place == 0 {
                self.interrupt(now, rank, id);
            } else {
                self.actions.push(Action::Cancel { rank, task: id, interrupt: false });
            }
        }
    }

    /// Tells a worker to end a call that it helps with. Where its main thread is to end what it runs
    /// that call within, that ends both.
    pub(super) fn interrupt_helped(&mut self, now: Instant, rank: Rank, id: TaskId) {
        let worker = &self.workers[rank.0 as usize];
        let below = worker.frames.iter().take_while(|frame| **frame != id);
        let mut below = worker.sent.front().into_iter().chain(below);
        let is_aside = worker.asides.contains(&id);
        if is_aside || !below.any(|frame| self.is_being_ended(rank, *frame)) {
            self.interrupt(now, rank, id);
        }
    }

    pub(super) fn is_being_ended(&self, rank: Rank, id: TaskId) -> bool {
        self.workers[rank.0 as usize].endings.iter().any(|ending| ending.task == id)
    }

    /// A worker does not run this any more.
    pub(super) fn forget_ending_of(&mut self, rank: Rank, id: TaskId) {
        let endings = &mut self.workers[rank.0 as usize].endings;
        let Some(place) = endings.iter().position(|ending| ending.task == id) else { return };
        let ending = endings.swap_remove(place);
        ending.timers.into_iter().flatten().for_each(|timer| self.timers.remove(timer));
    }

    /// What a worker ran is no longer there.
    pub(super) fn forget_endings(&mut self, rank: Rank) {
        let endings = std::mem::take(&mut self.workers[rank.0 as usize].endings);
        for timer in endings.into_iter().flat_map(|ending| ending.timers).flatten() {
            self.timers.remove(timer);
        }
    }

    pub(super) fn on_still_running(&mut self, now: Instant, rank: Rank, id: TaskId) {
        let endings = &mut self.workers[rank.0 as usize].endings;
        let Some(ending) = endings.iter_mut().find(|ending| ending.task == id) else { return };
        ending.pause *= 2;
        ending.timers[1] = self.timers.add(now, ending.pause, Timer::Again(rank, id));
        self.actions.push(Action::Cancel { rank, task: id, interrupt: true });
    }

    pub(super) fn on_grace_over(&mut self, rank: Rank, id: TaskId) {
        if self.is_being_ended(rank, id) {
            self.forget_ending_of(rank, id);
            self.actions.push(Action::Kill { rank });
        }
    }
}

/// Until a worker is told again for the first time; then twice as long each time.
const AGAIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::super::tests::{GRACE, Story};
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::payload::{RetryPolicy, Target};

    fn interrupted(story: &Story) -> bool {
        story.has(|action| matches!(action, Action::Cancel { interrupt: true, .. }))
    }

    /// A gang of two that is tried again after rank 1 crashed in a way that the world survives: it raised.
    fn retried(story: &mut Story) -> Vec<TaskId> {
        let gang = story.gang_with(RetryPolicy::times(1));
        let raised = Err(Error::new(ErrorKind::Remote, "no"));
        story.scheduler.on_returned(story.now, Rank(1), gang[1], raised, 10);
        story.step();
        assert!(interrupted(story));
        gang
    }

    #[test]
    fn an_interrupt_is_repeated_until_the_task_has_ended() {
        let mut story = Story::new(1, 1, false);
        let id = story.submit(Target::Any);
        story.scheduler.cancel(story.now, id);
        story.step();
        for pause in [50, 100, 200] {
            assert!(interrupted(&story));
            story.later(Duration::from_millis(pause - 1));
            assert!(!interrupted(&story));
            story.later(Duration::from_millis(1));
        }
        let cancelled = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
        story.scheduler.on_returned(story.now, Rank(0), id, cancelled, 10);
        story.step();
        assert_eq!(story.scheduler.next_timeout(), None);
    }

    #[test]
    fn a_new_connection_is_told_what_was_cancelled() {
        let mut story = Story::new(1, 1, false);
        let short = story.submit(Target::Any);
        story.scheduler.on_returned(story.now, Rank(0), short, Ok(crate::payload::Value::new(vec![], Rank(0))), 1);
        let ids: Vec<TaskId> = (0..3).map(|_| story.submit(Target::Any)).collect();
        story.scheduler.cancel(story.now, ids[0]);
        story.scheduler.cancel(story.now, ids[2]);
        story.step();
        story.scheduler.on_connected(story.now, Rank(0));
        story.step();
        let told = |id: TaskId, now: bool| {
            story.has(
                |action| matches!(action, Action::Cancel { task, interrupt, .. } if *task == id && *interrupt == now),
            )
        };
        assert!(told(ids[0], true) && !told(ids[1], false) && !told(ids[1], true) && told(ids[2], false));
    }

    #[test]
    fn the_grace_of_one_try_does_not_end_the_next() {
        let mut story = Story::new(2, 1, true);
        let gang = retried(&mut story);
        let cancelled = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
        story.scheduler.on_returned(story.now, Rank(0), gang[0], cancelled, 10);
        story.step();
        assert_eq!((story.running(0), story.running(1)), (Some(gang[0]), Some(gang[1])));
        story.later(GRACE);
        assert!(!interrupted(&story));
        assert!(!story.has(|action| matches!(action, Action::Kill { .. })));
    }

    #[test]
    fn a_member_that_is_to_run_again_and_never_began_is_back() {
        let mut story = Story::new(2, 1, true);
        let gang = retried(&mut story);
        story.scheduler.on_not_begun(story.now, Rank(0), &gang[..1]);
        story.step();
        let sent = |story: &Story, rank| {
            story.has(|action| matches!(action, Action::Send { rank: Rank(to), .. } if *to == rank))
        };
        assert!(sent(&story, 0) && sent(&story, 1), "the gang starts anew, as a whole");
        story.later(GRACE);
        assert!(!story.has(|action| matches!(action, Action::Kill { .. })));
    }
}
