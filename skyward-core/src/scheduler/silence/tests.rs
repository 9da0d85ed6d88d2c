//! Tasks that run alone and make no progress: when their workers are asked for their stacks, and
//! what is reported.

use super::super::tests::Story;
use super::*;
use crate::payload::Target;
use crate::spec::Limits;

const HERE: &str = "Current thread 0x1 (most recent call first):\n  File \"a.py\", line 5 in here\n";
const REPORT: u64 = 600;

fn story(nodes: u32) -> Story {
    Story::with_limits(nodes, 1, false, Limits::default())
}

fn later(story: &mut Story, seconds: u64) {
    story.later(Duration::from_secs(seconds));
}

fn asks(story: &Story, of: u32) -> bool {
    story.has(|action| matches!(action, Action::Inspect { rank, .. } if rank.0 == of))
}

/// Whether a worker is asked within the time of two reports.
fn asks_within(story: &mut Story, of: u32) -> bool {
    (0..2).any(|_| {
        later(story, REPORT);
        asks(story, of)
    })
}

/// The report that follows an answer: the task, for how long it had made no progress, and where it was.
fn report(story: &mut Story, rank: u32, text: &str) -> Option<(TaskId, u64, Option<String>)> {
    story.scheduler.on_stacks(story.now, Rank(rank), text.into());
    story.step();
    story.find(|action| match action {
        Action::Stalled { tasks, silent, stacks } => {
            Some((tasks[0], silent.as_secs(), stacks[0].place.as_ref().map(ToString::to_string)))
        }
        _ => None,
    })
}

#[test]
fn a_task_without_progress_is_reported_once_and_goes_on() {
    let mut story = story(2);
    let task = story.submit(Target::Rank(Rank(1)));
    later(&mut story, REPORT - 1);
    assert!(!asks(&story, 1));
    later(&mut story, 1);
    assert!(asks(&story, 1) && !asks(&story, 0));
    assert_eq!(report(&mut story, 1, HERE), Some((task, REPORT, Some("`here` (a.py:5)".into()))));
    for _ in 0..5 {
        later(&mut story, REPORT);
        assert!(!asks(&story, 1), "it was reported");
    }
    story.scheduler.on_progress(story.now, Rank(1));
    assert!(asks_within(&mut story, 1), "another silence is another report");
    assert_eq!(story.running(1), Some(task));
    assert_eq!(story.outcome(task), None);
}

#[test]
fn progress_and_the_end_of_a_task_are_no_silence() {
    let mut story = story(1);
    for _ in 0..3 {
        story.submit(Target::Any);
        later(&mut story, REPORT - 1);
        story.scheduler.on_progress(story.now, Rank(0));
        later(&mut story, REPORT - 1);
        story.done(0);
        later(&mut story, REPORT);
    }
    assert!(!asks(&story, 0));
    assert_eq!(story.scheduler.next_timeout(), None, "an idle worker has no timer");
    // A sign that comes after the question, and an end.
    story.submit(Target::Any);
    later(&mut story, REPORT);
    story.scheduler.on_progress(story.now, Rank(0));
    assert_eq!(report(&mut story, 0, HERE), None);
    assert!(asks_within(&mut story, 0));
    story.done(0);
    assert_eq!(report(&mut story, 0, HERE), None);
}

#[test]
fn a_worker_that_does_not_answer_is_reported_without_a_place() {
    let mut story = story(1);
    let task = story.submit(Target::Any);
    later(&mut story, REPORT);
    later(&mut story, 5);
    let silent = story.find(|action| match action {
        Action::Stalled { tasks, stacks, .. } => Some((tasks[0], stacks[0].place.is_some())),
        _ => None,
    });
    assert_eq!(silent, Some((task, false)));
}

#[test]
fn a_call_is_reported_and_not_the_caller_that_waits_for_it() {
    let mut story = story(2);
    let root = story.submit(Target::Rank(Rank(0)));
    let id = story.call(root);
    assert_eq!(story.running(1), Some(id));
    later(&mut story, REPORT);
    assert!(asks(&story, 1) && !asks(&story, 0));
    assert_eq!(report(&mut story, 1, HERE).map(|(task, ..)| task), Some(id));
    story.done(1);
    assert!(asks_within(&mut story, 0), "now the caller itself makes no progress");
}

#[test]
fn a_caller_that_runs_its_own_call_is_reported() {
    let mut story = story(1);
    let root = story.submit(Target::Any);
    let id = story.call(root);
    later(&mut story, 1);
    assert_eq!(story.scheduler.runner(id), Some(Rank(0)), "the call falls back");
    assert!(asks_within(&mut story, 0));
}

#[test]
fn no_report_is_made_without_a_limit_and_none_of_a_rank_that_has_left() {
    let mut story = Story::new(1, 1, false);
    story.submit(Target::Any);
    later(&mut story, 100 * REPORT);
    assert!(!asks(&story, 0));
    let mut story = self::story(2);
    story.submit(Target::Rank(Rank(1)));
    story.done(1);
    story.activate(1);
    story.scheduler.remove_node(crate::ids::NodeIndex(1), 1);
    assert_eq!(story.scheduler.next_timeout(), None);
}
