//! Gangs and joined worlds: they start, fail and are tried again as a whole.

use super::*;

#[test]
fn a_gang_starts_when_all_workers_are_idle_and_is_not_overtaken() {
    let mut story = Story::new(2, 1, true);
    let single = story.submit(Target::Any);
    let gang = story.gang();
    let later = story.submit(Target::Any);
    assert_eq!(story.running(0), Some(single));
    assert_eq!(story.running(1), None, "rank 1 is kept for the gang");
    story.done(0);
    assert_eq!(story.running(0), Some(gang[0]));
    assert_eq!(story.running(1), Some(gang[1]));
    story.done(1);
    assert_eq!(story.running(1), Some(later));
    assert_eq!(story.outcome(gang[1]), None, "held back: the gang may have to run again");
    story.done(0);
    assert_eq!(story.outcome(gang[0]), Some(Ok(())));
    assert_eq!(story.outcome(gang[1]), Some(Ok(())));
}

#[test]
fn a_joined_world_ends_as_a_whole_and_lost_tasks_are_tried_again() {
    let mut story = Story::new(3, 1, true);
    let (a, b) = (story.submit(Target::Any), story.submit(Target::Any));
    story.lost(0);
    assert_eq!(story.outcome(a), Some(Err(ErrorKind::WorkerExited)));
    assert_eq!(story.outcome(b), None, "it was ended through no fault of its own");
    assert!(story.has(|action| matches!(action, Action::Lost { rank: Rank(0), .. })));
    story.lost(1);
    assert!(!story.has(|action| matches!(action, Action::Lost { .. })), "it is under way");
    story.ready();
    assert_eq!(story.running(0), Some(b));
}

#[test]
fn a_gang_is_tried_again_as_a_whole() {
    let mut story = Story::new(3, 1, true);
    let gang = story.gang_with(RetryPolicy::times(1));
    story.done(2);
    story.lost(1);
    assert!(story.finished.is_empty());
    story.ready();
    assert_eq!((0..3).filter_map(|rank| story.running(rank)).collect::<Vec<_>>(), gang);
    story.lost(1);
    for id in gang {
        let error = story.finished[&id].as_ref().unwrap_err();
        assert_eq!(
            error.exit(),
            Some(&WorkerExit::Signal(11)),
            "each member fails with the error that ended the world"
        );
    }
}

#[test]
fn a_gang_in_which_one_raised_is_interrupted_and_tried_again() {
    let mut story = Story::new(2, 1, true);
    let gang = story.gang_with(RetryPolicy::times(1));
    story.scheduler.on_returned(story.now, Rank(1), gang[1], Err(raised(1)), 10);
    story.step();
    assert!(story.has(|action| matches!(action, Action::Cancel { rank: Rank(0), interrupt: true, .. })));
    let cancelled = Err(Error::new(ErrorKind::Cancelled, "interrupted"));
    story.scheduler.on_returned(story.now, Rank(0), gang[0], cancelled, 10);
    story.step();
    assert_eq!(story.running(0), Some(gang[0]));
    assert_eq!(story.running(1), Some(gang[1]));
    story.done(0);
    story.done(1);
    assert_eq!(story.outcome(gang[0]), Some(Ok(())));
}

#[test]
fn an_exception_of_a_collective_is_not_the_cause_when_a_peer_has_died() {
    let mut story = Story::new(2, 1, true);
    let gang = story.gang();
    story.scheduler.on_returned(story.now, Rank(0), gang[0], Err(raised(0)), 10);
    story.step();
    assert!(story.finished.is_empty(), "the death of a peer may be reported a little later");
    story.lost(1);
    for id in &gang {
        assert_eq!(story.finished[id].as_ref().unwrap_err().exit(), Some(&WorkerExit::Signal(11)));
    }
    story.ready();

    let gang = story.gang();
    story.scheduler.on_returned(story.now, Rank(0), gang[0], Err(raised(0)), 10);
    story.now = story.scheduler.next_timeout().unwrap();
    story.scheduler.on_timeout(story.now);
    story.step();
    assert_eq!(story.outcome(gang[0]), Some(Err(ErrorKind::Raised)));
    assert_eq!(story.outcome(gang[1]), None);
    story.scheduler.on_returned(story.now, Rank(1), gang[1], Err(raised(1)), 10);
    story.step();
    assert_eq!(story.outcome(gang[1]), Some(Err(ErrorKind::Raised)));
}

#[test]
fn the_streams_of_a_gang_end_one_by_one() {
    let mut story = Story::new(2, 1, true);
    let ids = [TaskId(1), TaskId(2)];
    story.scheduler.submit_gang(story.now, &ids, TaskOptions::default(), true);
    story.step();
    assert_eq!(story.done(1), ids[1]);
    assert_eq!(story.outcome(ids[1]), Some(Ok(())), "its reader waits for the end");
    assert_eq!(story.outcome(ids[0]), None);
    story.done(0);
    assert_eq!(story.outcome(ids[0]), Some(Ok(())));
}

#[test]
fn a_poison_gang_fails_as_a_whole_and_the_world_goes_on() {
    let mut story = Story::new(2, 1, true);
    let gang = story.gang_with(RetryPolicy::times(100));
    for rank in [1, 0, 1] {
        story.lost(rank);
        story.ready();
    }
    for id in gang {
        let error = story.finished[&id].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        assert_eq!(error.tries().len(), 3, "{error}");
    }
    let next = story.gang();
    assert_eq!(story.running(0), Some(next[0]));
    assert_eq!(story.running(1), Some(next[1]));
}
