use std::time::Duration;

use super::super::tests::{GRACE, Story};
use super::*;
use crate::error::{Cause, LastWords};
use crate::ids::{NodeIndex, Rank};
use crate::payload::{RetryPolicy, Value};
use crate::spec::Limits;

fn recalled(story: &Story, of: u32) -> bool {
    story.has(|action| matches!(action, Action::Recall { rank } if rank.0 == of))
}

fn refusal(story: &mut Story, parent: TaskId) -> ErrorKind {
    story.scheduler.submit_call(story.now, TaskId(9_999), parent, TaskOptions::default(), true).unwrap_err().kind()
}

/// The only worker runs a task and has short tasks behind it.
fn with_behind(count: usize) -> (Story, Vec<TaskId>) {
    let mut story = Story::new(1, 1, false);
    for _ in 0..64 {
        let id = story.submit(Target::Any);
        story.scheduler.on_returned(story.now, Rank(0), id, Ok(Value::new(vec![], Rank(0))), 1);
        story.step();
    }
    let ids: Vec<TaskId> = (0..=count).map(|_| story.submit(Target::Any)).collect();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids);
    (story, ids)
}

#[test]
fn a_free_worker_runs_a_call_at_once() {
    let mut story = Story::new(2, 1, false);
    let root = story.submit(Target::Any);
    let call = story.call(root);
    assert_eq!(story.running(0), Some(root));
    assert_eq!(story.running(1), Some(call));
    assert_eq!(story.scheduler.depth(root), 0);
    assert_eq!(story.scheduler.depth(call), 1);
    assert_eq!(story.done(1), call);
    assert_eq!(story.outcome(call), Some(Ok(())));
    assert_eq!(story.done(0), root);
    assert_eq!(story.outcome(root), Some(Ok(())));
    assert_eq!(story.scheduler.next_timeout(), None);
}

#[test]
fn calls_go_before_tasks_and_take_turns_with_tasks_that_have_waited_for_a_second() {
    for target in [Target::Any, Target::Rank(Rank(1)), Target::Node(crate::ids::NodeIndex(1))] {
        let mut story = Story::new(2, 1, false);
        let caller = story.submit(Target::Rank(Rank(0)));
        story.submit(Target::Rank(Rank(1)));
        let roots = [0; 3].map(|_| story.submit(target));
        story.waiting(0, caller);
        let [helped, calls @ ..] = [0; 5].map(|_| story.call(caller));
        assert_eq!(story.scheduler.helped(Rank(0)).collect::<Vec<_>>(), [helped]);
        story.later(Duration::from_millis(999));
        story.done(1);
        assert_eq!(story.running(1), Some(calls[0]));
        story.later(Duration::from_millis(1));
        for next in [roots[0], calls[1], roots[1], calls[2], roots[2], calls[3]] {
            story.done(1);
            assert_eq!(story.running(1), Some(next), "{target:?}");
        }
    }
}

#[test]
fn the_deepest_calls_go_first_then_those_of_the_oldest_caller() {
    let mut story = Story::new(4, 1, false);
    let roots = [0; 4].map(|_| story.submit(Target::Any));
    let late = story.call(roots[1]);
    let first = story.call(roots[0]);
    story.done(2);
    assert_eq!(story.running(2), Some(first), "its caller is older");
    let second = story.call(roots[0]);
    let deep = story.call(first);
    for id in [deep, second, late] {
        story.done(3);
        assert_eq!(story.running(3), Some(id));
    }
}

#[test]
fn calls_of_one_caller_go_in_the_order_in_which_they_came() {
    let mut story = Story::new(2, 1, false);
    let roots = [0; 2].map(|_| story.submit(Target::Any));
    let limit = TaskOptions::default().timeout(Duration::from_secs(60));
    let calls: Vec<TaskId> =
        (0..6).map(|n| if n % 2 == 0 { story.call(roots[0]) } else { story.call_with(roots[0], limit) }).collect();
    for id in calls {
        story.done(1);
        assert_eq!(story.running(1), Some(id));
    }
}

#[test]
fn tasks_behind_a_caller_are_recalled_and_no_task_is_sent_behind_it() {
    let (mut story, ids) = with_behind(3);
    let call = story.call(ids[0]);
    assert!(recalled(&story, 0));
    let next = story.submit(Target::Any);
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids);
    story.call(ids[0]);
    assert!(!recalled(&story, 0), "once is enough");
    story.scheduler.on_not_begun(story.now, Rank(0), &ids[1..]);
    story.step();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids[..1]);
    story.waiting(0, ids[0]);
    story.helped(0, call);
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids[..1], "it may call again");
    story.scheduler.on_returned(story.now, Rank(0), ids[0], Ok(Value::new(vec![], Rank(0))), 1);
    story.step();
    assert_eq!(story.scheduler.sent(Rank(0)).last(), Some(next));
}

#[test]
fn a_caller_may_call_before_the_outcome_of_the_previous_task_arrives() {
    let (mut story, ids) = with_behind(2);
    let call = story.call(ids[1]);
    story.waiting(0, ids[1]);
    assert_eq!(story.helps(), []);
    story.scheduler.on_returned(story.now, Rank(0), ids[0], Ok(Value::new(vec![], Rank(0))), 1);
    story.step();
    assert_eq!(story.helps(), [(0, call, false)]);
    story.submit(Target::Any);
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), ids[1..], "it is a caller, and long");
}

#[test]
fn calls_pass_a_waiting_gang_and_a_held_world() {
    let mut story = Story::new(2, 1, true);
    let caller = story.submit(Target::Any);
    let gang = story.gang();
    let call = story.call(caller);
    assert_eq!(story.running(1), Some(call));
    story.hold();
    story.step();
    story.done(1);
    let call = story.call(caller);
    assert_eq!(story.running(1), Some(call));
    story.done(1);
    story.done(0);
    assert_eq!(story.running(0), Some(gang[0]));
    assert_eq!(story.running(1), Some(gang[1]));
}

#[test]
fn workers_of_a_draining_node_run_only_their_own_calls() {
    for depart in [Story::activate, Story::cordon] {
        let mut story = Story::new(2, 1, false);
        let callers = [0, 1].map(|rank| story.submit(Target::Rank(Rank(rank))));
        depart(&mut story, 1);
        let call = story.call(callers[0]);
        let own = story.call(callers[1]);
        story.waiting(1, callers[1]);
        assert_eq!(story.helps(), [(1, own, false)]);
        story.helped(1, own);
        story.done(1);
        assert_eq!(story.running(1), None);
        assert_eq!(story.outcome(call), None);
        assert!(story.has(|action| matches!(action, Action::NodeDrained { node: NodeIndex(1) })));
    }
}

#[test]
fn a_refused_call_reports_why() {
    let limits = Limits { max_calls: 2, ..Limits::default() };
    let mut story = Story::with_limits(1, 1, false, limits);
    let (caller, queued) = (story.submit(Target::Any), story.submit(Target::Any));
    assert_eq!(refusal(&mut story, queued), ErrorKind::Cancelled, "it does not run");
    assert_eq!(refusal(&mut story, TaskId(77)), ErrorKind::Cancelled);
    let first = story.call(caller);
    story.call(caller);
    let error = story
        .scheduler
        .submit_call(story.now, TaskId(99), caller, TaskOptions::default(), true)
        .expect_err("there are two");
    assert!(error.is_temporary() && error.kind() == ErrorKind::InvalidSpec, "{error}");
    assert!(format!("{error:#}").contains("have made 2 calls that have no outcome"), "{error}");
    story.cancel(first);
    story.call(caller);
    story.cancel(caller);
    assert_eq!(refusal(&mut story, caller), ErrorKind::Cancelled, "it was cancelled");

    let mut story = Story::new(2, 1, true);
    let gang = story.gang();
    assert_eq!(refusal(&mut story, gang[1]), ErrorKind::InvalidSpec);

    let mut story = Story::new(1, 1, false);
    let caller = story.submit(Target::Any);
    story.scheduler.on_ended(Rank(0));
    assert_eq!(refusal(&mut story, caller), ErrorKind::Cancelled, "its process is gone");

    let mut story = Story::new(1, 1, false);
    let caller = story.submit(Target::Any);
    story.scheduler.close(Error::new(ErrorKind::Closed, "the pool ends"));
    assert_eq!(refusal(&mut story, caller), ErrorKind::Closed);
}

#[test]
fn calls_nest_up_to_the_limit() {
    let mut story = Story::new(1, 1, false);
    let mut caller = story.submit(Target::Any);
    for depth in 1..=MAX_DEPTH {
        story.waiting(0, caller);
        caller = story.call(caller);
        assert_eq!(story.scheduler.depth(caller), depth);
        assert_eq!(story.scheduler.helped(Rank(0)).last(), Some(caller));
    }
    assert_eq!(refusal(&mut story, caller), ErrorKind::InvalidSpec);
}

/// Four workers: the first runs a caller, the second a call of that caller, and the third a call of
/// that call; the fourth is busy. The first worker helps with one more call, and each caller has
/// one call that waits.
fn family() -> (Story, TaskId, Vec<TaskId>) {
    let mut story = Story::new(4, 1, false);
    let root = story.submit_with(Target::Any, TaskOptions::default().timeout(Duration::from_secs(60)));
    story.submit(Target::Rank(Rank(3)));
    let first = story.call(root);
    let second = story.call(first);
    story.waiting(0, root);
    let helped = story.call(root);
    let waits = [story.call(first), story.call(second)];
    story.waited(0);
    let more = [story.call(root), story.call(helped)];
    assert_eq!(story.running(1), Some(first));
    assert_eq!(story.running(2), Some(second));
    assert_eq!(story.scheduler.helped(Rank(0)).collect::<Vec<_>>(), [helped]);
    (story, root, [vec![first, second, helped], waits.into(), more.into()].concat())
}

/// Ends the try of a task on rank 0; an end by a return uses the given outcome.
type EndOfTry = fn(&mut Story, TaskId, crate::payload::Outcome);

#[test]
fn no_call_outlives_the_try_of_its_caller() {
    let value = || Ok(Value::new(vec![], Rank(0)));
    let raised = || Err(Error::new(ErrorKind::Raised, "no"));
    let ends: [(&str, EndOfTry); 7] = [
        ("returned", |story, root, value| story.scheduler.on_returned(story.now, Rank(0), root, value, 1)),
        ("cancelled", |story, root, _| story.scheduler.cancel(story.now, root)),
        ("timed out", |story, _, _| {
            story.later(Duration::from_secs(60));
            story.located(0, "");
        }),
        ("lost", |story, _, _| story.lost(0)),
        ("node lost", |story, _, _| story.node_lost(0)),
        ("drained", |story, _, _| {
            story.scheduler.drain(story.now, &Error::new(ErrorKind::Closed, "the pool ends"));
        }),
        ("not begun", |story, root, _| story.scheduler.on_not_begun(story.now, Rank(0), &[root])),
    ];
    for (how, end) in ends {
        for outcome in [value(), raised()] {
            let (mut story, root, calls) = family();
            end(&mut story, root, outcome);
            story.step();
            for id in &calls {
                assert!(matches!(story.outcome(*id), Some(Err(ErrorKind::Cancelled | ErrorKind::Closed))), "{how}");
            }
            let helps = story.scheduler.helped(Rank(0)).count();
            assert!(helps == 0 || story.interrupted(root) || how == "timed out", "{how}");
            for rank in [1, 2] {
                assert!(story.running(rank) == Some(calls[rank as usize - 1]), "{how}: it still runs there");
            }
            assert_eq!(story.scheduler.families.open(), 0, "{how}");
            story.later(GRACE);
            for of in [1, 2] {
                assert!(story.has(|action| matches!(action, Action::Kill { rank } if rank.0 == of)), "{how}");
            }
        }
    }
}

#[test]
fn a_closed_pool_ends_waiting_tasks_and_lets_running_ones_finish() {
    let (mut story, root, calls) = family();
    story.scheduler.close(Error::new(ErrorKind::Closed, "the pool ends"));
    story.step();
    for (place, id) in calls.iter().enumerate() {
        assert_eq!(story.outcome(*id), (place >= 3).then_some(Err(ErrorKind::Closed)), "{place}");
    }
    // A closed pool has no worker for another try.
    story.lost(2);
    assert_eq!(story.outcome(calls[1]), Some(Err(ErrorKind::WorkerExited)));
    story.helped(0, calls[2]);
    story.done(1);
    story.done(0);
    assert_eq!(story.outcome(root), Some(Ok(())));
    assert_eq!(story.outcome(calls[0]), Some(Ok(())));
}

#[test]
fn a_call_is_tried_again_by_cause_and_its_caller_goes_on() {
    let mut story = Story::new(2, 1, false);
    let caller = story.submit(Target::Any);
    let (call, next) = (story.call(caller), story.call(caller));
    let below = story.call(call);
    story.lost(1);
    let retried = |action: &Action| matches!(action, Action::Retried { task, error, .. } if *task == call && Cause::of(error) == Some(Cause::Crash));
    assert!(story.has(retried));
    assert_eq!(story.outcome(below), Some(Err(ErrorKind::Cancelled)), "the next try calls anew");
    story.ready();
    assert_eq!(story.running(1), Some(call), "in front of tasks that came after it");
    story.lost(1);
    assert_eq!(story.outcome(call), Some(Err(ErrorKind::WorkerExited)));
    story.ready();
    assert_eq!(story.done(1), next);
    assert_eq!(story.running(0), Some(caller));
    assert_eq!(story.done(0), caller);
}

#[test]
fn many_calls_are_ended_in_slices_and_do_not_disturb_the_next_try() {
    let mut story = Story::new(2, 1, false);
    let caller = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(1)));
    story.submit(Target::Rank(Rank(1)));
    let calls: Vec<TaskId> = (0..2000).map(|_| story.call(caller)).collect();
    assert_eq!(story.scheduler.backlog(), 2000);
    assert_eq!(story.scheduler.queued(), 2000);
    story.scheduler.on_lost(story.now, Rank(0), &crate::error::WorkerExit::Signal(11), &LastWords::default(), None);
    let mut actions = Vec::new();
    story.scheduler.take_actions(&mut actions);
    let ended = actions.iter().filter(|action| matches!(action, Action::Finish { .. })).count();
    assert!(ended < 600 && story.scheduler.has_work(), "{ended} of them in one go");
    assert_eq!(story.scheduler.backlog(), 1, "no call begins any more");
    story.scheduler.on_ready(story.now, Rank(0), Duration::ZERO);
    assert_eq!(story.running(0), Some(caller));
    story.scheduler.submit_call(story.now, TaskId(5000), caller, TaskOptions::default(), true).unwrap();
    story.step();
    assert_eq!(ended + calls.iter().filter(|id| story.finished.contains_key(id)).count(), calls.len());
    story.done(1);
    assert_eq!(story.running(1), Some(TaskId(5000)));
    assert_eq!(story.scheduler.tasks.len(), 2);
}

#[test]
fn the_calls_of_a_lost_caller_are_not_begun_before_it_is_settled() {
    let mut story = Story::new(2, 1, false);
    let caller = story.submit(Target::Any);
    story.submit(Target::Rank(Rank(1)));
    story.call(caller);
    let exit = crate::error::WorkerExit::Signal(11);
    story.scheduler.lose(Rank(0), Error::worker_exited(Rank(0), exit), None);
    assert_eq!(story.scheduler.families.first_queued(), None);
    assert_eq!(story.scheduler.backlog(), 0);
    story.step();
}

#[test]
fn calls_that_a_worker_gives_back_wait_again_unless_their_caller_has_ended() {
    for ended in [false, true] {
        let mut story = Story::new(2, 1, false);
        for _ in 0..64 {
            let id = story.submit(Target::Rank(Rank(1)));
            story.scheduler.on_returned(story.now, Rank(1), id, Ok(Value::new(vec![], Rank(1))), 1);
            story.step();
        }
        let caller = story.submit(Target::Rank(Rank(0)));
        let calls = [0; 3].map(|_| story.call(caller));
        assert_eq!(story.scheduler.sent(Rank(1)).collect::<Vec<_>>(), calls, "short ones are sent ahead");
        if ended {
            let value = Ok(Value::new(vec![], Rank(0)));
            story.scheduler.on_returned(story.now, Rank(0), caller, value, 1);
        }
        story.scheduler.on_not_begun(story.now, Rank(1), &calls[1..]);
        story.step();
        let expected = ended.then_some(Err(ErrorKind::Cancelled));
        assert_eq!(story.outcome(calls[1]), expected);
        assert_eq!(story.outcome(calls[2]), expected);
        assert_eq!(story.scheduler.queued(), if ended { 0 } else { 2 });
        assert!(!story.has(|action| matches!(action, Action::Retried { .. })));
    }
}

#[test]
fn a_cancelled_call_leaves_its_caller_alone() {
    let mut story = Story::new(3, 1, false);
    let caller = story.submit(Target::Any);
    let (runs, below) = (story.call(caller), story.call(caller));
    let waits = story.call(caller);
    assert_eq!(story.running(2), Some(below));
    story.cancel(waits);
    story.cancel(runs);
    assert!(story.interrupted(runs) && !story.interrupted(caller) && !story.interrupted(below));
    assert_eq!(story.outcome(runs), Some(Err(ErrorKind::Cancelled)));
    assert_eq!(story.outcome(waits), Some(Err(ErrorKind::Cancelled)));
    assert_eq!(story.done(2), below);
    assert_eq!(story.done(0), caller);
}

#[test]
fn a_world_that_ends_also_ends_the_calls_of_its_tasks() {
    let mut story = Story::new(3, 1, true);
    let caller = story.submit(Target::Any);
    let calls = [0; 4].map(|_| story.call(caller));
    story.lost(2);
    for id in calls {
        assert_eq!(story.outcome(id), Some(Err(ErrorKind::Cancelled)));
    }
    story.ready();
    assert_eq!(story.done(0), caller);
    assert!(!story.scheduler.is_busy(), "it is tried again");
}
