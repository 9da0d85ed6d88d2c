//! Rescue: when everything that runs waits for calls, and calls wait for workers, nothing would
//! ever go on. One of the calls then runs within its caller's worker, even if that worker does not
//! report that it waits.

use std::time::{Duration, Instant};

use super::Scheduler;
use super::state::{TaskState, Timer};
use crate::ids::{Rank, TaskId};

/// The state of the check for calls that wait for one another.
#[derive(Debug, Default)]
pub(super) struct Rescue {
    /// The next check; runs while calls wait.
    timer: Option<(Instant, Timer)>,
    /// When a call last changed state.
    moved: Option<Instant>,
    /// Whether a call was rescued and no worker has been free since: the next call is then rescued
    /// at once.
    on: bool,
}

impl Rescue {
    /// A worker is free for calls, or the last rescue failed.
    pub(super) fn end(&mut self) {
        self.on = false;
    }
}

impl Scheduler {
    /// A call has changed state.
    pub(super) fn stir(&mut self, now: Instant) {
        self.rescue.moved = Some(now);
        if self.rescue.timer.is_none() && self.families.queued() > 0 {
            self.rescue.timer = self.timers.add(now, STILL, Timer::Rescue);
        }
    }

    /// Removes the timer when no call waits.
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

    /// Rescues the next call if one was rescued before and nothing has changed since.
    pub(super) fn rescue_on(&mut self, now: Instant) {
        if self.rescue.on && self.is_stuck() {
            self.rescue.on = self.rescue_one(now);
        }
    }

    /// Whether calls wait, no worker is free for them, and everything that workers run waits for
    /// calls.
    fn is_stuck(&self) -> bool {
        self.families.queued() > 0 && self.open.is_empty() && self.counts.going == 0 && self.failed.is_none()
    }

    /// Makes its caller's worker run the deepest call that can be rescued. Returns whether there is
    /// one.
    fn rescue_one(&mut self, now: Instant) -> bool {
        let place = |id: TaskId| self.above(id).find_map(|caller| self.lives_with(caller)).map(|rank| (id, rank));
        // If another worker is starting, it takes calls that may end their worker.
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

    /// The worker that runs a task, if it can take a call to help with.
    fn lives_with(&self, id: TaskId) -> Option<Rank> {
        self.runner(id).filter(|rank| self.workers[rank.0 as usize].lives())
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_rescue(&self) {
        let waits = self.families.queued() > 0;
        assert_eq!(self.rescue.timer.is_some(), waits, "calls wait, and no timer checks them: {self:?}");
        let next = self.timers.next();
        assert!(self.rescue.timer.is_none_or(|(at, _)| next.is_some_and(|next| next <= at)), "{self:?}");
    }
}

/// How long no call has changed state when one is rescued.
const STILL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
