//! Tasks that run alone and make no progress: the scheduler asks the worker for its stacks and
//! reports them. The task goes on. `stall.rs` watches gangs.
//!
//! A worker has one timer, which later tasks do not move: short tasks cost no timer.

use std::time::{Duration, Instant};

use super::timers::Timer;
use super::timing::STACKS;
use super::watch::Watch;
use super::{Action, Scheduler};
use crate::error::RankStacks;
use crate::ids::{Rank, TaskId};

impl Scheduler {
    /// The worker's task has made progress.
    pub(super) fn sign(&mut self, now: Instant, rank: Rank) {
        if let Some(watch) = self.watch_alone_of(rank) {
            watch.last = now;
        }
    }

    /// The worker's first task has begun.
    pub(super) fn watch_alone(&mut self, now: Instant, rank: Rank) {
        let watch = self.workers[rank.0 as usize].watch.get_or_insert_with(|| Watch::new(now));
        watch.last = now;
        if watch.timer.is_none() {
            watch.timer = self.timers.add(now, self.limits.stall_report, Timer::Silence(rank));
        }
    }

    /// The rank leaves the pool.
    pub(super) fn unwatch_alone(&mut self, rank: Rank) {
        if let Some(timer) = self.watch_alone_of(rank).and_then(|watch| watch.timer.take()) {
            self.timers.remove(timer);
        }
    }

    pub(super) fn on_silence_timer(&mut self, now: Instant, rank: Rank) {
        let Some(watch) = self.watch_alone_of(rank) else { return };
        watch.timer = None;
        if watch.asked.is_some() {
            return self.report_silence(now, rank, "");
        }
        let Some(task) = self.alone(rank) else { return };
        let (report, waits) = (self.limits.stall_report, self.waits_elsewhere(rank));
        let Some(watch) = self.watch_alone_of(rank) else { return };
        let after = match watch.due(now, report, None) {
            Err(later) => later,
            Ok(_) if waits => report,
            Ok(purpose) => {
                watch.asked = Some((now, purpose));
                self.actions.push(Action::Inspect { rank, task });
                STACKS
            }
        };
        self.look_again(now, rank, after);
    }

    /// Reports where the worker is, unless its task has ended or made progress since the question.
    pub(super) fn report_silence(&mut self, now: Instant, rank: Rank, text: &str) {
        let (report, task) = (self.limits.stall_report, self.alone(rank));
        let Some(watch) = self.watch_alone_of(rank) else { return };
        let Some((asked, _)) = watch.asked.take() else { return };
        let last = watch.last;
        if let Some(task) = task.filter(|_| last < asked) {
            watch.reported = Some(last);
            let silent = asked.saturating_duration_since(last);
            let stacks = vec![RankStacks::new(rank, text, MOST)];
            self.actions.push(Action::Stalled { tasks: vec![task], silent, stacks });
        }
        self.unwatch_alone(rank);
        self.look_again(now, rank, report);
    }

    fn look_again(&mut self, now: Instant, rank: Rank, after: Duration) {
        let timer = self.timers.add(now, after, Timer::Silence(rank));
        if let Some(watch) = self.watch_alone_of(rank) {
            watch.timer = timer;
        }
    }

    fn watch_alone_of(&mut self, rank: Rank) -> Option<&mut Watch> {
        self.workers.get_mut(rank.0 as usize)?.watch.as_mut()
    }

    /// The worker's first task, unless it is one of a gang.
    fn alone(&self, rank: Rank) -> Option<TaskId> {
        let first = self.sent(rank).next()?;
        self.tasks.get(&first).filter(|task| task.gang.is_none()).map(|_| first)
    }

    /// Whether a call of what the worker runs waits, or runs elsewhere: the call is then what makes
    /// no progress, and not its caller.
    fn waits_elsewhere(&self, rank: Rank) -> bool {
        let worker = &self.workers[rank.0 as usize];
        let runs = worker.sent.front().into_iter().chain(&worker.frames).chain(&worker.asides);
        runs.flat_map(|id| self.calls_of(*id)).any(|call| self.runner(call) != Some(rank))
    }
}

/// The most bytes of stacks in a report.
const MOST: usize = 64 << 10;

#[cfg(test)]
mod tests;
