//! Fallback: a call that no other worker has taken within a short time runs on its caller's worker,
//! if all that this worker runs has calls without an outcome: on the main thread if that waits, on
//! another thread otherwise.

use std::time::Instant;

use super::Scheduler;
use super::task::Help;
use super::timers::Timer;
use super::timing::FALLBACK;
use crate::ids::{Rank, TaskId};

impl Scheduler {
    /// A call waits for a worker.
    pub(super) fn arm_fallback(&mut self, now: Instant) {
        if self.fallback.timer.is_none() && self.families.queued() > 0 {
            self.fallback.timer = self.timers.add(now, FALLBACK, Timer::Fallback);
        }
    }

    /// Removes the timer when no call waits.
    pub(super) fn disarm_fallback(&mut self) {
        if self.families.queued() == 0
            && let Some(timer) = self.fallback.timer.take()
        {
            self.timers.remove(timer);
        }
    }

    /// Gives the calls that have waited for long enough to their callers' workers, one to each
    /// worker, the deepest first.
    pub(super) fn on_fallback_timer(&mut self, now: Instant) {
        self.fallback.timer = None;
        if self.families.queued() == 0 {
            return;
        }
        let most = self.may_fall_back();
        let left = |id: TaskId| {
            let since = self.tasks.get(&id).map_or(now, |task| task.since);
            (id, FALLBACK.saturating_sub(now.saturating_duration_since(since)))
        };
        let calls: Vec<_> = self.families.waiting().filter_map(|family| family.helpable(most)).map(left).collect();
        let next = calls.iter().map(|(_, left)| *left).filter(|left| !left.is_zero()).min();
        self.fallback.timer = self.timers.add(now, next.unwrap_or(FALLBACK), Timer::Fallback);
        if self.open.is_empty() && self.failed.is_none() {
            for (id, _) in calls.into_iter().filter(|(_, left)| left.is_zero()) {
                self.fallback.on |= self.fall_back(now, id);
            }
        }
    }

    /// Gives a waiting call to its caller's worker, if further calls fall back at once.
    pub(super) fn fall_back_at_once(&mut self, now: Instant, id: TaskId) {
        let may = self.tasks.get(&id).is_some_and(|task| task.help() <= self.may_fall_back());
        if may && self.fallback.on && self.open.is_empty() && self.failed.is_none() {
            self.fall_back(now, id);
        }
    }

    /// A worker runs one call less: it takes the next one below its task, if calls fall back at once.
    pub(super) fn take_fallback(&mut self, now: Instant, rank: Rank) {
        let family = self.sent(rank).next().and_then(|id| self.tasks.get(&id)).and_then(|task| task.family);
        if self.fallback.on
            && let Some(id) = family.and_then(|family| self.families.deepest_below(family, self.may_fall_back()))
        {
            self.fall_back_at_once(now, id);
        }
    }

    /// Gives a waiting call to the worker of the nearest caller above it that can take it. Returns
    /// whether there is one.
    fn fall_back(&mut self, now: Instant, id: TaskId) -> bool {
        let can = |caller| self.runner(caller).filter(|rank| self.waits_for_calls(*rank));
        let Some(rank) = self.above(id).find_map(can) else { return false };
        let frame = self.workers[rank.0 as usize].waiting();
        let is_below = frame.is_some_and(|frame| self.above(id).any(|above| above == frame));
        self.unqueue(id);
        self.give(now, rank, id, !is_below);
        true
    }

    /// Which calls may fall back now.
    fn may_fall_back(&self) -> Help {
        if self.counts.ready < self.workers.len() { Help::Late } else { Help::Last }
    }

    /// Whether all that a worker runs has calls without an outcome, for which it may be waiting.
    fn waits_for_calls(&self, rank: Rank) -> bool {
        let worker = &self.workers[rank.0 as usize];
        worker.lives() && worker.runs().all(|id| self.is_caller(id))
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_fallback(&self) {
        let waits = self.families.queued() > 0;
        assert_eq!(self.fallback.timer.is_some(), waits, "calls wait, and no timer checks them: {self:?}");
        let next = self.timers.next();
        assert!(self.fallback.timer.is_none_or(|(at, _)| next.is_some_and(|next| next <= at)), "{self:?}");
    }
}

#[cfg(test)]
mod tests;
