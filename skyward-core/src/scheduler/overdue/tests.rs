//! The story of tasks that pass their timeout.

use super::super::tests::{GRACE, Story};
use super::*;
use crate::error::WorkerExit;
use crate::payload::{RetryPolicy, Target, TaskOptions};

const LIMIT: Duration = Duration::from_secs(10);
const TEXT: &str = "Current thread 0x1 (most recent call first):\n  File \"job.py\", line 3 in work\n";

fn asked(story: &Story, rank: u32) -> bool {
    story.has(|action| matches!(action, Action::Locate { rank: Rank(at) } if *at == rank))
}

fn limited() -> TaskOptions {
    TaskOptions::default().timeout(LIMIT)
}

#[test]
fn a_task_is_located_before_it_is_interrupted_and_its_error_has_the_stacks() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, limited());
    story.later(LIMIT);
    assert!(asked(&story, 0) && !story.interrupted(id) && story.outcome(id).is_none());
    story.located(0, TEXT);
    assert!(story.interrupted(id));
    let error = story.finished[&id].clone().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the task ran longer than its timeout of 10s (where: rank 0 was in `work` (job.py:3))"
    );
    assert_eq!((error.stacks()[0].rank, error.stacks()[0].text.as_str()), (Rank(0), TEXT.trim_end()));
    story.later(GRACE);
    assert!(story.has(|action| matches!(action, Action::Kill { .. })));
}

#[test]
fn a_worker_that_does_not_answer_delays_the_end_for_a_short_while_only() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, limited());
    story.later(LIMIT);
    story.later(LOCATED);
    assert!(story.interrupted(id));
    let error = story.finished[&id].clone().unwrap_err();
    assert_eq!(error.to_string(), "the task ran longer than its timeout of 10s");
    assert!(error.kind() == ErrorKind::Timeout && error.stacks().is_empty());
    story.located(0, TEXT);
    assert!(!story.interrupted(id), "the answer was too late");
}

#[test]
fn a_task_that_ends_before_the_answer_keeps_its_outcome_and_the_next_task_its_time() {
    let mut story = Story::new(1, 1, false);
    let returns = story.submit_with(Target::Any, limited());
    story.later(LIMIT);
    story.done(0);
    assert_eq!(story.outcome(returns), Some(Ok(())));
    let dies = story.submit_with(Target::Any, limited());
    story.later(LIMIT);
    story.lost(0);
    assert_eq!(story.outcome(dies), Some(Err(ErrorKind::WorkerExited)));
    let cancelled = {
        story.ready();
        story.submit_with(Target::Any, limited())
    };
    story.later(LIMIT);
    story.cancel(cancelled);
    assert_eq!(story.outcome(cancelled), Some(Err(ErrorKind::Cancelled)));
    let ended = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
    story.scheduler.on_returned(story.now, Rank(0), cancelled, ended, 10);
    let next = story.submit_with(Target::Any, limited());
    story.located(0, TEXT);
    assert_eq!(story.outcome(next), None, "the answer was about another task");
    assert_eq!(story.scheduler.next_timeout(), Some(story.now + LIMIT));
}

#[test]
fn a_task_that_is_tried_again_has_its_whole_time() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, limited().retry(RetryPolicy::never().crash(1)));
    story.later(LIMIT);
    story.lost(0);
    story.ready();
    assert_eq!(story.running(0), Some(id));
    story.located(0, TEXT);
    assert_eq!(story.outcome(id), None);
    story.later(LIMIT);
    story.located(0, TEXT);
    assert_eq!(story.outcome(id), Some(Err(ErrorKind::Timeout)));
}

#[test]
fn a_gang_ends_together_with_the_stacks_of_all_its_ranks() {
    let mut story = Story::new(2, 1, true);
    let ids = story.gang_of(limited());
    story.later(LIMIT);
    assert!(asked(&story, 0) && asked(&story, 1));
    story.located(1, TEXT);
    assert_eq!(story.outcome(ids[1]), None, "the other rank has not answered");
    story.located(0, "");
    for id in &ids {
        let error = story.finished[id].clone().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(error.stacks().iter().map(|one| one.rank).collect::<Vec<_>>(), [Rank(0), Rank(1)]);
        assert_eq!(error.context()[0].1, "rank 0 did not answer, rank 1 was in `work` (job.py:3)");
        assert!(story.interrupted(*id));
    }
}

#[test]
fn a_member_of_a_gang_that_is_lost_meanwhile_ends_the_gang_as_lost() {
    let mut story = Story::new(2, 1, true);
    let ids = story.gang_of(limited().retry(RetryPolicy::never()));
    story.later(LIMIT);
    story.lost(1);
    for id in ids {
        let error = story.finished[&id].clone().unwrap_err();
        assert_eq!(error.exit(), Some(&WorkerExit::Signal(11)), "{error}");
    }
}
