//! Which worker a task is sent to, and in which order: targets, tasks that are sent ahead, and
//! tasks that come back.

use super::*;

#[test]
fn tasks_go_to_idle_workers_and_the_rest_waits_in_order() {
    let mut story = Story::new(2, 1, false);
    let ids: Vec<_> = (0..4).map(|_| story.submit(Target::Any)).collect();
    assert_eq!(story.running(0), Some(ids[0]));
    assert_eq!(story.running(1), Some(ids[1]));
    story.done(1);
    assert_eq!(story.running(1), Some(ids[2]));
    story.done(0);
    assert_eq!(story.running(0), Some(ids[3]));
}

#[test]
fn a_target_waits_for_its_worker_alone() {
    let mut story = Story::new(2, 2, false);
    let head = story.submit(Target::Head);
    let second = story.submit(Target::Rank(Rank(0)));
    let node = story.submit(Target::Node(NodeIndex(1)));
    let any = story.submit(Target::Any);
    assert_eq!(story.running(0), Some(head));
    assert_eq!(story.running(2), Some(node));
    assert_eq!(story.running(1), Some(any));
    story.done(0);
    assert_eq!(story.running(0), Some(second));
    let error = story
        .scheduler
        .submit(story.now, TaskId(99), Target::Rank(Rank(4)), TaskOptions::default(), TaskData::default())
        .unwrap_err();
    assert_eq!(format!("{error:#}"), "the pool has no rank 4\nhint: its ranks are 0 to 3");
    let error = story
        .scheduler
        .submit(story.now, TaskId(99), Target::Node(NodeIndex(2)), TaskOptions::default(), TaskData::default())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_worker_that_has_ended_gets_no_more_tasks_and_its_answers_count() {
    let (mut story, [first, second, third]) = three_on_one();
    story.scheduler.on_ended(Rank(0));
    let late = story.submit(Target::Any);
    assert_eq!(story.done(0), first);
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [second, third]);
    story.not_begun(0, &[third]);
    assert_eq!(story.running(0), Some(second), "it leaves, and gets no task");
    story.lost(0);
    assert!(story.finished[&first].is_ok());
    assert_eq!(story.finished[&second].as_ref().unwrap_err().exit(), Some(&WorkerExit::Signal(11)));
    // Neither task had begun, and neither is tried again: both are sent for the first time.
    assert!(!story.actions.iter().any(|action| matches!(action, Action::Retried { .. })));
    story.ready();
    assert_eq!(story.done(0), third);
    assert_eq!(story.running(0), Some(late));
}

#[test]
fn returned_tasks_go_to_other_workers_in_order_and_count_no_try() {
    let (mut story, [first, second, third]) = three_on_one();
    let queued = story.submit_with(Target::Rank(Rank(0)), TaskOptions::default().retry(RetryPolicy::never()));
    story.scheduler.cancel(story.now, second);
    story.step();
    story.scheduler.on_not_begun(story.now, Rank(0), &[second, third, queued]);
    story.step();
    assert!(!story.has(|action| matches!(action, Action::Retried { .. })));
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [first], "nothing is sent ahead to it");
    story.activate(2);
    story.scheduler.add_node(NodeIndex(1));
    story.ready();
    assert_eq!(story.running(1), Some(third), "it was in front of the queue");
    assert_eq!(story.done(0), first);
    assert_eq!(story.running(0), Some(queued));
    let ahead = [0; 3].map(|_| story.submit(Target::Rank(Rank(0))));
    story.scheduler.on_returned(story.now, Rank(0), queued, Ok(Value::new(vec![], Rank(0))), 1);
    story.step();
    assert_eq!(story.running(0), Some(ahead[0]));
    assert_eq!(story.outcome(second), Some(Err(ErrorKind::Cancelled)));
}

#[test]
fn a_task_that_never_began_is_sent_again_and_is_the_same_try() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit(Target::Any);
    story.scheduler.on_not_begun(story.now, Rank(0), &[id]);
    story.step();
    assert!(story.has(|action| matches!(action, Action::Send { rank: Rank(0), .. })));
    assert!(!story.has(|action| matches!(action, Action::Retried { .. })));
    assert_eq!(story.done(0), id);
    assert_eq!(story.outcome(id), Some(Ok(())));
}

#[test]
fn a_raised_error_is_not_tried_again_unless_asked() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit(Target::Any);
    story.scheduler.on_returned(story.now, Rank(0), id, Err(raised(0)), 10);
    story.step();
    assert_eq!(story.outcome(id), Some(Err(ErrorKind::Raised)));
    let id = story.submit_with(Target::Any, TaskOptions::default().retry(RetryPolicy::times(2)));
    for _ in 0..2 {
        story.scheduler.on_returned(story.now, Rank(0), id, Err(raised(0)), 10);
        story.step();
        assert_eq!(story.running(0), Some(id));
    }
    story.scheduler.on_returned(story.now, Rank(0), id, Err(raised(0)), 10);
    story.step();
    assert_eq!(story.outcome(id), Some(Err(ErrorKind::Raised)));
}
