//! Where all that runs waits for calls and calls wait for workers, nothing would ever move: then one
//! of them runs within its caller's worker, also where that one does not say that it waits.

use std::time::{Duration, Instant};

use super::Scheduler;
use super::state::{TaskState, Timer};
use crate::ids::{Rank, TaskId};

/// What is known of calls that may wait for one another.
#[derive(Debug, Default)]
pub(super) struct Rescue {
    /// When it is looked again; runs while calls wait.
    timer: Option<(Instant, Timer)>,
    /// When something last happened to a call.
    moved: Option<Instant>,
    /// A call was rescued, and no worker was free since then: the next one is rescued at once.
    on: bool,
}

impl Rescue {
    /// A worker is free for calls, or the last one could not be rescued.
    pub(super) fn end(&mut self) {
        self.on = false;
    }
}

impl Scheduler {
    /// Something happened to a call.
    pub(super) fn stir(&mut self, now: Instant) {
        self.rescue.moved = Some(now);
        if self.rescue.timer.is_none() && self.families.queued() > 0 {
            self.rescue.timer = self.timers.add(now, STILL, Timer::Rescue);
        }
    }

    /// No call waits any more.
    pub(super) fn disarm_rescue(&mut self) {
        if self.families.queued() == 0
            && let Some(timer) = self.rescue.timer.take()
        {
            self.timers.remove(timer);
        }
    }

    pub(super) fn on_rescue_timer(&mut self, now: Instant) {
        self.rescue.timer = None;
        if self.families.queued() == 0 {
            return;
        }
        let still = self.rescue.moved.map_or(STILL, |moved| now.saturating_duration_since(moved));
        let left = STILL.saturating_sub(still);
        let after = if left.is_zero() { STILL } else { left };
        self.rescue.timer = self.timers.add(now, after, Timer::Rescue);
        if left.is_zero() && self.is_stuck() {
            self.rescue.on = self.rescue_one(now);
        }
    }

    /// Rescues the next call where one was rescued before and nothing has changed since.
    pub(super) fn rescue_on(&mut self, now: Instant) {
        if self.rescue.on && self.is_stuck() {
            self.rescue.on = self.rescue_one(now);
        }
    }

    /// Whether calls wait, no worker is free for them, and all that workers run waits for calls.
    fn is_stuck(&self) -> bool {
        self.families.queued() > 0 && self.open.is_empty() && self.counts.going == 0 && self.failed.is_none()
    }

    /// Has the worker of its caller run the deepest call that can be. Says whether there is one.
    fn rescue_one(&mut self, now: Instant) -> bool {
        let place = |id: TaskId| self.above(id).find_map(|caller| self.lives_with(caller)).map(|rank| (id, rank));
        // Another worker takes what may end its worker, if one comes.
        let comes = self.counts.ready < self.workers.len();
        let may = |id: &TaskId| !comes || self.tasks.get(id).is_some_and(TaskState::is_helpable);
        let found = self.families.waiting().filter_map(|family| family.safest()).filter(may).find_map(place);
        let Some((id, rank)) = found else { return false };
        let frame = self.workers[rank.0 as usize].waiting();
        let is_below = frame.is_some_and(|frame| self.above(id).any(|above| above == frame));
        self.unqueue(id);
        self.give(now, rank, id, !is_below);
        true
    }

    /// The worker that runs a task, if it can be given something to help with.
    fn lives_with(&self, id: TaskId) -> Option<Rank> {
        self.runner(id).filter(|rank| self.workers[rank.0 as usize].lives())
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_rescue(&self) {
        let waits = self.families.queued() > 0;
        assert_eq!(self.rescue.timer.is_some(), waits, "calls wait, and nothing looks after them: {self:?}");
        let next = self.timers.next();
        assert!(self.rescue.timer.is_none_or(|(at, _)| next.is_some_and(|next| next <= at)), "{self:?}");
    }
}

/// For so long nothing has happened to calls when one of them is rescued.
const STILL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
