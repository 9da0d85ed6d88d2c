//! Interrupts of running tasks. A worker that does not end an interrupted task within the grace
//! time is killed.
//!
//! A worker may have several interrupted tasks: the task that it runs, and calls that it helps
//! with. Each has its own grace time.
//!
//! The interrupt goes through the agent, and its task id through the worker's own link, so the
//! interrupt may arrive first and find nothing to interrupt. The scheduler therefore repeats it; a
//! worker raises in its task once.

use std::time::Instant;

use super::timers::Timer;
use super::timing::INTERRUPT_PAUSE;
use super::worker::Interrupt;
use super::{Action, Scheduler};
use crate::ids::{Rank, TaskId};

impl Scheduler {
    /// Interrupts a task that a worker runs, or helps with.
    pub(super) fn interrupt(&mut self, now: Instant, rank: Rank, id: TaskId) {
        self.actions.push(Action::Cancel { rank, task: id, interrupt: true });
        if self.is_interrupted(rank, id) {
            return;
        }
        let grace = self.timers.add(now, self.limits.grace, Timer::Grace(rank, id));
        let again = self.timers.add(now, INTERRUPT_PAUSE, Timer::Again(rank, id));
        self.workers[rank.0 as usize].interrupts.push(Interrupt {
            task: id,
            pause: INTERRUPT_PAUSE,
            timers: [grace, again],
        });
    }

    /// A worker has a new connection: messages on the old one may be lost, so the cancels are sent
    /// again.
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

    /// Interrupts a call that a worker helps with. If the main thread runs the call within a task
    /// that is being ended, the interrupt of that task ends both.
    pub(super) fn interrupt_helped(&mut self, now: Instant, rank: Rank, id: TaskId) {
        let worker = &self.workers[rank.0 as usize];
        let below = worker.frames.iter().take_while(|frame| **frame != id);
        let mut below = worker.sent.front().into_iter().chain(below);
        let is_aside = worker.asides.contains(&id);
        if is_aside || !below.any(|frame| self.is_interrupted(rank, *frame)) {
            self.interrupt(now, rank, id);
        }
    }

    pub(super) fn is_interrupted(&self, rank: Rank, id: TaskId) -> bool {
        self.workers[rank.0 as usize].interrupts.iter().any(|interrupt| interrupt.task == id)
    }

    /// A worker no longer runs this task.
    pub(super) fn forget_interrupt_of(&mut self, rank: Rank, id: TaskId) {
        let interrupts = &mut self.workers[rank.0 as usize].interrupts;
        let Some(place) = interrupts.iter().position(|interrupt| interrupt.task == id) else { return };
        let interrupt = interrupts.swap_remove(place);
        interrupt.timers.into_iter().flatten().for_each(|timer| self.timers.remove(timer));
    }

    /// A worker no longer runs anything.
    pub(super) fn forget_interrupts(&mut self, rank: Rank) {
        let interrupts = std::mem::take(&mut self.workers[rank.0 as usize].interrupts);
        for timer in interrupts.into_iter().flat_map(|interrupt| interrupt.timers).flatten() {
            self.timers.remove(timer);
        }
    }

    pub(super) fn on_still_running(&mut self, now: Instant, rank: Rank, id: TaskId) {
        let interrupts = &mut self.workers[rank.0 as usize].interrupts;
        let Some(interrupt) = interrupts.iter_mut().find(|interrupt| interrupt.task == id) else { return };
        interrupt.pause *= 2;
        interrupt.timers[1] = self.timers.add(now, interrupt.pause, Timer::Again(rank, id));
        self.actions.push(Action::Cancel { rank, task: id, interrupt: true });
    }

    pub(super) fn on_grace_over(&mut self, rank: Rank, id: TaskId) {
        if self.is_interrupted(rank, id) {
            self.forget_interrupt_of(rank, id);
            self.actions.push(Action::Kill { rank });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{GRACE, Story};
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::payload::{RetryPolicy, Target};

    fn interrupted(story: &Story) -> bool {
        story.has(|action| matches!(action, Action::Cancel { interrupt: true, .. }))
    }

    /// A gang of two that is tried again because rank 1 raised, which the world survives.
    fn retried(story: &mut Story) -> Vec<TaskId> {
        let gang = story.gang_with(RetryPolicy::times(1));
        let raised = Err(Error::new(ErrorKind::Raised, "no"));
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
    fn a_new_connection_receives_the_cancels_again() {
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
        assert_eq!(story.running(0), Some(gang[0]));
        assert_eq!(story.running(1), Some(gang[1]));
        story.later(GRACE);
        assert!(!interrupted(&story));
        assert!(!story.has(|action| matches!(action, Action::Kill { .. })));
    }

    #[test]
    fn a_member_that_never_began_is_ready_for_the_next_try() {
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
