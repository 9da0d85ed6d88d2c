//! Gangs that make no progress: where their ranks are is asked for and reported, and their world is
//! ended where that is wished.
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
    /// The last sign before the stall that was reported last.
    reported: Option<Instant>,
    /// When the ranks were asked where they are, and what for.
    asked: Option<(Instant, Purpose)>,
    /// Of those that a worker has.
    answers: BTreeMap<Rank, String>,
    timer: Option<(Instant, Timer)>,
}

/// What the places of the ranks are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To say where they are. The gang goes on.
    Report,
    /// To end the gang with them.
    End,
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self { last: now, reported: None, asked: None, answers: BTreeMap::new(), timer: None }
    }

    /// A rank is back.
    pub(super) fn leave(&mut self, rank: Rank) {
        self.answers.remove(&rank);
    }

    /// What is due now, or else in how much time it is looked again. `report` and `end` are the
    /// times without progress after which a gang is reported and ended.
    fn due(&self, now: Instant, report: Duration, end: Option<Duration>) -> Result<Purpose, Duration> {
        let silent = now.saturating_duration_since(self.last);
        let end = end.map(|end| end.saturating_sub(silent));
        let report = match self.reported == Some(self.last) {
            false => report.saturating_sub(silent),
            // A sign that comes before the next look is seen there, and what follows it has not lasted longer by then.
            true => report,
        };
        match end {
            Some(Duration::ZERO) => Ok(Purpose::End),
            _ if report.is_zero() => Ok(Purpose::Report),
            end => Err(end.map_or(report, |end| end.min(report))),
        }
    }
}

impl Scheduler {
    /// A rank gave a sign of life.
    pub fn on_progress(&mut self, now: Instant, rank: Rank) {
        if self.gang_table.is_empty() {
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

    /// Asks the ranks where they are when the gang has been without progress for long enough, and
    /// otherwise looks again when it may have been.
    fn inspect(&mut self, now: Instant, first: TaskId) {
        let (report, end) = (self.limits.stall_report, self.limits.stall);
        let Some(watch) = self.watch_of(first) else { return };
        match watch.due(now, report, end) {
            Ok(purpose) => {
                watch.asked = Some((now, purpose));
                let running = self.running_of(first);
                self.actions.extend(running.into_iter().map(|(rank, task)| Action::Inspect { rank, task }));
                self.arm(now, ANSWER, first);
            }
            Err(later) => self.arm(now, later, first),
        }
    }

    /// Reports the gang or ends it, unless a rank has gone on since it was asked.
    fn conclude(&mut self, now: Instant, first: TaskId) {
        let running = self.running_of(first);
        let Some(watch) = self.watch_of(first) else { return };
        let answers = std::mem::take(&mut watch.answers);
        // A generator that waits for its reader is found to go on at the moment in which it is asked.
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
            // It may be the same one.
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

/// How long the stacks of all ranks are waited for.
const ANSWER: Duration = Duration::from_secs(5);
/// Bytes of stacks that an error or a report holds.
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

    /// Gangs that are reported after so many seconds, and ended after so many if at all.
    fn reported(report: u64, end: Option<u64>) -> Story {
        let limits = Limits {
            stall: end.map(Duration::from_secs),
            stall_report: Duration::from_secs(report),
            ..Limits::default()
        };
        Story::with_limits(2, 1, true, limits)
    }

    /// The report of the last step: its tasks, for how long, and where the ranks are.
    fn report(story: &Story) -> Option<(Vec<TaskId>, Duration, Vec<Option<String>>)> {
        story.find(|action| match action {
            Action::Stalled { tasks, silent, stacks } => {
                Some((tasks.clone(), *silent, stacks.iter().map(|one| one.place.clone()).collect()))
            }
            _ => None,
        })
    }

    #[test]
    fn a_gang_without_progress_is_reported_after_ten_minutes_and_goes_on() {
        let mut story = Story::new(2, 1, true);
        let gang = story.gang();
        later(&mut story, 599);
        assert!(!asks(&story));
        later(&mut story, 1);
        assert!(asks(&story));
        assert_eq!(report(&story), None);
        answer(&mut story);
        let places = vec![Some("`here` (a.py:5)".to_owned()), Some("`there` (a.py:9)".to_owned())];
        assert_eq!(report(&story), Some((gang.clone(), Duration::from_secs(600), places)));
        // For ever.
        for _ in 0..100 {
            later(&mut story, 599);
            assert!(!asks(&story) && report(&story).is_none());
        }
        assert!(story.finished.is_empty());
        assert_eq!((story.done(0), story.done(1)), (gang[0], gang[1]));
        assert!(gang.iter().all(|id| story.finished[id].is_ok()));
        assert_eq!(story.scheduler.next_timeout(), None, "nothing is watched any more");
    }

    #[test]
    fn a_stall_is_reported_again_after_progress_and_as_long_without_it() {
        // Signs that come in all parts of the time between two looks.
        for sign in [1, 7, 50, 99, 100, 101, 199, 250] {
            let mut story = reported(100, None);
            story.gang();
            later(&mut story, 100);
            answer(&mut story);
            assert!(report(&story).is_some(), "{sign}");
            for _ in 0..sign {
                later(&mut story, 1);
                assert!(!asks(&story), "{sign}");
            }
            story.scheduler.on_progress(story.now, Rank(1));
            for _ in 0..99 {
                later(&mut story, 1);
                assert!(!asks(&story), "{sign}");
            }
            later(&mut story, 1);
            assert!(asks(&story), "{sign}");
            answer(&mut story);
            assert_eq!(report(&story).unwrap().1, Duration::from_secs(100), "{sign}");
        }
    }

    #[test]
    fn a_rank_that_does_not_answer_keeps_no_report_from_coming() {
        let mut story = reported(100, None);
        story.gang();
        later(&mut story, 100);
        later(&mut story, 4);
        assert_eq!(report(&story), None);
        later(&mut story, 1);
        assert_eq!(report(&story).unwrap().2, [None, None]);
    }

    #[test]
    fn a_gang_that_goes_on_while_it_is_asked_is_not_reported() {
        let mut story = reported(100, None);
        story.gang();
        later(&mut story, 100);
        story.now += Duration::from_secs(1);
        story.scheduler.on_progress(story.now, Rank(0));
        answer(&mut story);
        assert_eq!(report(&story), None);
        later(&mut story, 99);
        assert!(!asks(&story));
        later(&mut story, 1);
        assert!(asks(&story), "it is watched as before");
    }

    #[test]
    fn a_gang_that_is_to_be_ended_is_reported_before_only_where_it_has_the_time() {
        for (end, reports) in [(50, 0), (100, 0), (250, 1)] {
            let mut story = reported(100, Some(end));
            let gang = story.gang();
            let mut told = 0;
            let mut after = 0;
            while story.finished.is_empty() {
                later(&mut story, 1);
                after += 1;
                assert!(after <= end, "it is ended after {end} s");
                if asks(&story) {
                    answer(&mut story);
                    told += usize::from(report(&story).is_some());
                }
            }
            assert_eq!((after, told), (end, reports));
            let error = story.finished[&gang[0]].as_ref().unwrap_err();
            assert!(error.message().starts_with(&format!("no rank of the gang made progress for {end}s:")), "{error}");
        }
    }

    #[test]
    fn a_gang_that_is_tried_again_is_reported_for_itself() {
        let mut story = reported(100, None);
        story.gang_with(RetryPolicy::default().crash(1));
        later(&mut story, 100);
        answer(&mut story);
        assert!(report(&story).is_some());
        story.lost(0);
        story.ready();
        later(&mut story, 99);
        assert!(!asks(&story));
        later(&mut story, 1);
        answer(&mut story);
        assert!(report(&story).is_some());
    }

    #[test]
    fn a_sign_at_the_moment_of_the_question_is_progress() {
        // So it is told of a generator that waits for its reader.
        for mut story in [reported(30, None), reported(600, Some(30))] {
            story.gang();
            later(&mut story, 30);
            assert!(asks(&story));
            story.scheduler.on_progress(story.now, Rank(0));
            later(&mut story, 5);
            assert!(report(&story).is_none() && story.finished.is_empty());
        }
    }

    #[test]
    fn what_is_no_gang_or_is_not_watched_is_left_alone() {
        let mut watched = story();
        watched.submit(crate::payload::Target::Any);
        later(&mut watched, 1000);
        assert!(!asks(&watched));
        let unlimited = Limits { stall_report: Duration::MAX, ..Limits::default() };
        let mut unwatched = Story::with_limits(2, 1, true, unlimited);
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
