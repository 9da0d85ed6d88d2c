//! Random stories of events, with the scheduler's invariants checked after each step.

use super::*;

#[test]
fn random_stories_keep_the_invariants() {
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    for seed in 0..500_u64 {
        let mut random = StdRng::seed_from_u64(seed);
        let joined = random.random_bool(0.5);
        let (nodes, workers) = (random.random_range(1..4), random.random_range(1..3));
        let stall = random.random_bool(0.5).then_some(Duration::from_secs(3));
        let limits = Limits { stall, ..Limits::default() };
        let mut story = Story::with_limits(nodes, workers, joined, limits);
        let ranks = nodes * workers;
        for _ in 0..60 {
            let rank = random.random_range(0..ranks);
            match random.random_range(0..13) {
                0 => drop(story.submit(Target::Any)),
                1 => {
                    let options = TaskOptions::default()
                        .queue_timeout(Duration::from_secs(random.random_range(0..9)))
                        .retry(RetryPolicy::times(random.random_range(0..6)));
                    story.submit_with(Target::Any, options);
                }
                2 => drop(story.submit(Target::Rank(Rank(rank)))),
                3 => drop(story.submit(Target::Node(NodeIndex(rank / workers)))),
                4 if joined => drop(story.gang_with(RetryPolicy::times(random.random_range(0..2)))),
                5 => {
                    let id = TaskId(random.random_range(1..story.next + 1));
                    story.scheduler.cancel(story.now, id);
                    story.step();
                }
                6 if random.random_bool(0.3) => story.lost(rank),
                6 if random.random_bool(0.1) => story.node_lost(rank / workers),
                7 => story.ready(),
                10 => {
                    story.scheduler.on_stacks(story.now, Rank(rank), String::new());
                    story.step();
                }
                9 => {
                    let sent: Vec<TaskId> = story.scheduler.sent(Rank(rank)).collect();
                    if !sent.is_empty() {
                        let id = sent[random.random_range(0..sent.len())];
                        story.scheduler.on_not_begun(story.now, Rank(rank), &[id]);
                        story.step();
                    }
                }
                11 => {
                    // All tasks from some place on, as with a recalled or lost worker.
                    let sent: Vec<TaskId> = story.scheduler.sent(Rank(rank)).collect();
                    let begun = random.random_range(0..=sent.len());
                    story.scheduler.on_not_begun(story.now, Rank(rank), &sent[begun..]);
                    story.step();
                }
                8 => {
                    story.later(Duration::from_secs(1));
                }
                _ => {
                    if let Some(id) = story.running(rank) {
                        let outcome = if random.random_bool(0.8) {
                            Ok(Value::new(vec![], Rank(rank)))
                        } else {
                            Err(raised(rank))
                        };
                        story.scheduler.on_returned(story.now, Rank(rank), id, outcome, random.random_range(0..5000));
                        story.step();
                    }
                }
            }
        }
        // Without further events, everything ends: no task waits for ever.
        if story.scheduler.failure().is_none() {
            for _ in 0..2000 {
                story.ready();
                let Some(rank) = (0..ranks).find(|rank| story.running(*rank).is_some()) else { break };
                story.done(rank);
            }
        }
        let unfinished: Vec<_> = (1..story.next).filter(|id| !story.finished.contains_key(&TaskId(*id))).collect();
        assert!(unfinished.is_empty(), "seed {seed}: tasks {unfinished:?} have no outcome: {:?}", story.scheduler);
    }
}
