//! Gangs without progress: the scheduler asks the ranks for their stacks and reports them, and ends
//! the world if the limits say so.
//!
//! Each of these signs of any rank is progress: bytes that it wrote, an item of its stream, its
//! return, a call of `sky.progress()`.

use std::time::{Duration, Instant};

use super::timers::Timer;
use super::timing::STACKS;
use super::watch::{Purpose, Watch};
use super::{Action, Loss, Scheduler};
use crate::error::{Error, RankStacks};
use crate::ids::{Rank, TaskId};

impl Scheduler {
    /// A rank gave a sign of life.
    pub fn on_progress(&mut self, now: Instant, rank: Rank) {
        let gang = if self.gang_table.is_empty() { None } else { self.gang_of(rank) };
        match gang.and_then(|first| self.watch_of(first)) {
            Some(watch) => watch.last = now,
            None => self.sign(now, rank),
        }
    }

    /// A rank reports its stacks, as Python's `faulthandler` wrote them. The text is empty if the
    /// rank cannot report.
    pub fn on_stacks(&mut self, now: Instant, rank: Rank, text: String) {
        self.locate(now, rank, &text);
        let Some(first) = self.gang_of(rank) else { return self.report_silence(now, rank, &text) };
        let Some(watch) = self.watch_of(first).filter(|watch| watch.asked.is_some()) else { return };
        watch.answers.insert(rank, text);
        let answered = watch.answers.len();
        if self.gang_table.get(&first).is_some_and(|gang| gang.running() <= answered) {
            self.conclude(now, first);
        }
    }

    /// A gang has started: its progress is watched from now on.
    pub(super) fn watch(&mut self, now: Instant, first: TaskId) {
        self.unwatch(first);
        if let Some(gang) = self.gang_table.get_mut(&first) {
            gang.watch = Some(Watch::new(now));
        }
        self.inspect(now, first);
    }

    /// A gang has ended, or begins anew.
    pub(super) fn unwatch(&mut self, first: TaskId) {
        let watch = self.gang_table.get_mut(&first).and_then(|gang| gang.watch.take());
        if let Some(timer) = watch.and_then(|watch| watch.timer) {
            self.timers.remove(timer);
        }
    }

    pub(super) fn on_stall_timer(&mut self, now: Instant, first: TaskId) {
        match self.watch_of(first) {
            Some(watch) if watch.asked.is_some() => self.conclude(now, first),
            _ => self.inspect(now, first),
        }
    }

    /// Asks the ranks for their stacks when the gang has been without progress for long enough;
    /// sets a timer for the next look otherwise.
    fn inspect(&mut self, now: Instant, first: TaskId) {
        let (report, end) = (self.limits.stall_report, self.limits.stall);
        let Some(watch) = self.watch_of(first) else { return };
        match watch.due(now, report, end) {
            Ok(purpose) => {
                watch.asked = Some((now, purpose));
                let running = self.running_of(first);
                self.actions.extend(running.into_iter().map(|(rank, task)| Action::Inspect { rank, task }));
                self.arm(now, STACKS, first);
            }
            Err(later) => self.arm(now, later, first),
        }
    }

    /// Reports or ends the gang, unless a rank has made progress since the question.
    fn conclude(&mut self, now: Instant, first: TaskId) {
        let running = self.running_of(first);
        let Some(watch) = self.watch_of(first) else { return };
        let answers = std::mem::take(&mut watch.answers);
        // For a generator that waits for its reader, the sign of progress comes at the moment of
        // the question.
        let Some((asked, purpose)) = watch.asked.take().filter(|(asked, _)| watch.last < *asked) else {
            return self.inspect(now, first);
        };
        let silent = asked.saturating_duration_since(watch.last);
        let longest = (MOST / running.len().max(1)).max(LEAST);
        let stacks = running
            .iter()
            .map(|(rank, _)| RankStacks::new(*rank, answers.get(rank).map_or("", String::as_str), longest))
            .collect();
        match purpose {
            Purpose::Report => {
                watch.reported = Some(watch.last);
                let tasks = running.iter().map(|(_, task)| *task).collect();
                self.actions.push(Action::Stalled { tasks, silent, stacks });
                self.inspect(now, first);
            }
            Purpose::End => {
                self.unwatch(first);
                self.end_stalled(now, first, Error::stalled(silent, stacks));
            }
        }
    }

    /// Ends a gang's world; the gang is tried again or fails.
    fn end_stalled(&mut self, now: Instant, first: TaskId, error: Error) {
        let Some((lost, running)) = self.running_of(first).first().copied() else { return };
        self.settle_stalled(now, first, running, error);
        self.end_world();
        self.report_lost(lost, Loss::default());
    }

    fn arm(&mut self, now: Instant, after: Duration, first: TaskId) {
        let timer = self.timers.add(now, after, Timer::Stall(first));
        if let Some(before) = self.watch_of(first).and_then(|watch| std::mem::replace(&mut watch.timer, timer)) {
            // Both may be the same timer.
            if Some(before) != timer {
                self.timers.remove(before);
            }
        }
    }

    fn watch_of(&mut self, first: TaskId) -> Option<&mut Watch> {
        self.gang_table.get_mut(&first)?.watch.as_mut()
    }

    /// The gang whose task a worker runs.
    fn gang_of(&self, rank: Rank) -> Option<TaskId> {
        let running = self.workers.get(rank.0 as usize)?.sent.front()?;
        self.tasks.get(running)?.gang.map(|gang| gang.first)
    }
}

/// The most bytes of stacks in an error or a report.
const MOST: usize = 256 << 10;
/// The bytes of stacks that each rank gets in any case.
const LEAST: usize = 1 << 10;

#[cfg(test)]
mod tests;
