//! Workers that crash, are killed or cannot restart: which task is to blame, which tasks run again,
//! and when the pool ends.

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
    assert_eq!((story.done(0), story.done(0)), (first, third));
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
    assert!(story.has(|action| matches!(action, Action::RestartWorker { rank: Rank(0) })));
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
    story.scheduler.fail(Error::new(ErrorKind::NodeLost, "the cause"));
    story.scheduler.fail(Error::new(ErrorKind::Io, "its consequence"));
    assert_eq!(story.scheduler.failure().unwrap().kind(), ErrorKind::NodeLost);
}

#[test]
fn workers_that_only_die_end_the_pool() {
    let mut story = Story::new(1, 1, false);
    for _ in 0..=policy::MAX_BARREN_RESTARTS {
        story.lost(0);
        story.ready();
    }
    assert!(story.scheduler.failure().is_some());
}

#[test]
fn idle_workers_that_end_now_and_then_do_not_end_the_pool() {
    for (pause, ends) in [(policy::SOUND, false), (policy::SOUND / 4, true)] {
        for (nodes, joined) in [(1, false), (2, false), (2, true)] {
            let mut story = Story::new(nodes, 1, joined);
            for _ in 0..3 * policy::MAX_BARREN_RESTARTS {
                story.later(pause);
                story.lost(0);
                story.ready();
            }
            let sick = story.has(|action| matches!(action, Action::NodeSick { .. }));
            assert!(!sick || ends, "{nodes} nodes, a death each {pause:?}");
            assert_eq!(story.scheduler.failure().is_some(), ends && nodes == 1, "{nodes} nodes, each {pause:?}");
        }
    }
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
    assert!(story.scheduler.failure().is_none());
}

#[test]
fn poison_tasks_one_after_another_do_not_end_the_pool() {
    let mut story = Story::new(1, 1, false);
    for _ in 0..20 {
        let poison = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(100)));
        while story.outcome(poison).is_none() {
            story.lost(0);
            story.ready();
        }
        assert_eq!(story.outcome(poison), Some(Err(ErrorKind::Poisoned)));
    }
    assert!(story.scheduler.failure().is_none());
    let good = story.submit(Target::Any);
    assert_eq!(story.done(0), good);
}

#[test]
fn workers_killed_for_cancelled_tasks_do_not_end_the_pool() {
    let mut story = Story::new(1, 1, false);
    for _ in 0..20 {
        let id = story.submit(Target::Any);
        story.scheduler.cancel(story.now, id);
        story.later(GRACE);
        assert!(story.has(|action| matches!(action, Action::Kill { rank: Rank(0) })));
        story.scheduler.on_lost(story.now, Rank(0), &WorkerExit::Killed, None);
        story.step();
        story.ready();
    }
    assert!(story.scheduler.failure().is_none());
}

#[test]
fn workers_that_cannot_restart_end_the_pool_with_the_error_of_the_start() {
    for joined in [false, true] {
        let mut story = Story::new(2, 1, joined);
        story.lost(1);
        for time in 1..policy::MAX_BARREN_RESTARTS {
            // The failures alternate between the nodes: another machine would not help.
            story.scheduler.on_start_failed(Rank(time % 2), &Error::new(ErrorKind::Hook, "no peer"));
            story.step();
            let again = |action: &Action| matches!(action, Action::RestartWorker { .. } | Action::RestartWorld { .. });
            assert!(story.has(again));
        }
        story.scheduler.on_start_failed(Rank(1), &Error::new(ErrorKind::Hook, "no peer"));
        let error = story.scheduler.failure().unwrap();
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.summary().ends_with(": no peer"), "{error}");
    }
}
