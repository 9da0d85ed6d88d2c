//! Cancelled tasks and timeouts: the grace time, the timeout of a run, and the timeout of a wait in
//! the queue.

use super::*;

#[test]
fn the_worker_of_a_cancelled_task_is_killed_after_the_grace_time() {
    let mut story = Story::new(1, 1, false);
    let (running, queued) = (story.submit(Target::Any), story.submit(Target::Any));
    story.scheduler.cancel(story.now, queued);
    story.step();
    assert_eq!(story.outcome(queued), Some(Err(ErrorKind::Cancelled)));
    story.scheduler.cancel(story.now, running);
    story.step();
    assert!(story.has(|action| matches!(action, Action::Cancel { interrupt: true, .. })));
    story.later(GRACE);
    assert!(story.has(|action| matches!(action, Action::Kill { rank: Rank(0) })));
    story.lost(0);
    assert!(story.has(|action| matches!(action, Action::Lost { .. })));
}

#[test]
fn a_cancelled_task_that_never_began_is_dropped_and_not_sent_again() {
    let mut story = Story::new(1, 1, false);
    let (lost, next) = (story.submit(Target::Any), story.submit(Target::Any));
    story.scheduler.cancel(story.now, lost);
    story.scheduler.on_not_begun(story.now, Rank(0), &[lost]);
    story.step();
    assert!(!story.has(|action| matches!(action, Action::Send { task, .. } if *task == lost)));
    assert_eq!(story.running(0), Some(next), "the task behind it begins");
    story.later(GRACE);
    assert!(!story.has(|action| matches!(action, Action::Kill { .. })), "it is not killed for the other");
    assert_eq!(story.done(0), next);
}

#[test]
fn interrupts_are_sent_again_when_the_agent_is_back() {
    let mut story = Story::new(2, 1, false);
    let (id, other) = (story.submit(Target::Rank(Rank(0))), story.submit(Target::Rank(Rank(1))));
    story.scheduler.cancel(story.now, id);
    story.step();
    story.scheduler.on_agent_back(story.now, NodeIndex(1));
    story.step();
    assert!(!story.has(|action| matches!(action, Action::Cancel { .. })), "task {other} goes on");
    story.now += GRACE * 2;
    story.scheduler.on_timeout(story.now);
    story.scheduler.on_agent_back(story.now, NodeIndex(0));
    story.step();
    assert!(story.has(|action| matches!(action, Action::Cancel { task, interrupt: true, .. } if *task == id)));
    story.later(GRACE);
    assert!(story.has(|action| matches!(action, Action::Kill { rank: Rank(0) })));
}

#[test]
fn the_timeout_counts_from_the_start_and_not_from_the_queue() {
    let mut story = Story::new(1, 1, false);
    let options = TaskOptions::default().timeout(Duration::from_secs(10));
    story.submit(Target::Any);
    let id = story.submit_with(Target::Any, options);
    assert_eq!(story.scheduler.next_timeout(), None);
    story.now += Duration::from_secs(100);
    story.done(0);
    assert_eq!(story.scheduler.next_timeout(), Some(story.now + Duration::from_secs(10)));
    story.later(Duration::from_secs(10));
    story.located(0, "");
    assert_eq!(story.outcome(id), Some(Err(ErrorKind::Timeout)));
}

#[test]
fn a_task_that_never_began_lets_the_timeout_of_the_next_task_begin() {
    let mut story = Story::new(1, 1, false);
    let short = story.submit(Target::Any);
    story.scheduler.on_returned(story.now, Rank(0), short, Ok(Value::new(vec![], Rank(0))), 1);
    let options = TaskOptions::default().timeout(Duration::from_secs(30));
    let (first, second) = (story.submit_with(Target::Any, options), story.submit_with(Target::Any, options));
    story.scheduler.on_not_begun(story.now, Rank(0), &[first]);
    story.step();
    assert_eq!(story.scheduler.sent(Rank(0)).collect::<Vec<_>>(), [second]);
    story.later(Duration::from_secs(30));
    story.located(0, "");
    assert_eq!(story.outcome(second), Some(Err(ErrorKind::Timeout)));
    assert_eq!(story.outcome(first), None);
}

#[test]
fn a_task_that_waits_too_long_reports_what_it_waited_for() {
    let mut story = Story::new(2, 1, false);
    let options = TaskOptions::default().queue_timeout(Duration::from_secs(10));
    let running = [story.submit(Target::Any), story.submit(Target::Any)];
    let (before, late) = (story.submit(Target::Any), story.submit_with(Target::Any, options));
    let on_rank = story.submit_with(Target::Rank(Rank(1)), options);
    assert_eq!(story.scheduler.next_timeout(), Some(story.now + Duration::from_secs(10)));
    story.later(Duration::from_secs(10));
    let error = story.finished[&late].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QueueTimeout);
    assert_eq!(
        error.message(),
        "the task was not started within 10s: 1 task was before it, and of 2 workers 2 ran tasks and 0 were being started"
    );
    let error = story.finished[&on_rank].as_ref().unwrap_err();
    assert!(error.message().ends_with(&format!("the worker of rank 1 ran task {}", running[1])), "{error}");
    assert_eq!(story.outcome(before), None);
    story.done(0);
    assert_eq!(story.running(0), Some(before));
}

#[test]
fn tasks_that_wait_too_long_at_the_same_moment_are_handled_in_slices() {
    let mut story = Story::new(1, 1, false);
    let options = TaskOptions::default().queue_timeout(Duration::from_secs(10));
    story.submit(Target::Any);
    let late: Vec<TaskId> = (0..50).map(|_| story.submit_with(Target::Any, options)).collect();
    story.now += Duration::from_secs(10);
    story.scheduler.on_timeout(story.now);
    story.step();
    let ended = late.iter().filter(|id| story.outcome(**id).is_some()).count();
    assert!((1..50).contains(&ended), "{ended} of 50 ended at once");
    while story.scheduler.next_timeout().is_some() {
        story.scheduler.on_timeout(story.now);
        story.step();
    }
    assert!(late.iter().all(|id| story.outcome(*id) == Some(Err(ErrorKind::QueueTimeout))));
    assert!(story.finished[&late[49]].as_ref().unwrap_err().message().contains(": 0 tasks were before it"));
    assert!(story.finished[&late[0]].as_ref().unwrap_err().message().contains(": 0 tasks were before it"));
}

#[test]
fn a_task_that_started_in_time_is_not_bound_by_the_queue_timeout() {
    let mut story = Story::new(1, 1, false);
    let options = TaskOptions::default().queue_timeout(Duration::from_secs(10));
    let (first, second) = (story.submit_with(Target::Any, options), story.submit_with(Target::Any, options));
    story.now += Duration::from_secs(9);
    story.done(0);
    assert_eq!(story.running(0), Some(second));
    assert_eq!(story.scheduler.next_timeout(), None);
    story.now += Duration::from_secs(100);
    story.scheduler.on_timeout(story.now);
    story.done(0);
    assert_eq!(story.outcome(first), Some(Ok(())));
    assert_eq!(story.outcome(second), Some(Ok(())));
}

#[test]
fn a_task_that_waits_behind_another_on_its_worker_still_waits() {
    let mut story = Story::new(1, 1, false);
    let short = story.submit(Target::Any);
    story.scheduler.on_returned(story.now, Rank(0), short, Ok(Value::new(vec![], Rank(0))), 1);
    let options = TaskOptions::default().queue_timeout(Duration::from_secs(10));
    let (_, behind) = (story.submit(Target::Any), story.submit_with(Target::Any, options));
    assert_eq!(story.scheduler.sent(Rank(0)).nth(1), Some(behind));
    story.later(Duration::from_secs(10));
    assert_eq!(story.outcome(behind), Some(Err(ErrorKind::QueueTimeout)));
    assert!(story.has(|action| matches!(action, Action::Cancel { interrupt: false, .. })));
}

#[test]
fn a_task_that_its_worker_gives_back_has_waited_since_its_try_began() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, TaskOptions::default().queue_timeout(Duration::from_secs(10)));
    story.now += Duration::from_secs(8);
    story.scheduler.on_ended(Rank(0));
    story.scheduler.on_not_begun(story.now, Rank(0), &[id]);
    story.step();
    assert_eq!(story.scheduler.next_timeout(), Some(story.now + Duration::from_secs(2)));
    story.later(Duration::from_secs(2));
    assert_eq!(story.outcome(id), Some(Err(ErrorKind::QueueTimeout)));
    assert!(story.finished[&id].as_ref().unwrap_err().message().contains("within 10s"));
}

#[test]
fn each_try_has_the_whole_queue_timeout() {
    let mut story = Story::new(1, 1, false);
    let id = story.submit_with(Target::Any, TaskOptions::default().queue_timeout(Duration::from_secs(10)));
    story.now += Duration::from_secs(8);
    story.node_lost(0);
    assert_eq!(story.scheduler.next_timeout(), Some(story.now + Duration::from_secs(10)));
    assert_eq!(story.outcome(id), None);
}

#[test]
fn a_gang_that_waits_too_long_fails_as_a_whole() {
    let mut story = Story::new(2, 1, true);
    let running = story.submit(Target::Any);
    let ids = [TaskId(50), TaskId(51)];
    story.next = 60;
    let options = TaskOptions::default().queue_timeout(Duration::from_secs(10));
    story.scheduler.submit_gang(story.now, &ids, options, false);
    story.step();
    let behind = story.submit(Target::Any);
    assert_eq!(story.running(1), None, "rank 1 is kept for the gang");
    story.later(Duration::from_secs(10));
    for id in ids {
        let error = story.finished[&id].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QueueTimeout);
        assert!(error.message().contains("0 gangs were before its gang, and of 2 workers 1 ran tasks"), "{error}");
    }
    assert_eq!(story.running(0), Some(running));
    assert_eq!(story.running(1), Some(behind), "what waited behind it goes on");
}

#[test]
fn a_deadline_beyond_the_range_of_the_clock_never_fires() {
    let mut story = Story::new(1, 1, false);
    let options = TaskOptions::default().timeout(Duration::MAX).queue_timeout(Duration::MAX);
    let (first, second) = (story.submit_with(Target::Any, options), story.submit_with(Target::Any, options));
    assert_eq!(story.scheduler.next_timeout(), None);
    story.done(0);
    story.done(0);
    assert_eq!(story.outcome(first), Some(Ok(())));
    assert_eq!(story.outcome(second), Some(Ok(())));
}
