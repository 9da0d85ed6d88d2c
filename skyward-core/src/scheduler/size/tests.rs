use super::super::TaskData;
use super::super::tests::Story;
use super::*;
use crate::error::ErrorKind;
use crate::ids::TaskId;
use crate::payload::{Target, TaskOptions, Value};

fn leave(story: &mut Story, node: u32) {
    story.activate(node);
    story.step();
}

fn drained(story: &Story, of: u32) -> bool {
    story.has(|action| matches!(action, Action::NodeDrained { node } if node.0 == of))
}

fn idle(story: &Story) -> bool {
    story.has(|action| matches!(action, Action::WorldIdle))
}

#[test]
fn a_draining_node_finishes_its_own_tasks_and_takes_no_others() {
    let mut story = Story::new(2, 1, false);
    let running = [story.submit(Target::Any), story.submit(Target::Any)];
    let own = [story.submit(Target::Rank(Rank(1))), story.submit(Target::Node(NodeIndex(1)))];
    let any = story.submit(Target::Any);
    leave(&mut story, 1);
    assert!(!drained(&story, 1));
    for task in [running[1], own[0]] {
        assert_eq!(story.done(1), task);
        assert!(!drained(&story, 1));
    }
    assert_eq!(story.done(1), own[1]);
    assert!(drained(&story, 1) && story.running(1).is_none(), "task {any} is for nodes that stay");
    assert_eq!(story.done(0), running[0]);
    assert_eq!(story.running(0), Some(any));
    for target in [Target::Rank(Rank(1)), Target::Node(NodeIndex(1))] {
        let refused =
            story.scheduler.submit(story.now, TaskId(99), target, TaskOptions::default(), TaskData::default());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
    }
    story.scheduler.remove_node(NodeIndex(1), 1);
    story.step();
    assert_eq!(story.scheduler.active_workers(), 1);
}

#[test]
fn a_new_task_goes_to_a_node_that_stays_whatever_the_load() {
    let mut story = Story::new(2, 1, false);
    leave(&mut story, 1);
    let [first, second] = [story.submit(Target::Any), story.submit(Target::Any)];
    assert_eq!(story.running(0), Some(first));
    assert_eq!(story.running(1), None);
    story.activate(2);
    story.step();
    assert_eq!(story.running(1), Some(second), "it stays after all");
}

#[test]
fn a_node_lost_while_draining_is_not_replaced_and_its_own_tasks_fail() {
    let mut story = Story::new(2, 1, false);
    let running = story.submit(Target::Rank(Rank(1)));
    let own = story.submit(Target::Rank(Rank(1)));
    leave(&mut story, 1);
    story.node_lost(1);
    assert!(drained(&story, 1));
    for task in [running, own] {
        assert_eq!(story.finished[&task].as_ref().unwrap_err().kind(), ErrorKind::NodeLost);
    }
}

#[test]
fn hundreds_of_tasks_that_a_draining_node_was_sent_ahead_fail_with_it() {
    let mut story = Story::new(2, 2, false);
    let mut own = Vec::new();
    for rank in [Rank(2), Rank(3)] {
        // Its tasks are short: it is sent many of them ahead.
        for _ in 0..64 {
            let id = story.submit(Target::Rank(rank));
            story.scheduler.on_returned(story.now, rank, id, Ok(Value::new(vec![], rank)), 1);
            story.step();
        }
        own.extend([0; 200].map(|_| story.submit(Target::Rank(rank))));
        assert_eq!(story.scheduler.sent(rank).count(), 200);
    }
    leave(&mut story, 1);
    story.node_lost(1);
    let lost = own.iter().filter(|task| story.outcome(**task) == Some(Err(ErrorKind::NodeLost))).count();
    assert_eq!(lost, own.len());
    assert!(drained(&story, 1));
}

#[test]
fn a_resizing_world_finishes_its_gangs_and_begins_no_other_task() {
    let mut story = Story::new(3, 1, true);
    let gangs = [story.gang(), story.gang()];
    let any = story.submit(Target::Any);
    leave(&mut story, 2);
    story.hold();
    story.step();
    assert!(!idle(&story) && !drained(&story, 1), "a world changes as a whole");
    for gang in gangs {
        for rank in 0..3 {
            assert!(!idle(&story));
            assert_eq!(story.done(rank), gang[rank as usize]);
        }
    }
    assert!(idle(&story) && (0..3).all(|rank| story.running(rank).is_none()));
    story.activate(4);
    story.scheduler.reshape(2);
    story.scheduler.add_node(NodeIndex(2));
    story.scheduler.add_node(NodeIndex(3));
    story.release();
    story.step();
    assert_eq!(story.running(0), None, "its workers are started again");
    story.ready();
    assert_eq!(story.running(0), Some(any));
    assert_eq!(story.scheduler.active_workers(), 4);
    story.done(0);
    let gang = story.gang();
    assert_eq!(gang.len(), 4);
    assert_eq!(story.running(3), Some(gang[3]));
}

#[test]
fn a_world_whose_resize_is_abandoned_takes_waiting_tasks() {
    let mut story = Story::new(2, 1, true);
    story.hold();
    story.step();
    assert!(idle(&story));
    let any = story.submit(Target::Any);
    assert_eq!(story.running(0), None);
    story.release();
    story.step();
    assert_eq!(story.running(0), Some(any));
}

#[test]
fn a_gang_starts_in_a_held_world_when_its_last_worker_returns_unbegun_tasks() {
    let mut story = Story::new(1, 2, true);
    let tasks = [0; 2].map(|_| story.submit(Target::Any));
    let gang = story.gang();
    story.hold();
    for (rank, task) in tasks.iter().enumerate() {
        story.scheduler.on_not_begun(story.now, Rank(rank as u32), &[*task]);
        story.step();
    }
    assert_eq!([story.done(0), story.done(1)], gang[..]);
    assert!(idle(&story));
}

#[test]
fn a_world_is_not_idle_while_a_gang_is_tried_again() {
    let mut story = Story::new(2, 1, true);
    let gang = story.gang_with(crate::payload::RetryPolicy::times(1));
    story.hold();
    story.lost(0);
    assert!(!idle(&story));
    story.ready();
    assert_eq!([story.done(0), story.done(1)], gang[..]);
    assert!(idle(&story));
}

#[test]
fn a_cancelled_gang_does_not_keep_its_world_from_resizing() {
    for returned in 0..2 {
        let mut story = Story::new(2, 1, true);
        let gang = story.gang();
        story.hold();
        story.done(returned);
        gang.iter().for_each(|id| story.scheduler.cancel(story.now, *id));
        story.step();
        assert!(!idle(&story), "rank {} is not back", 1 - returned);
        story.done(1 - returned);
        assert!(idle(&story));
    }
}

#[test]
fn a_node_is_idle_since_its_last_task_returned() {
    let mut story = Story::new(1, 2, false);
    let began = story.now;
    assert_eq!(story.scheduler.idle_since(NodeIndex(0)), Some(began));
    story.submit(Target::Any);
    assert_eq!(story.scheduler.idle_since(NodeIndex(0)), None);
    story.now += std::time::Duration::from_secs(5);
    story.done(0);
    assert_eq!(story.scheduler.idle_since(NodeIndex(0)), Some(story.now));
    story.lost(1);
    assert_eq!(story.scheduler.idle_since(NodeIndex(0)), None, "a worker is being started");
}
