//! Gangs that make no progress: when the ranks are asked for their stacks, what is reported, and
//! when the world ends.

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
fn a_gang_without_progress_ends_with_an_error_that_shows_where_its_ranks_were() {
    let mut story = story();
    let gang = story.gang();
    later(&mut story, 29);
    assert!(!asks(&story));
    later(&mut story, 1);
    assert!(asks(&story));
    answer(&mut story);
    assert!(story.has(|action| matches!(action, Action::Lost { .. })));
    for id in gang {
        let error = story.finished[&id].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stalled);
        assert_eq!(Cause::of(error), Some(Cause::Stalled));
        assert_eq!(
            error.message(),
            "no progress for 30s: rank 0 was in `here` (a.py:5), rank 1 was in `there` (a.py:9)"
        );
        assert_eq!(error.stacks().len(), 2);
        assert!(format!("{error:#}").contains("stacks of rank 1:\n  Current thread"), "{error}");
    }
    story.ready();
    let next = story.gang();
    assert_eq!(story.running(0), Some(next[0]));
    assert_eq!(story.running(1), Some(next[1]));
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
    // A return is a sign as well.
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
fn a_gang_that_makes_progress_after_the_question_is_not_ended() {
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
fn a_stalled_gang_is_tried_again_only_if_its_policy_says_so() {
    let mut story = story();
    let gang = story.gang_with(RetryPolicy::default().stall(1));
    for _ in 0..2 {
        assert_eq!(story.running(0), Some(gang[0]));
        assert_eq!(story.running(1), Some(gang[1]));
        later(&mut story, 30);
        answer(&mut story);
        story.ready();
    }
    let error = story.finished[&gang[0]].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stalled);
    assert_eq!(error.tries().len(), 2);
}

/// A story in which stalled gangs are reported after `report` seconds, and ended after `end`
/// seconds if set.
fn reported(report: u64, end: Option<u64>) -> Story {
    let limits =
        Limits { stall: end.map(Duration::from_secs), stall_report: Duration::from_secs(report), ..Limits::default() };
    Story::with_limits(2, 1, true, limits)
}

/// The report of the last step: the tasks, the time without progress, and where the ranks are.
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
    let mut story = Story::with_limits(2, 1, true, Limits::default());
    let gang = story.gang();
    later(&mut story, 599);
    assert!(!asks(&story));
    later(&mut story, 1);
    assert!(asks(&story));
    assert_eq!(report(&story), None);
    answer(&mut story);
    let places = vec![Some("`here` (a.py:5)".to_owned()), Some("`there` (a.py:9)".to_owned())];
    assert_eq!(report(&story), Some((gang.clone(), Duration::from_secs(600), places)));
    // However long the stall lasts, it is not reported again.
    for _ in 0..100 {
        later(&mut story, 599);
        assert!(!asks(&story) && report(&story).is_none());
    }
    assert!(story.finished.is_empty());
    assert_eq!(story.done(0), gang[0]);
    assert_eq!(story.done(1), gang[1]);
    assert!(gang.iter().all(|id| story.finished[id].is_ok()));
    assert_eq!(story.scheduler.next_timeout(), None, "nothing is watched any more");
}

#[test]
fn a_stall_is_reported_again_after_progress_and_as_long_without_it() {
    // The sign comes at different points between two looks.
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
fn a_rank_that_does_not_answer_does_not_hold_up_the_report() {
    let mut story = reported(100, None);
    story.gang();
    later(&mut story, 100);
    later(&mut story, 4);
    assert_eq!(report(&story), None);
    later(&mut story, 1);
    assert_eq!(report(&story).unwrap().2, [None, None]);
}

#[test]
fn a_gang_that_makes_progress_after_the_question_is_not_reported() {
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
fn a_gang_is_reported_before_its_end_only_if_the_end_comes_later() {
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
        assert_eq!(after, end);
        assert_eq!(told, reports);
        let error = story.finished[&gang[0]].as_ref().unwrap_err();
        assert!(error.message().starts_with(&format!("no progress for {end}s:")), "{error}");
    }
}

#[test]
fn each_try_of_a_gang_is_reported_separately() {
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
    // A generator that waits for its reader gives such a sign.
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
fn tasks_outside_gangs_have_no_limit_and_gangs_without_limits_are_not_watched() {
    let mut watched = story();
    watched.submit(crate::payload::Target::Any);
    later(&mut watched, 500);
    assert!(!asks(&watched));
    let unlimited = Limits { stall_report: Duration::MAX, ..Limits::default() };
    let mut unwatched = Story::with_limits(2, 1, true, unlimited);
    unwatched.gang();
    assert_eq!(unwatched.scheduler.next_timeout(), None);
    // A wait in the queue is no stall.
    let mut waiting = story();
    waiting.submit(crate::payload::Target::Any);
    waiting.scheduler.submit_gang(waiting.now, &[TaskId(50), TaskId(51)], TaskOptions::default(), false);
    later(&mut waiting, 500);
    assert!(!asks(&waiting));
}
