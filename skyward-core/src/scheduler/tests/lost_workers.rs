//! Workers that crash or are killed: which task is to blame, and which tasks run again.

use super::*;
use crate::error::Cause;

#[test]
fn tasks_that_may_have_begun_on_a_lost_worker_are_reported_as_retried() {
    let (mut story, [first, second, third]) = three_on_one();
    story.lost(0);
    assert!(story.finished[&first].is_err());
    let again = |task| {
        story.actions.iter().any(|action| matches!(action, Action::Retried { task: other, .. } if *other == task))
    };
    assert!(again(second) && again(third));
    story.ready();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [second, third]);
}

#[test]
fn the_task_that_began_last_on_a_lost_worker_counts_as_crashed() {
    let (mut story, [first, second, third]) = three_on_one();
    story.not_begun(0, &[third]);
    story.lost_with(0, Some(second));
    assert_eq!(story.finished[&second].as_ref().unwrap_err().exit(), Some(&WorkerExit::Signal(11)));
    let retried = |wanted: TaskId| {
        story.has(|action| match action {
            Action::Retried { task, error, .. } => *task == wanted && Cause::of(error) == Some(Cause::NodeLost),
            _ => false,
        })
    };
    assert!(retried(first), "it had returned, and its answer was lost with the worker");
    assert!(!retried(third), "it had not begun");
    story.ready();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [first, third]);
    assert_eq!(story.done(0), first);
    assert_eq!(story.done(0), third);
}

#[test]
fn a_task_whose_answers_are_lost_with_its_worker_is_not_poison() {
    let (mut story, ids) = three_on_one();
    for id in ids {
        story.scheduler.on_returned(story.now, Rank(0), id, Ok(Value::new(vec![], Rank(0))), 1);
    }
    let innocent = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(100)));
    for round in 0..2 * Limits::default().poison {
        let crashes = story.submit(Target::Any);
        assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [innocent, crashes], "round {round}");
        story.lost_with(0, Some(crashes));
        assert_eq!(story.outcome(crashes), Some(Err(ErrorKind::WorkerExited)), "round {round}");
        story.ready();
    }
    assert_eq!(story.done(0), innocent);
    assert_eq!(story.outcome(innocent), Some(Ok(())));
}

#[test]
fn a_lost_worker_fails_its_running_task_and_the_rest_runs_elsewhere() {
    let mut story = Story::new(2, 1, false);
    let (a, b) = (story.submit(Target::Any), story.submit(Target::Any));
    story.lost(0);
    assert_eq!(story.outcome(a), Some(Err(ErrorKind::WorkerExited)));
    assert!(story.has(|action| matches!(action, Action::Lost { rank: Rank(0), .. })));
    assert_eq!(story.outcome(b), None);
    let c = story.submit(Target::Rank(Rank(0)));
    story.ready();
    assert_eq!(story.running(0), Some(c));
}

#[test]
fn tasks_that_were_sent_ahead_and_never_began_are_not_blamed() {
    let mut story = Story::new(1, 1, false);
    let first = story.submit(Target::Any);
    story.scheduler.on_returned(story.now, Rank(0), first, Ok(Value::new(vec![], Rank(0))), 10);
    story.step();
    let ids: Vec<_> = (0..3).map(|_| story.submit(Target::Any)).collect();
    assert_eq!(story.scheduler.sent(Rank(0)).count(), 3, "short tasks are sent ahead");
    story.not_begun(0, &ids[1..]);
    story.lost(0);
    assert_eq!(story.outcome(ids[0]), Some(Err(ErrorKind::WorkerExited)));
    story.ready();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids[1..]);
}

#[test]
fn the_first_failure_is_the_one_that_is_reported() {
    let mut story = Story::new(1, 1, false);
    story.scheduler.close(Error::new(ErrorKind::NodeLost, "the cause"));
    story.scheduler.close(Error::new(ErrorKind::Io, "its consequence"));
    assert_eq!(story.scheduler.failure().unwrap().kind(), ErrorKind::NodeLost);
}

#[test]
fn a_worker_that_is_lost_without_a_task_is_reported_with_the_time_that_it_lasted() {
    let mut story = Story::new(1, 1, false);
    let idle = |story: &Story| {
        story.find(|action| match action {
            Action::Lost { loss, .. } => Some((loss.idle.clone().map(|(exit, _)| exit), loss.lasted)),
            _ => None,
        })
    };
    story.later(GRACE);
    story.lost(0);
    assert_eq!(idle(&story), Some((Some(WorkerExit::Signal(11)), GRACE)));
    story.ready();
    story.submit(Target::Any);
    story.later(2 * GRACE);
    story.lost(0);
    assert_eq!(idle(&story), Some((None, 2 * GRACE)), "its task may be the cause");
    story.ready();
    story.scheduler.on_lost(story.now, Rank(0), &WorkerExit::AgentGone, &LastWords::default(), None);
    story.step();
    assert_eq!(idle(&story), Some((None, Duration::ZERO)), "it was lost with its node");
}

#[test]
fn a_poison_task_fails_alone_and_the_others_go_on() {
    let mut story = Story::new(1, 1, false);
    let poison = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(100)));
    let good = story.submit(Target::Any);
    for _ in 0..Limits::default().poison {
        assert_eq!(story.running(0), Some(poison));
        story.lost(0);
        story.ready();
    }
    assert_eq!(story.outcome(poison), Some(Err(ErrorKind::Poisoned)));
    assert_eq!(story.done(0), good);
}

#[test]
fn workers_that_are_lost_because_of_their_tasks_are_not_lost_idle() {
    let blames = |story: &Story| story.has(|action| matches!(action, Action::Lost { loss, .. } if loss.idle.is_some()));
    let mut story = Story::new(1, 1, false);
    let poison = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(100)));
    while story.outcome(poison).is_none() {
        story.lost(0);
        assert!(!blames(&story));
        story.ready();
    }
    assert_eq!(story.outcome(poison), Some(Err(ErrorKind::Poisoned)));
    let id = story.submit(Target::Any);
    story.scheduler.cancel(story.now, id);
    story.later(GRACE);
    assert!(story.has(|action| matches!(action, Action::Kill { rank: Rank(0) })));
    story.scheduler.on_lost(story.now, Rank(0), &WorkerExit::Killed, &LastWords::default(), None);
    story.step();
    assert!(story.has(|action| matches!(action, Action::Lost { .. })) && !blames(&story));
    story.ready();
    let good = story.submit(Target::Any);
    assert_eq!(story.done(0), good);
}
