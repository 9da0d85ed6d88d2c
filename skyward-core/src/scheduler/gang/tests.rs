use std::collections::BTreeSet;
use std::time::Duration;

use super::super::tests::{GRACE, Story};
use super::*;
use crate::error::ErrorKind;
use crate::payload::{Outcome, RetryPolicy};
use crate::scheduler::Action;

fn sent(story: &Story) -> BTreeSet<TaskId> {
    (0..4).filter_map(|rank| story.running(rank)).collect()
}

fn cancel(story: &mut Story, id: TaskId) {
    story.scheduler.cancel(story.now, id);
    story.step();
}

fn kind(story: &Story, id: TaskId) -> Option<ErrorKind> {
    story.finished.get(&id).and_then(|outcome| outcome.as_ref().err().map(Error::kind))
}

/// Rank 2 has raised: its gang is tried again as soon as the others have reacted to their
/// interrupts.
fn retried(story: &mut Story) -> Vec<TaskId> {
    let gang = story.gang_with(RetryPolicy::times(1));
    returns(story, 2, &gang, Err(Error::new(ErrorKind::Raised, "no")));
    gang
}

fn returns(story: &mut Story, rank: u32, gang: &[TaskId], outcome: Outcome) {
    story.scheduler.on_returned(story.now, Rank(rank), gang[rank as usize], outcome, 10);
    story.step();
}

fn interrupted() -> Outcome {
    Err(Error::new(ErrorKind::Cancelled, "interrupted"))
}

#[test]
fn a_gang_ends_whole_when_a_member_is_cancelled_during_a_retry() {
    // `back`: the ranks that are already back. `cancelled`: a rank that is back, or one that is
    // not.
    for (back, cancelled) in [(vec![], 2), (vec![], 0), (vec![0], 2), (vec![0], 0), (vec![0], 1), (vec![1], 3)] {
        let mut story = Story::new(4, 1, true);
        let gang = retried(&mut story);
        back.iter().for_each(|rank| returns(&mut story, *rank, &gang, interrupted()));
        cancel(&mut story, gang[cancelled]);
        for id in &gang {
            assert_eq!(kind(&story, *id), Some(ErrorKind::Cancelled), "{back:?}, {cancelled} was cancelled");
        }
        let rest: Vec<u32> = [0, 1, 3].into_iter().filter(|rank| !back.contains(rank)).collect();
        for rank in rest {
            returns(&mut story, rank, &gang, interrupted());
            assert!(!story.has(|action| matches!(action, Action::Send { .. })), "none starts without the others");
        }
        let next = story.gang();
        assert_eq!(sent(&story), next.into_iter().collect(), "the world is free");
        story.later(GRACE);
        assert!(!story.has(|action| matches!(action, Action::Kill { .. })));
    }
}

#[test]
fn a_gang_ends_whole_when_a_member_is_cancelled_during_a_restart_of_the_world() {
    for cancelled in 0..4 {
        let mut story = Story::new(4, 1, true);
        let gang = story.gang_with(RetryPolicy::times(1));
        story.lost(1);
        let next = story.gang();
        cancel(&mut story, gang[cancelled]);
        assert!(gang.iter().all(|id| kind(&story, *id) == Some(ErrorKind::Cancelled)));
        story.ready();
        assert_eq!(sent(&story), next.into_iter().collect());
    }
}

#[test]
fn a_gang_that_never_started_ends_whole_when_a_member_is_cancelled() {
    let mut story = Story::new(4, 1, true);
    let running = story.submit(crate::payload::Target::Any);
    let (gang, behind) = (story.gang(), story.submit(crate::payload::Target::Any));
    cancel(&mut story, gang[3]);
    assert!(gang.iter().all(|id| kind(&story, *id) == Some(ErrorKind::Cancelled)));
    assert_eq!(sent(&story), [running, behind].into(), "what waited behind it starts");
}

#[test]
fn a_running_gang_goes_on_without_a_cancelled_member_and_is_not_tried_again() {
    let mut story = Story::new(4, 1, true);
    let gang = story.gang_with(RetryPolicy::times(5));
    cancel(&mut story, gang[0]);
    assert_eq!(story.done(1), gang[1]);
    assert!(story.finished[&gang[1]].is_ok(), "it cannot run again, so nothing is kept back");
    story.lost(2);
    assert!(gang[2..].iter().all(|id| story.finished[id].is_err()));
    story.ready();
    assert_eq!(sent(&story), BTreeSet::new());
}

/// In every random story, each start of a gang starts all its members at once.
#[test]
fn random_gangs_start_whole_or_end_whole() {
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    for seed in 0..1000_u64 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut story = Story::new(3, 1, true);
        let mut gangs: Vec<Vec<TaskId>> = Vec::new();
        for _ in 0..40 {
            let rank = random.random_range(0..3);
            match random.random_range(0..9) {
                0 => gangs.push(story.gang_with(RetryPolicy::times(random.random_range(0..4)))),
                1 => drop(story.submit(crate::payload::Target::Any)),
                2 if random.random_bool(0.4) => story.lost(rank),
                3 => story.ready(),
                4 if !gangs.is_empty() => {
                    let gang = &gangs[random.random_range(0..gangs.len())];
                    cancel(&mut story, gang[random.random_range(0..3)]);
                }
                5 => {
                    story.later(Duration::from_millis(700));
                }
                6 if story.running(rank).is_some() => {
                    let id = story.running(rank).unwrap();
                    story.scheduler.on_not_begun(story.now, Rank(rank), &[id]);
                    story.step();
                    continue;
                }
                _ => {
                    let Some(id) = story.running(rank) else { continue };
                    let raised = random.random_bool(0.4);
                    let outcome = if raised {
                        Err(Error::new(ErrorKind::Raised, "no"))
                    } else {
                        Ok(Value::new(vec![], Rank(rank)))
                    };
                    story.scheduler.on_returned(story.now, Rank(rank), id, outcome, 10);
                    story.step();
                }
            }
            for gang in &gangs {
                let started =
                    |id: &&TaskId| story.has(|action| matches!(action, Action::Started { task, .. } if task == *id));
                let count = gang.iter().filter(started).count();
                assert!(count == 0 || count == gang.len(), "seed {seed}: {count} of a gang were started");
            }
        }
    }
}

#[test]
fn a_member_recalled_before_it_began_is_sent_to_its_worker_again() {
    let mut story = Story::new(4, 1, true);
    let gang = story.gang_with(RetryPolicy::never());
    story.scheduler.on_not_begun(story.now, Rank(1), &gang[1..2]);
    story.step();
    assert!(story.has(|action| matches!(action, Action::Send { rank: Rank(1), task } if *task == gang[1])));
    assert!(!story.has(|action| matches!(action, Action::Retried { .. })));
    (0..4).for_each(|rank| assert_eq!(story.done(rank), gang[rank as usize]));
    assert!(gang.iter().all(|id| story.finished[id].is_ok()));
}
