//! Nodes that are lost: what happens to their tasks.

use super::*;

#[test]
fn a_worker_lost_with_its_node_is_no_crash_of_its_task() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit(Target::Any);
    for exit in [WorkerExit::Unreachable, WorkerExit::LeaseEnded] {
        story.scheduler.on_lost(story.now, Rank(0), &exit, &LastWords::default(), None);
        story.step();
        assert!(story.has(|action| matches!(action, Action::Retried { .. })), "{exit}");
        story.ready();
        assert_eq!(story.running(0), Some(id));
    }
    story.scheduler.on_lost(story.now, Rank(0), &WorkerExit::AgentGone, &LastWords::default(), None);
    story.step();
    let error = story.finished[&id].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeLost, "{error}");
    assert_eq!(error.tries().len(), 3, "{error}");
}

#[test]
fn tasks_of_a_lost_node_run_again_and_the_other_nodes_go_on() {
    let mut story = Story::new(2, 2, false);
    let kept: Vec<_> = [0, 1].map(|rank| story.submit(Target::Rank(Rank(rank)))).into();
    let never = TaskOptions { retry: Some(RetryPolicy::never()), ..TaskOptions::default() };
    let (fails, again) = (story.submit_with(Target::Rank(Rank(2)), never), story.submit(Target::Rank(Rank(3))));
    story.node_lost(1);
    let error = story.finished[&fails].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NodeLost);
    assert_eq!(error.exit(), Some(&WorkerExit::AgentGone));
    assert!(story.has(|action| matches!(action, Action::Retried { task, .. } if *task == again)));
    assert!(!story.has(|action| matches!(action, Action::Lost { .. })));
    assert_eq!(story.running(0), Some(kept[0]));
    assert_eq!(story.running(1), Some(kept[1]));
    assert_eq!(story.running(3), None);
    story.ready();
    assert_eq!(story.running(3), Some(again));
}

#[test]
fn a_world_that_loses_a_node_fails_as_a_whole() {
    let mut story = Story::new(2, 2, true);
    let gang = story.gang_with(RetryPolicy::never());
    story.node_lost(1);
    for id in &gang {
        assert_eq!(story.outcome(*id), Some(Err(ErrorKind::NodeLost)), "each task reports the cause");
    }
    assert!((0..4).all(|rank| !story.scheduler.is_ready(Rank(rank))));
    let gang = story.gang_with(RetryPolicy::times(1));
    story.ready();
    story.node_lost(0);
    story.ready();
    assert_eq!((0..4).map(|rank| story.running(rank).unwrap()).collect::<Vec<_>>(), gang);
}

#[test]
fn a_lost_node_had_been_ready_since_its_first_worker_was() {
    let mut story = Story::new(1, 2, false);
    story.later(GRACE);
    story.lost(0);
    story.ready();
    story.later(GRACE);
    assert_eq!(story.give_up(0), 2 * GRACE);
    story.later(GRACE);
    assert_eq!(story.give_up(0), Duration::ZERO, "the machine that was to replace it was never ready");
}
