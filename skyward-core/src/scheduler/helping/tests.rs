use std::time::Duration;

use super::super::tests::{GRACE, Story, three_on_one};
use super::*;
use crate::error::{Error, ErrorKind};
use crate::ids::NodeIndex;
use crate::payload::{RetryPolicy, Target, TaskOptions, Value};

/// Two workers: one runs a caller, the other is busy with another task.
fn caller() -> (Story, TaskId) {
    let mut story = Story::new(2, 1, false);
    let root = story.submit(Target::Any);
    story.submit(Target::Rank(Rank(1)));
    (story, root)
}

fn frames(story: &Story) -> Vec<TaskId> {
    story.scheduler.helped(Rank(0)).collect()
}

fn killed(story: &Story) -> bool {
    story.has(|action| matches!(action, Action::Kill { rank: Rank(0) }))
}

fn failed(story: &mut Story, id: TaskId) {
    let cancelled = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
    story.scheduler.on_helped(story.now, Rank(0), id, cancelled, 1);
    story.step();
}

#[test]
fn a_waiting_worker_helps_with_one_call_after_another() {
    let (mut story, root) = caller();
    let calls = [0; 3].map(|_| story.call(root));
    assert_eq!(story.helps(), [], "it does not wait");
    story.waiting(0, root);
    for id in calls {
        assert_eq!(story.helps(), [(0, id, false)]);
        assert!(story.has(|action| matches!(action, Action::Started { rank: Rank(0), task, .. } if *task == id)));
        assert_eq!(story.scheduler.queued(), 2 - (id.0 - calls[0].0) as usize);
        assert!(story.scheduler.is_busy());
        story.helped(0, id);
        assert_eq!(story.outcome(id), Some(Ok(())));
    }
    let late = story.call(root);
    assert_eq!(story.helps(), [(0, late, false)], "it waits still");
    story.helped(0, late);
    story.waited(0);
    story.call(root);
    assert_eq!(story.helps(), []);
}

#[test]
fn a_worker_that_waits_helps_once_the_task_before_is_known_not_to_have_begun() {
    let (mut story, [first, second, _]) = three_on_one();
    story.waiting(0, second);
    let call = story.call(second);
    assert_eq!(story.helps(), [], "as far as the client knows, the worker runs the first task");
    story.scheduler.on_not_begun(story.now, Rank(0), &[first]);
    story.step();
    assert_eq!(story.helps(), [(0, call, false)]);
}

#[test]
fn a_help_names_the_task_within_which_the_call_runs() {
    let (mut story, root) = caller();
    let is_within = |story: &Story, id: TaskId, wait: TaskId| {
        story.has(|action| matches!(action, Action::Help { task, within, .. } if (*task, *within) == (id, Some(wait))))
    };
    story.waiting(0, root);
    let outer = story.call(root);
    assert!(is_within(&story, outer, root));
    story.waiting(0, outer);
    let inner = story.call(outer);
    assert!(is_within(&story, inner, outer));
}

#[test]
fn a_free_worker_takes_a_call_before_its_caller_helps() {
    let mut story = Story::new(2, 1, false);
    let root = story.submit(Target::Any);
    story.waiting(0, root);
    let call = story.call(root);
    assert!(story.helps().is_empty());
    assert_eq!(story.running(1), Some(call));
}

#[test]
fn a_worker_helps_only_with_calls_that_it_waits_for() {
    let mut story = Story::new(2, 1, false);
    let roots = [0; 2].map(|_| story.submit(Target::Any));
    let other = story.call(roots[1]);
    story.waiting(0, roots[0]);
    assert_eq!(story.helps(), []);
    let own = story.call(roots[0]);
    assert_eq!(story.helps(), [(0, own, false)]);
    let below = story.call(own);
    assert_eq!(story.helps(), [], "its frame does not wait yet");
    story.waiting(0, roots[0]);
    assert_eq!(story.helps(), [], "not the innermost frame");
    story.waiting(0, own);
    assert_eq!(story.helps(), vec![(0, below, false)]);
    assert_eq!(frames(&story), vec![own, below]);
    story.helped(0, below);
    story.helped(0, own);
    assert_eq!(story.outcome(other), None);
    assert!(frames(&story).is_empty());
    story.waiting(1, roots[0]);
    assert_eq!(story.helps(), [], "another worker's task");
}

#[test]
fn a_worker_helps_with_the_deepest_call_also_below_a_call_that_runs_elsewhere() {
    let mut story = Story::new(2, 1, false);
    let root = story.submit(Target::Any);
    let elsewhere = story.call(root);
    let shallow = story.call(root);
    let deep = story.call(elsewhere);
    story.waiting(0, root);
    assert_eq!(story.helps(), [(0, deep, false)]);
    story.helped(0, deep);
    assert_eq!(story.helps(), [(0, shallow, false)]);
    story.helped(0, shallow);
    let deep = story.call(elsewhere);
    assert_eq!(story.helps(), [(0, deep, false)], "the nearest caller that waits");
}

#[test]
fn the_nearest_caller_that_waits_helps() {
    let mut story = Story::new(2, 1, false);
    let root = story.submit(Target::Any);
    let call = story.call(root);
    story.waiting(0, root);
    story.waiting(1, call);
    let below = story.call(call);
    assert_eq!(story.helps(), [(1, below, false)]);
}

#[test]
fn a_call_with_a_timeout_waits_for_a_free_worker() {
    let (mut story, root) = caller();
    story.waiting(0, root);
    let call = story.call_with(root, TaskOptions::default().timeout(Duration::from_secs(9)));
    assert_eq!(story.helps(), []);
    let next = story.call(root);
    assert_eq!(story.helps(), [(0, next, false)]);
    story.done(1);
    assert_eq!(story.running(1), Some(call));
    story.later(Duration::from_secs(9));
    story.located(1, "");
    assert_eq!(story.outcome(call), Some(Err(ErrorKind::Timeout)));
}

#[test]
fn a_refused_call_waits_again_and_the_refusal_is_no_try() {
    let (mut story, root) = caller();
    let calls = [0; 2].map(|_| story.call(root));
    story.waiting(0, root);
    story.waited(0);
    story.refused(0, calls[0]);
    assert_eq!(story.helps(), [], "it does not wait any more");
    assert!(!story.has(|action| matches!(action, Action::Retried { .. } | Action::Finish { .. })));
    story.done(1);
    assert_eq!(story.running(1), Some(calls[0]), "in front of the others");
    story.waiting(0, root);
    story.cancel(calls[1]);
    story.refused(0, calls[1]);
    assert!(frames(&story).is_empty());
    assert_eq!(story.outcome(calls[1]), Some(Err(ErrorKind::Cancelled)));
}

#[test]
fn a_worker_that_refuses_gets_no_call_before_it_waits_again() {
    let (mut story, root) = caller();
    let call = story.call(root);
    story.waiting(0, root);
    story.refused(0, call);
    assert_eq!(story.helps(), [], "whatever the reason");
    story.waiting(0, root);
    assert_eq!(story.helps(), [(0, call, false)]);
}

#[test]
fn a_wait_within_a_task_that_the_worker_does_not_have_is_ignored() {
    let mut story = Story::new(1, 1, false);
    story.cordon(0);
    let queued = story.submit(Target::Rank(Rank(0)));
    story.waiting(0, queued);
    story.uncordon(0);
    story.step();
    assert_eq!(story.running(0), Some(queued));
    story.call(queued);
    assert_eq!(story.helps(), []);
}

#[test]
fn calls_that_a_worker_gives_back_as_it_ends_are_helped_with() {
    let mut story = Story::new(2, 1, false);
    for _ in 0..64 {
        let id = story.submit(Target::Rank(Rank(1)));
        story.scheduler.on_returned(story.now, Rank(1), id, Ok(Value::new(vec![], Rank(1))), 1);
        story.step();
    }
    let root = story.submit(Target::Rank(Rank(0)));
    let calls = [0; 2].map(|_| story.call(root));
    assert_eq!(story.scheduler.sent(Rank(1)).collect::<Vec<_>>(), calls);
    story.waiting(0, root);
    assert_eq!(story.helps(), [], "a worker has both");
    story.not_begun(1, &calls[1..]);
    assert_eq!(story.helps(), [(0, calls[1], false)]);
}

#[test]
fn a_help_that_arrives_in_the_next_wait_is_taken_there() {
    let (mut story, root) = caller();
    let call = story.call(root);
    story.waiting(0, root);
    story.waited(0);
    story.waiting(0, root);
    story.helped(0, call);
    let next = story.call(root);
    assert_eq!(story.helps(), [(0, next, false)], "it took it within its next wait");
}

#[test]
fn a_call_that_ended_its_worker_is_not_helped_with() {
    let mut story = Story::new(2, 1, false);
    let root = story.submit(Target::Any);
    let call = story.call(root);
    story.waiting(0, root);
    story.lost(1);
    assert_eq!(story.helps(), [], "it may end its caller too");
    let other = story.call(root);
    assert_eq!(story.helps(), [(0, other, false)]);
    story.ready();
    assert_eq!(story.running(1), Some(call));
}

#[test]
fn a_call_whose_node_was_lost_may_be_helped_with() {
    let mut story = Story::new(2, 1, false);
    let root = story.submit(Target::Any);
    let call = story.call(root);
    story.waiting(0, root);
    story.node_lost(1);
    assert_eq!(story.helps(), [(0, call, false)]);
}

#[test]
fn a_worker_lost_while_it_helped_does_not_help_in_the_next_tries() {
    for helped in [false, true] {
        let mut story = Story::new(2, 1, false);
        let root = story.submit_with(Target::Rank(Rank(0)), TaskOptions::default().retry(RetryPolicy::times(2)));
        story.submit(Target::Rank(Rank(1)));
        if helped {
            story.waiting(0, root);
        }
        let call = story.call(root);
        story.lost(0);
        assert_eq!(story.outcome(call), Some(Err(ErrorKind::Cancelled)));
        assert_eq!(story.outcome(root), None);
        story.ready();
        story.waiting(0, root);
        let call = story.call(root);
        assert_eq!(story.helps().len(), usize::from(!helped));
        assert_eq!(story.scheduler.queued(), usize::from(helped), "{call}");
    }
}

#[test]
fn the_end_of_a_helped_call_and_that_of_its_caller_are_independent() {
    let (mut story, root) = caller();
    story.waiting(0, root);
    let call = story.call(root);
    story.cancel(call);
    assert!(story.interrupted(call) && !story.interrupted(root));
    story.later(Duration::from_secs(1));
    story.cancel(root);
    assert!(story.interrupted(root));
    failed(&mut story, call);
    story.later(GRACE - Duration::from_millis(1));
    assert!(!killed(&story));
    story.later(Duration::from_millis(1));
    assert!(killed(&story), "its caller's grace is over");
}

#[test]
fn calls_within_a_task_that_is_interrupted_are_not_interrupted_themselves() {
    let (mut story, root) = caller();
    story.waiting(0, root);
    let outer = story.call(root);
    story.waiting(0, outer);
    let inner = story.call(outer);
    story.cancel(root);
    assert!(story.interrupted(root) && !story.interrupted(outer) && !story.interrupted(inner));
    assert_eq!(frames(&story), [outer, inner]);
    assert_eq!(story.outcome(inner), Some(Err(ErrorKind::Cancelled)));
    failed(&mut story, inner);
    let cancelled = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
    story.scheduler.on_returned(story.now, Rank(0), root, cancelled, 1);
    story.step();
    assert!(frames(&story).is_empty());
    assert_eq!(story.scheduler.next_timeout(), None);
}

#[test]
fn a_call_that_ignores_interrupts_is_killed_with_its_caller() {
    let (mut story, root) = caller();
    story.waiting(0, root);
    let call = story.call(root);
    story.cancel(call);
    for pause in [50, 100] {
        story.later(Duration::from_millis(pause));
        assert!(story.interrupted(call), "told again");
    }
    story.later(GRACE);
    assert!(killed(&story));
    story.lost(0);
    assert_eq!(story.outcome(root), Some(Err(ErrorKind::WorkerExited)));
    assert_eq!(story.scheduler.next_timeout(), None);
}

#[test]
fn an_agent_that_is_back_gets_the_interrupts_of_calls_again() {
    let (mut story, root) = caller();
    story.waiting(0, root);
    let call = story.call(root);
    story.cancel(call);
    story.later(Duration::from_millis(1));
    assert!(!story.interrupted(call));
    story.scheduler.on_agent_back(story.now, crate::ids::NodeIndex(0));
    story.step();
    assert!(story.interrupted(call) && !story.interrupted(root));
}

#[test]
fn a_helped_call_that_raises_is_tried_again_if_allowed_and_then_fails() {
    let (mut story, root) = caller();
    story.waiting(0, root);
    let call = story.call_with(root, TaskOptions::default().retry(RetryPolicy::times(1)));
    let raised = || Err(Error::new(ErrorKind::Raised, "no"));
    story.scheduler.on_helped(story.now, Rank(0), call, raised(), 1);
    story.step();
    assert!(story.has(|action| matches!(action, Action::Retried { task, .. } if *task == call)));
    assert_eq!(story.helps(), [(0, call, false)], "the worker waits and may help");
    story.scheduler.on_helped(story.now, Rank(0), call, raised(), 1);
    story.step();
    assert_eq!(story.outcome(call), Some(Err(ErrorKind::Raised)));
    assert_eq!(story.running(0), Some(root));
}

#[test]
fn frames_within_an_ended_frame_end_too_and_late_answers_are_ignored() {
    let (mut story, root) = caller();
    story.waiting(0, root);
    let outer = story.call(root);
    story.waiting(0, outer);
    let inner = story.call(outer);
    story.helped(0, outer);
    assert!(story.interrupted(inner), "its worker may be about to begin with it, within what is around");
    assert_eq!(story.outcome(outer), Some(Ok(())));
    assert_eq!(story.outcome(inner), Some(Err(ErrorKind::Cancelled)));
    let next = story.call(root);
    assert_eq!(story.helps(), [(0, next, false)]);
    story.done(0);
    for id in [inner, next] {
        story.helped(0, id);
        story.refused(0, id);
    }
    assert_eq!(story.outcome(next), Some(Err(ErrorKind::Cancelled)));
}

#[test]
fn a_closed_pool_lets_helped_calls_finish() {
    let (mut story, root) = caller();
    let calls = [0; 2].map(|_| story.call(root));
    story.waiting(0, root);
    story.scheduler.close(Error::new(ErrorKind::Closed, "the pool ends"));
    story.step();
    assert_eq!(story.outcome(calls[0]), None);
    assert_eq!(story.outcome(calls[1]), Some(Err(ErrorKind::Closed)));
    story.helped(0, calls[0]);
    assert_eq!(story.done(0), root);
    assert_eq!(story.outcome(root), Some(Ok(())));
}

#[test]
fn a_helped_call_that_returns_counts_as_a_returned_task() {
    let (mut story, root) = caller();
    story.waiting(0, root);
    let call = story.call(root);
    story.helped(0, call);
    assert_eq!(story.scheduler.returns().all(), 1);
    assert_eq!(story.scheduler.returns().of(NodeIndex(0)), 1);
}

#[test]
fn a_helped_call_whose_worker_was_not_killed_is_ended_when_its_agent_is_back() {
    let mut story = Story::new(1, 1, false);
    let root = story.submit(Target::Any);
    let call = story.call(root);
    story.later(Duration::from_millis(200));
    assert_eq!(story.helps(), [(0, call, true)]);
    story.cancel(call);
    story.later(GRACE);
    // The agent has no connection, so the kill does not reach it.
    assert!(story.has(|action| matches!(action, Action::Kill { .. })));
    story.scheduler.on_agent_back(story.now, NodeIndex(0));
    story.step();
    assert!(story.interrupted(call));
    story.later(GRACE);
    assert!(story.has(|action| matches!(action, Action::Kill { .. })));
}
