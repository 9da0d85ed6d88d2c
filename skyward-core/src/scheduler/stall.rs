//! Gangs that make no progress: where their ranks are is asked for, and their world is ended.
//!
//! Progress is a sign of any rank: bytes that it wrote, an item of its stream, its return, a call of `sky.progress()`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::state::Timer;
use super::{Action, Scheduler};
use crate::error::{Error, RankStacks};
use crate::ids::{Rank, TaskId};

/// What is known of a running gang's progress.
#[derive(Debug)]
pub(super) struct Watch {
    /// The last sign of any rank.
    last: Instant,
    /// When the ranks were asked where they are.
    asked: Option<Instant>,
    /// Of those that a worker has.
    answers: BTreeMap<Rank, String>,
    timer: Option<(Instant, Timer)>,
}

impl Watch {
    /// A rank is back.
    pub(super) fn leave(&mut self, rank: Rank) {
        self.answers.remove(&rank);
    }
}

impl Scheduler {
    /// A rank gave a sign of life.
    pub fn on_progress(&mut self, now: Instant, rank: Rank) {
        if self.limits.stall.is_none() {
            return;
        }
        if let Some(watch) = self.gang_of(rank).and_then(|first| self.watch_of(first)) {
            watch.last = now;
        }
    }

    /// A rank says where it is: what Python's `faulthandler` wrote, or nothing if it cannot.
    pub fn on_stacks(&mut self, now: Instant, rank: Rank, text: String) {
        let Some(first) = self.gang_of(rank) else { return };
        let Some(watch) = self.watch_of(first).filter(|watch| watch.asked.is_some()) else { return };
        watch.answers.insert(rank, text);
        let answered = watch.answers.len();
        if self.gang_table.get(&first).is_some_and(|gang| gang.running() <= answered) {
            self.conclude(now, first);
        }
    }

    /// A gang has started: its progress is watched from now on.
    pub(super) fn watch(&mut self, now: Instant, first: TaskId) {
        let Some(stall) = self.limits.stall else { return };
        self.unwatch(first);
        let timer = self.timers.add(now, stall, Timer::Stall(first));
        if let Some(gang) = self.gang_table.get_mut(&first) {
            gang.watch = Some(Watch { last: now, asked: None, answers: BTreeMap::new(), timer });
        }
    }

    /// A gang has ended, or begins anew.
    pub(super) fn unwatch(&mut self, first: TaskId) {
        let watch = self.gang_table.get_mut(&first).and_then(|gang| gang.watch.take());
        if let Some(timer) = watch.and_then(|watch| watch.timer) {
            self.timers.remove(timer);
        }
    }

    pub(super) fn on_stall_timer(&mut self, now: Instant, first: TaskId) {
        let Some(stall) = self.limits.stall else { return };
        let running = self.running_of(first);
        let Some(watch) = self.watch_of(first) else { return };
        if watch.asked.is_some() {
            return self.conclude(now, first);
        }
        let left = stall.saturating_sub(now.saturating_duration_since(watch.last));
        if left.is_zero() {
            watch.asked = Some(now);
            self.actions.extend(running.into_iter().map(|(rank, task)| Action::Inspect { rank, task }));
            self.arm(now, ANSWER, first);
        } else {
            self.arm(now, left, first);
        }
    }

    /// Ends the gang, unless a rank has gone on since it was asked.
    fn conclude(&mut self, now: Instant, first: TaskId) {
        let Some(stall) = self.limits.stall else { return };
        let running = self.running_of(first);
        let Some(watch) = self.watch_of(first) else { return };
        if watch.asked.is_none_or(|asked| watch.last > asked) {
            watch.asked = None;
            watch.answers.clear();
            let left = stall.saturating_sub(now.saturating_duration_since(watch.last));
            return self.arm(now, left, first);
        }
        let silent = watch.asked.unwrap_or(now).saturating_duration_since(watch.last);
        let answers = std::mem::take(&mut watch.answers);
        let longest = (MOST / running.len().max(1)).max(LEAST);
        let stacks = running
            .iter()
            .map(|(rank, _)| RankStacks::new(*rank, answers.get(rank).map_or("", String::as_str), longest));
        let error = Error::stalled(silent, stacks.collect());
        self.unwatch(first);
        self.end_stalled(now, first, error);
    }

    /// The world of a gang ends with it, and the gang is tried again or fails.
    fn end_stalled(&mut self, now: Instant, first: TaskId, error: Error) {
        let Some((lost, running)) = self.running_of(first).first().copied() else { return };
        self.settle_stalled(now, first, running, error);
        self.end_world();
        self.restart(lost);
    }

    fn arm(&mut self, now: Instant, after: Duration, first: TaskId) {
        let timer = self.timers.add(now, after, Timer::Stall(first));
        if let Some(before) = self.watch_of(first).and_then(|watch| std::mem::replace(&mut watch.timer, timer)) {
            self.timers.remove(before);
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

/// How long the stacks of all ranks are waited for.
const ANSWER: Duration = Duration::from_secs(5);
/// Bytes of stacks that an error holds.
const MOST: usize = 256 << 10;
/// Bytes of stacks that each rank gets in any case.
const LEAST: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::super::tests::Story;
    use super::*;
    use crate::error::{Cause, ErrorKind};
    use crate::payload::{RetryPolicy, TaskOptions};
    use crate::spec::Limits;

    const STALL: Duration = Duration::from_secs(30);
    const HERE: &str = "Current thread 0x1 (most recent call first):\n  File \"a.py\", line 5 in here\n";
    const THERE: &str = "Current thread 0x2 (most recent call first):\n  File \"a.py\", line 9 in there\n";

    fn story() -> Story {
        let limits = Limits { stall: Some(STALL), ..Limits::default() };
        Story::with_limits(2, 1, true, limits)
    }

    fn later(story: &mut Story, seconds: u64) {
        story.later(Duration::from_secs(seconds));
    }

    fn asks(story: &Story) -> bool {
        story.has(|action| matches!(action, Action::Inspect { .. }))
    }

    fn answer(story: &mut Story) {
        for (rank, text) in [(0, HERE), (1, THERE)] {
            story.scheduler.on_stacks(story.now, Rank(rank), text.into());
        }
        story.step();
    }

    #[test]
    fn a_gang_without_progress_is_ended_and_says_where_its_ranks_were() {
        let mut story = story();
        let gang = story.gang();
        later(&mut story, 29);
        assert!(!asks(&story));
        later(&mut story, 1);
        assert!(asks(&story));
        answer(&mut story);
        assert!(story.has(|action| matches!(action, Action::RestartWorld { .. })));
        for id in gang {
            let error = story.finished[&id].as_ref().unwrap_err();
            assert_eq!((error.kind(), Cause::of(error)), (ErrorKind::Stalled, Some(Cause::Stall)));
            assert_eq!(
                error.message(),
                "no rank of the gang made progress for 30s: rank 0 was in `here` (a.py:5), rank 1 was in `there` (a.py:9)"
            );
            assert_eq!(error.stacks().len(), 2);
            assert!(error.to_string().contains("stacks of rank 1:\n  Current thread"), "{error}");
        }
        story.ready();
        let next = story.gang();
        assert_eq!((story.running(0), story.running(1)), (Some(next[0]), Some(next[1])));
        assert!(story.scheduler.failure().is_none());
    }

    #[test]
    fn any_sign_of_any_rank_is_progress() {
        let mut story = story();
        story.gang();
        for _ in 0..5 {
            later(&mut story, 29);
            story.scheduler.on_progress(story.now, Rank(1));
        }
        later(&mut story, 29);
        assert!(!asks(&story));
        // A return is a sign too.
        story.done(1);
        later(&mut story, 29);
        assert!(!asks(&story));
        later(&mut story, 1);
        assert!(story.has(|action| matches!(action, Action::Inspect { rank: Rank(0), .. })));
        assert!(!story.has(|action| matches!(action, Action::Inspect { rank: Rank(1), .. })), "it is back");
    }

    #[test]
    fn a_rank_that_does_not_answer_is_not_waited_for() {
        let mut story = story();
        let gang = story.gang();
        later(&mut story, 30);
        story.scheduler.on_stacks(story.now, Rank(0), HERE.into());
        story.step();
        assert!(story.finished.is_empty());
        later(&mut story, 5);
        let error = story.finished[&gang[1]].as_ref().unwrap_err();
        assert!(error.message().ends_with("rank 0 was in `here` (a.py:5), rank 1 did not answer"), "{error}");
    }

    #[test]
    fn a_gang_that_goes_on_while_it_is_asked_is_left_alone() {
        let mut story = story();
        story.gang();
        later(&mut story, 30);
        story.now += Duration::from_secs(1);
        story.scheduler.on_progress(story.now, Rank(0));
        answer(&mut story);
        assert!(story.finished.is_empty());
        later(&mut story, 29);
        assert!(!asks(&story));
        later(&mut story, 1);
        assert!(asks(&story), "it is watched as before");
    }

    #[test]
    fn a_stalled_gang_is_tried_again_only_when_that_is_said() {
        let mut story = story();
        let gang = story.gang_with(RetryPolicy::default().stall(1));
        for _ in 0..2 {
            assert_eq!((story.running(0), story.running(1)), (Some(gang[0]), Some(gang[1])));
            later(&mut story, 30);
            answer(&mut story);
            story.ready();
        }
        let error = story.finished[&gang[0]].as_ref().unwrap_err();
        assert_eq!((error.kind(), error.tries().len()), (ErrorKind::Stalled, 2));
    }

    #[test]
    fn what_is_no_gang_or_is_not_watched_is_left_alone() {
        let mut watched = story();
        watched.submit(crate::payload::Target::Any);
        later(&mut watched, 1000);
        assert!(!asks(&watched));
        let mut unwatched = Story::new(2, 1, true);
        unwatched.gang();
        assert_eq!(unwatched.scheduler.next_timeout(), None);
        // The queue is no stall.
        let mut waiting = story();
        waiting.submit(crate::payload::Target::Any);
        waiting.scheduler.submit_gang(waiting.now, &[TaskId(50), TaskId(51)], TaskOptions::default(), false);
        later(&mut waiting, 1000);
        assert!(!asks(&waiting));
    }
}
