//! Tasks that run alone and make no progress: the scheduler asks the worker for its stacks and
//! reports them. The task goes on. `stall.rs` watches gangs.
//!
//! A worker has one timer, which later tasks do not move: short tasks cost no timer.

use std::time::{Duration, Instant};

use super::timers::Timer;
use super::worker::Silence;
use super::{Action, Scheduler};
use crate::error::RankStacks;
use crate::ids::{Rank, TaskId};

impl Scheduler {
    /// The worker's task has begun, or made progress.
    pub(super) fn sign(&mut self, now: Instant, rank: Rank) {
        if let Some(silence) = self.silence_of(rank) {
            silence.last = Some(now);
        }
    }

    /// The worker's first task has begun.
    pub(super) fn watch_alone(&mut self, now: Instant, rank: Rank) {
        self.sign(now, rank);
        let worker = &mut self.workers[rank.0 as usize];
        if worker.silence.timer.is_none() {
            worker.silence.timer = self.timers.add(now, self.limits.stall_report, Timer::Silence(rank));
        }
    }

    /// The rank leaves the pool.
    pub(super) fn unwatch_alone(&mut self, rank: Rank) {
        if let Some(timer) = self.workers[rank.0 as usize].silence.timer.take() {
            self.timers.remove(timer);
        }
    }

    pub(super) fn on_silence_timer(&mut self, now: Instant, rank: Rank) {
        let report = self.limits.stall_report;
        let Some(silence) = self.silence_of(rank) else { return };
        silence.timer = None;
        if silence.asked.is_some() {
            return self.report_silence(now, rank, "");
        }
        let Some(task) = self.alone(rank) else { return };
        let waits = self.waits_elsewhere(rank);
        let Some(silence) = self.silence_of(rank) else { return };
        let silent = silence.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let after = match silent < report {
            true => report - silent,
            false if waits || silence.reported == silence.last => report,
            false => {
                silence.asked = Some(now);
                self.actions.push(Action::Inspect { rank, task });
                ANSWER
            }
        };
        self.look_again(now, rank, after);
    }

    /// Reports where the worker is, unless its task has ended or made progress since the question.
    pub(super) fn report_silence(&mut self, now: Instant, rank: Rank, text: &str) {
        let (report, task) = (self.limits.stall_report, self.alone(rank));
        let Some(silence) = self.silence_of(rank) else { return };
        let (Some(asked), Some(last)) = (silence.asked.take(), silence.last) else { return };
        if let Some(task) = task.filter(|_| last < asked) {
            silence.reported = Some(last);
            let silent = asked.saturating_duration_since(last);
            let stacks = vec![RankStacks::new(rank, text, MOST)];
            self.actions.push(Action::Stalled { tasks: vec![task], silent, stacks });
        }
        self.unwatch_alone(rank);
        self.look_again(now, rank, report);
    }

    fn look_again(&mut self, now: Instant, rank: Rank, after: Duration) {
        self.workers[rank.0 as usize].silence.timer = self.timers.add(now, after, Timer::Silence(rank));
    }

    fn silence_of(&mut self, rank: Rank) -> Option<&mut Silence> {
        self.workers.get_mut(rank.0 as usize).map(|worker| &mut worker.silence)
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

/// How long the scheduler waits for stacks.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// The most bytes of stacks in a report.
const MOST: usize = 64 << 10;

#[cfg(test)]
mod tests;
