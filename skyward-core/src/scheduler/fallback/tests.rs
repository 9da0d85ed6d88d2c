use std::time::Duration;

use super::super::tests::{GRACE, Story};
use super::*;
use crate::error::{Error, ErrorKind, LastWords};
use crate::payload::{Target, TaskOptions, Value};
use crate::scheduler::Action;

const MILLISECOND: Duration = Duration::from_millis(1);

/// The only worker runs a caller that has `count` waiting calls.
fn caller(count: usize) -> (Story, TaskId, Vec<TaskId>) {
    let mut story = Story::new(1, 1, false);
    let root = story.submit(Target::Any);
    let calls = (0..count).map(|_| story.call(root)).collect();
    (story, root, calls)
}

#[test]
fn calls_of_a_caller_that_does_not_report_its_wait_fall_back_and_later_ones_at_once() {
    let (mut story, root, calls) = caller(3);
    story.later(FALLBACK - MILLISECOND);
    assert_eq!(story.helps(), []);
    story.later(MILLISECOND);
    assert_eq!(story.helps(), [(0, calls[0], true)]);
    for pair in calls.windows(2) {
        story.later(FALLBACK * 2);
        assert_eq!(story.helps(), [], "one at a time");
        story.helped(0, pair[0]);
        assert_eq!(story.helps(), [(0, pair[1], true)]);
    }
    story.helped(0, calls[2]);
    assert_eq!(story.scheduler.next_timeout(), None);
    assert_eq!(story.done(0), root);
    let root = story.submit(Target::Any);
    let call = story.call(root);
    assert_eq!(story.helps(), [], "its worker was free in the meantime");
    story.later(FALLBACK);
    assert_eq!(story.helps(), [(0, call, true)]);
}

#[test]
fn a_call_falls_back_whatever_other_workers_run() {
    for workers in [2, 8] {
        let mut story = Story::new(workers, 1, false);
        let root = story.submit(Target::Rank(Rank(0)));
        for rank in 1..workers {
            story.submit(Target::Rank(Rank(rank)));
        }
        let call = story.call(root);
        story.later(FALLBACK - MILLISECOND);
        assert_eq!(story.helps(), []);
        story.later(MILLISECOND);
        assert_eq!(story.helps(), [(0, call, true)], "the others may run for hours");
    }
}

#[test]
fn a_call_falls_back_beside_a_node_that_drains_or_whose_machine_will_end() {
    for drains in [false, true] {
        let mut story = Story::new(2, 1, false);
        let root = story.submit(Target::Rank(Rank(0)));
        if drains {
            story.activate(1)
        } else {
            story.cordon(1)
        }
        let call = story.call(root);
        story.later(FALLBACK);
        assert_eq!(story.helps(), [(0, call, true)]);
    }
}

#[test]
fn a_worker_whose_main_thread_runs_a_call_gets_no_other_call_beside_it() {
    let (mut story, root, calls) = caller(3);
    story.waiting(0, root);
    assert_eq!(story.helps(), [(0, calls[0], false)]);
    story.later(FALLBACK * 3);
    assert_eq!(story.helps(), []);
    story.helped(0, calls[0]);
    assert_eq!(story.helps(), [(0, calls[1], false)]);
}

#[test]
fn each_caller_gets_its_own_call() {
    let mut story = Story::new(4, 1, false);
    let roots: Vec<TaskId> = (0..4).map(|rank| story.submit(Target::Rank(Rank(rank)))).collect();
    let timeout = TaskOptions::default().timeout(Duration::from_secs(60));
    let calls: Vec<TaskId> = roots.iter().flat_map(|root| [0; 2].map(|_| story.call_with(*root, timeout))).collect();
    story.later(FALLBACK);
    let mut helps = story.helps();
    helps.sort();
    assert_eq!(helps, [(0, calls[0], true), (1, calls[2], true), (2, calls[4], true), (3, calls[6], true)]);
}

#[test]
fn a_call_with_a_timeout_falls_back_while_other_tasks_queue_and_its_timeout_fires() {
    let mut story = Story::new(2, 1, false);
    let root = story.submit(Target::Rank(Rank(0)));
    for _ in 0..300 {
        story.submit(Target::Any);
    }
    story.waiting(0, root);
    let call = story.call_with(root, TaskOptions::default().timeout(Duration::from_secs(60)));
    story.later(FALLBACK);
    assert_eq!(story.helps(), [(0, call, false)]);
    story.later(Duration::from_secs(60));
    story.located(0, "");
    assert_eq!(story.outcome(call), Some(Err(ErrorKind::Timeout)));
}

#[test]
fn a_call_without_help_falls_back_on_a_main_thread_that_waits() {
    let (mut story, root, _) = caller(0);
    story.waiting(0, root);
    let call = story.call_with(root, TaskOptions::default().timeout(Duration::from_secs(1)));
    story.later(FALLBACK);
    assert_eq!(story.helps(), [(0, call, false)]);
    story.later(Duration::from_secs(1));
    story.located(0, "");
    assert!(story.interrupted(call) && story.outcome(call) == Some(Err(ErrorKind::Timeout)));
}

#[test]
fn a_call_that_has_ended_a_worker_waits_for_a_starting_worker() {
    let mut story = Story::new(2, 1, false);
    let root = story.submit(Target::Rank(Rank(0)));
    let risky = story.call(root);
    assert_eq!(story.running(1), Some(risky));
    story.lost(1);
    story.later(FALLBACK * 3);
    assert_eq!(story.helps(), [], "the starting worker takes it");
    let plain = story.call(root);
    story.later(FALLBACK);
    assert_eq!(story.helps(), [(0, plain, true)]);
    story.ready();
    assert_eq!(story.running(1), Some(risky));
}

#[test]
fn a_call_of_a_task_without_help_falls_back() {
    let mut story = Story::new(1, 1, false);
    let options = TaskOptions::default().retry(crate::payload::RetryPolicy::times(1));
    let root = story.submit_with(Target::Any, options);
    story.waiting(0, root);
    story.call(root);
    story.lost(0);
    story.ready();
    story.waiting(0, root);
    let call = story.call(root);
    assert_eq!(story.helps(), []);
    story.later(FALLBACK);
    assert_eq!(story.helps(), [(0, call, false)]);
}

#[test]
fn waits_that_begin_and_end_do_not_put_off_the_fallback() {
    let (mut story, root, _) = caller(0);
    story.waiting(0, root);
    let call = story.call_with(root, TaskOptions::default().timeout(Duration::from_secs(1)));
    for _ in 0..19 {
        story.waited(0);
        story.later(Duration::from_millis(10));
        story.waiting(0, root);
        assert_eq!(story.helps(), []);
    }
    story.later(Duration::from_millis(10));
    assert_eq!(story.helps(), [(0, call, false)]);
}

#[test]
fn later_calls_do_not_put_off_the_fallback_of_earlier_ones() {
    let (mut story, root, calls) = caller(1);
    story.later(FALLBACK - MILLISECOND);
    story.call(root);
    assert_eq!(story.helps(), []);
    story.later(MILLISECOND);
    assert_eq!(story.helps(), [(0, calls[0], true)]);
}

#[test]
fn calls_of_a_call_that_fell_back_fall_back_in_turn_the_deepest_first() {
    let (mut story, root, calls) = caller(2);
    story.later(FALLBACK);
    let deep = story.call(calls[0]);
    assert_eq!(story.helps(), [(0, deep, true)], "at once: all wait for calls again");
    story.helped(0, deep);
    assert_eq!(story.helps(), [], "its caller goes on");
    story.helped(0, calls[0]);
    assert_eq!(story.helps(), [(0, calls[1], true)]);
    story.helped(0, calls[1]);
    assert_eq!(story.done(0), root);
}

#[test]
fn an_outer_frame_that_waits_runs_the_calls_below_it() {
    let (mut story, root, calls) = caller(1);
    story.later(FALLBACK);
    assert_eq!(story.helps(), [(0, calls[0], true)]);
    story.waiting(0, root);
    let below = story.call(calls[0]);
    assert_eq!(story.helps(), [(0, below, false)]);
}

#[test]
fn a_refused_call_falls_back_again_after_a_while() {
    let (mut story, _, calls) = caller(1);
    story.later(FALLBACK);
    story.refused(0, calls[0]);
    assert_eq!(story.helps(), []);
    story.later(FALLBACK - MILLISECOND);
    assert_eq!(story.helps(), []);
    story.later(MILLISECOND);
    assert_eq!(story.helps(), [(0, calls[0], true)]);
}

#[test]
fn a_call_whose_caller_is_about_to_be_lost_does_not_fall_back() {
    let (mut story, _, calls) = caller(1);
    story.scheduler.on_ended(Rank(0));
    story.later(FALLBACK * 2);
    assert_eq!(story.helps(), []);
    story.lost(0);
    assert_eq!(story.outcome(calls[0]), Some(Err(ErrorKind::Cancelled)));
    assert_eq!(story.scheduler.next_timeout(), None);
}

#[test]
fn a_worker_takes_nothing_before_a_call_on_another_thread_has_ended() {
    let (mut story, root, calls) = caller(1);
    story.later(FALLBACK);
    let next = story.submit(Target::Any);
    assert_eq!(story.done(0), root);
    assert_eq!(story.outcome(calls[0]), Some(Err(ErrorKind::Cancelled)));
    assert!(story.interrupted(calls[0]));
    assert_eq!(story.running(0), None, "it could still have to be killed");
    assert!(story.scheduler.is_busy() && story.scheduler.idle_since(crate::ids::NodeIndex(0)).is_none());
    let cancelled = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
    story.scheduler.on_helped(story.now, Rank(0), calls[0], cancelled, 1);
    story.step();
    assert_eq!(story.running(0), Some(next));
}

#[test]
fn a_call_on_another_thread_that_ignores_interrupts_ends_its_worker_and_not_the_pool() {
    let mut story = Story::new(1, 1, false);
    let root = story.submit(Target::Any);
    let call = story.call(root);
    story.later(FALLBACK);
    assert_eq!(story.helps(), [(0, call, true)]);
    story.done(0);
    story.later(GRACE);
    assert!(story.has(|action| matches!(action, Action::Kill { rank: Rank(0) })));
    story.scheduler.on_lost(story.now, Rank(0), &crate::error::WorkerExit::Killed, &LastWords::default(), None);
    story.step();
    let blamed = |action: &Action| matches!(action, Action::Lost { loss, .. } if loss.idle.is_none());
    assert!(story.has(blamed), "it was lost because of the call that it ran");
    story.ready();
    assert!(!story.scheduler.is_busy());
}

#[test]
fn a_task_and_a_call_on_another_thread_have_separate_grace_times() {
    for heeds in [false, true] {
        let (mut story, root, calls) = caller(1);
        story.later(FALLBACK);
        story.cancel(calls[0]);
        story.later(Duration::from_secs(1));
        story.cancel(root);
        assert!(story.interrupted(root));
        if heeds {
            let cancelled = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
            story.scheduler.on_helped(story.now, Rank(0), calls[0], cancelled, 1);
            story.step();
        }
        let killed = |story: &Story| story.has(|action| matches!(action, Action::Kill { rank: Rank(0) }));
        story.later(GRACE - Duration::from_secs(1));
        assert_eq!(killed(&story), !heeds);
        story.later(Duration::from_secs(1));
        assert!(killed(&story));
    }
}

#[test]
fn calls_that_a_cancelled_task_runs_on_other_threads_are_interrupted_too() {
    let (mut story, root, calls) = caller(1);
    story.later(FALLBACK);
    story.cancel(root);
    assert!(story.interrupted(root) && story.interrupted(calls[0]));
    let cancelled = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
    story.scheduler.on_helped(story.now, Rank(0), calls[0], cancelled, 1);
    story.step();
    story.later(GRACE);
    assert!(story.has(|action| matches!(action, Action::Kill { rank: Rank(0) })), "the task ignores the interrupt");
}

#[test]
fn a_gang_waits_for_calls_on_other_threads() {
    let mut story = Story::new(1, 1, true);
    let root = story.submit(Target::Any);
    let call = story.call(root);
    story.later(FALLBACK);
    let gang = story.gang();
    story.done(0);
    assert_eq!(story.running(0), None);
    story.scheduler.on_helped(story.now, Rank(0), call, Ok(Value::new(vec![], Rank(0))), 1);
    story.step();
    assert_eq!(story.running(0), Some(gang[0]));
}
