//! Nodes that are lost: what happens to their tasks, and when repeated losses end the pool.

use super::*;

#[test]
fn a_worker_lost_with_its_node_is_no_crash_of_its_task() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit(Target::Any);
    for exit in [WorkerExit::Unreachable, WorkerExit::LeaseEnded] {
        story.scheduler.on_lost(story.now, Rank(0), &exit, None);
        story.step();
        assert!(story.has(|action| matches!(action, Action::Retried { .. })), "{exit}");
        story.ready();
        assert_eq!(story.running(0), Some(id));
    }
    story.scheduler.on_lost(story.now, Rank(0), &WorkerExit::AgentGone, None);
    story.step();
    let error = story.finished[&id].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.tries().len()), (ErrorKind::NodeLost, 3), "{error}");
}

#[test]
fn tasks_of_a_lost_node_run_again_and_the_other_nodes_go_on() {
    let mut story = Story::new(2, 2, false);
    let kept: Vec<_> = [0, 1].map(|rank| story.submit(Target::Rank(Rank(rank)))).into();
    let never = TaskOptions { retry: Some(RetryPolicy::never()), ..TaskOptions::default() };
    let (fails, again) = (story.submit_with(Target::Rank(Rank(2)), never), story.submit(Target::Rank(Rank(3))));
    assert!(story.loses_and_replaces(1));
    let error = story.finished[&fails].as_ref().unwrap_err();
    assert_eq!((error.kind(), error.exit()), (ErrorKind::NodeLost, Some(&WorkerExit::AgentGone)));
    assert!(story.has(|action| matches!(action, Action::Retried { task, .. } if *task == again)));
    assert!(!story.has(|action| matches!(action, Action::RestartWorker { .. } | Action::RestartWorld { .. })));
    assert_eq!((story.running(0), story.running(1), story.running(3)), (Some(kept[0]), Some(kept[1]), None));
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
fn repeated_losses_of_a_node_end_the_pool_unless_it_was_sound_or_a_task_returned() {
    let mut story = Story::new(2, 1, false);
    let lose = |story: &mut Story, times: u32| {
        for _ in 0..times {
            story.node_lost(1);
            story.ready();
        }
    };
    lose(&mut story, policy::MAX_BARREN_REPLACEMENTS);
    story.submit(Target::Rank(Rank(1)));
    story.done(1);
    lose(&mut story, policy::MAX_BARREN_REPLACEMENTS);
    story.now += policy::SOUND;
    lose(&mut story, policy::MAX_BARREN_REPLACEMENTS);
    assert!(story.scheduler.failure().is_none());
    let waits = story.submit(Target::Rank(Rank(1)));
    assert!(!story.loses_and_replaces(1));
    let error = story.scheduler.failure().unwrap().clone();
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.message().contains("4 times in a row") && error.summary().contains("the agent ended"), "{error}");
    assert_eq!(story.outcome(waits), Some(Err(ErrorKind::Failed)));
    assert!(story.has(|action| matches!(action, Action::Failed { .. })));
}

#[test]
fn a_node_that_was_never_ready_counts_as_lost_again() {
    let mut story = Story::new(1, 1, false);
    for _ in 0..policy::MAX_BARREN_REPLACEMENTS {
        assert!(story.loses_and_replaces(0));
        story.now += policy::SOUND;
    }
    story.node_lost(0);
    assert!(story.scheduler.failure().is_some());
}
