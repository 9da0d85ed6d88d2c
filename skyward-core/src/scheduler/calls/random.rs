//! Random stories of calls: a task that waits for calls does not end before its calls do.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::tests::Story;
use super::*;
use crate::ids::Rank;
use crate::payload::{Outcome, RetryPolicy, Value};
use crate::spec::Limits;

/// How a worker came to run something.
#[derive(Debug, Clone, Copy)]
enum Run {
    Sent,
    Helped,
}

struct World {
    story: Story,
    random: StdRng,
    seed: u64,
    nodes: u32,
    workers: u32,
    /// Whether tasks wait for their calls without reporting that they wait.
    silent: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let (nodes, workers) = (random.random_range(1..4), random.random_range(1..3));
        let max_calls = random.random_range(5..40);
        let limits = Limits { max_calls, ..Limits::default() };
        let story = Story::with_limits(nodes, workers, random.random_bool(0.25), limits);
        let silent = random.random_bool(0.5);
        Self { story, random, seed, nodes, workers, silent }
    }

    fn rank(&mut self) -> u32 {
        self.random.random_range(0..self.nodes * self.workers)
    }

    /// What may end now on a worker: its innermost frame, and calls on its other threads.
    fn ends(&self, rank: u32) -> Vec<(Run, TaskId)> {
        let worker = &self.story.scheduler.workers[rank as usize];
        let main = worker.frames.last().map(|id| (Run::Helped, *id));
        let main = main.or(worker.sent.front().map(|id| (Run::Sent, *id)));
        main.into_iter().chain(worker.asides.iter().map(|id| (Run::Helped, *id))).collect()
    }

    /// Everything that a worker runs.
    fn runs(&self, rank: u32) -> Vec<TaskId> {
        let scheduler = &self.story.scheduler;
        scheduler.sent(Rank(rank)).take(1).chain(scheduler.helped(Rank(rank))).collect()
    }

    fn end(&mut self, rank: u32, (run, id): (Run, TaskId), outcome: Outcome) {
        let micros = self.random.random_range(0..3000);
        let Story { scheduler, now, .. } = &mut self.story;
        match run {
            Run::Sent => scheduler.on_returned(*now, Rank(rank), id, outcome, micros),
            Run::Helped => scheduler.on_helped(*now, Rank(rank), id, outcome, micros),
        }
        self.step();
    }

    fn outcome(&mut self, rank: u32) -> Outcome {
        match self.random.random_range(0..10) {
            0 => Err(Error::new(ErrorKind::Raised, "no")),
            1 => Err(Error::new(ErrorKind::Cancelled, "interrupted")),
            _ => Ok(Value::new(vec![], Rank(rank))),
        }
    }

    fn call(&mut self, rank: u32) {
        let runs = self.runs(rank);
        if runs.is_empty() {
            return;
        }
        let parent = runs[self.random.random_range(0..runs.len())];
        let mut options = TaskOptions::default().retry(RetryPolicy::for_calls());
        if self.random.random_bool(0.2) {
            options = options.timeout(Duration::from_millis(self.random.random_range(1..3000)));
        }
        let id = TaskId(self.story.next);
        let before = self.story.scheduler.tasks.len();
        if self.story.scheduler.submit_call(self.story.now, id, parent, options, true).is_ok() {
            self.story.next += 1;
        } else {
            assert_eq!(self.story.scheduler.tasks.len(), before, "seed {}: a refused call leaves a task", self.seed);
        }
        self.step();
    }

    fn event(&mut self) {
        let rank = self.rank();
        match self.random.random_range(0..21) {
            0 => drop(self.story.submit(Target::Any)),
            1 => drop(
                self.story.submit_with(Target::Rank(Rank(rank)), TaskOptions::default().retry(RetryPolicy::times(1))),
            ),
            2..=6 => self.call(rank),
            7..=9 if !self.silent => {
                if let Some((_, frame)) = self.ends(rank).first().copied() {
                    self.story.waiting(rank, frame);
                }
            }
            10 => self.story.waited(rank),
            11..=13 => {
                let ends = self.ends(rank);
                if !ends.is_empty() {
                    let which = ends[self.random.random_range(0..ends.len())];
                    let outcome = self.outcome(rank);
                    self.end(rank, which, outcome);
                }
            }
            14 => {
                let helped = self.ends(rank).into_iter().rfind(|(run, _)| matches!(run, Run::Helped));
                if let Some((_, id)) = helped {
                    self.story.refused(rank, id);
                }
            }
            15 => {
                let id = TaskId(self.random.random_range(1..self.story.next + 1));
                self.story.cancel(id);
            }
            16 => match self.random.random_range(0..8) {
                0 => self.story.lost(rank),
                1 => self.story.node_lost(rank / self.workers),
                2 => self.story.cordon(rank / self.workers),
                3 => self.story.uncordon(rank / self.workers),
                4 => self.story.scheduler.on_ended(Rank(rank)),
                5 if self.story.scheduler.is_joined() => drop(self.story.gang_with(RetryPolicy::times(1))),
                _ => self.story.ready(),
            },
            17 => {
                let sent: Vec<TaskId> = self.story.scheduler.sent(Rank(rank)).skip(1).collect();
                self.story.scheduler.on_not_begun(self.story.now, Rank(rank), &sent);
            }
            18 => {
                let (ends, begins) = (self.ends(rank), self.random.random_bool(0.5));
                if let Some((_, id)) = ends.first().copied() {
                    self.story.scheduler.on_import(self.story.now, Rank(rank), id, begins);
                }
            }
            _ => {
                let millis = self.random.random_range(0..300);
                self.story.later(Duration::from_millis(millis));
            }
        }
        self.step();
    }

    /// Takes a step and checks the invariants of calls, beyond those that hold for all stories.
    fn step(&mut self) {
        self.story.step();
        let (scheduler, seed) = (&self.story.scheduler, self.seed);
        for id in scheduler.tasks.keys() {
            let task = scheduler.tasks.get(&id).unwrap();
            if let Some(call) = task.call.filter(|_| !task.abandoned) {
                assert!(!scheduler.is_orphan(id), "seed {seed}: {id} outlives its caller: {scheduler:?}");
                let caller = scheduler.tasks.get(&call.parent);
                assert!(caller.is_some_and(|caller| !caller.abandoned), "seed {seed}: {id} outlives its caller");
                assert_eq!(scheduler.depth(id), scheduler.depth(call.parent) + 1, "seed {seed}");
                assert_eq!(scheduler.above(id).count(), call.depth as usize, "seed {seed}");
            }
        }
    }

    /// Every worker that was asked to return the tasks it has not begun returns them.
    fn give_back(&mut self) {
        for rank in 0..self.nodes * self.workers {
            if self.story.has(|action| matches!(action, Action::Recall { rank: of } if of.0 == rank)) {
                let behind: Vec<TaskId> = self.story.scheduler.sent(Rank(rank)).skip(1).collect();
                self.story.scheduler.on_not_begun(self.story.now, Rank(rank), &behind);
            }
        }
        self.step();
    }

    /// Ends everything that runs and does not wait for calls, until nothing is left.
    fn come_to_rest(&mut self) {
        for node in 0..self.nodes {
            self.story.uncordon(node);
        }
        for rank in (0..self.nodes * self.workers).map(Rank) {
            // A worker whose process has ended is lost at last.
            if self.story.scheduler.workers[rank.0 as usize].ended {
                self.story.lost(rank.0);
            }
        }
        for _ in 0..5000 {
            self.story.ready();
            let ranks = 0..self.nodes * self.workers;
            let ends: Vec<(u32, (Run, TaskId))> = ranks
                .flat_map(|rank| self.ends(rank).into_iter().map(move |end| (rank, end)))
                .filter(|(_, (_, id))| !self.story.scheduler.is_caller(*id))
                .collect();
            if ends.is_empty() {
                if self.story.scheduler.tasks.is_empty() {
                    break;
                }
                let next = self.story.scheduler.next_timeout();
                let next =
                    next.unwrap_or_else(|| panic!("seed {}: nothing can go on: {:?}", self.seed, self.story.scheduler));
                self.story.later(next.saturating_duration_since(self.story.now));
                self.give_back();
                continue;
            }
            let (rank, end) = ends[self.random.random_range(0..ends.len())];
            self.end(rank, end, Ok(Value::new(vec![], Rank(rank))));
        }
        let (scheduler, seed) = (&self.story.scheduler, self.seed);
        assert!(scheduler.tasks.is_empty() && scheduler.families.is_empty(), "seed {seed}: {scheduler:?}");
        assert!(!scheduler.has_work() && !scheduler.is_busy(), "seed {seed}: {scheduler:?}");
        let unfinished: Vec<u64> =
            (1..self.story.next).filter(|id| !self.story.finished.contains_key(&TaskId(*id))).collect();
        assert!(unfinished.is_empty(), "seed {seed}: {unfinished:?} have no outcome");
        // The timers that are left check lengths and suspicions; each of them ends by itself.
        for _ in 0..100 {
            if let Some(next) = self.story.scheduler.next_timeout() {
                self.story.later(next.saturating_duration_since(self.story.now));
            }
        }
        assert_eq!(self.story.scheduler.next_timeout(), None, "seed {seed}");
    }
}

#[test]
fn random_stories_of_calls_come_to_rest() {
    let mut helps = [0; 2];
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..120 {
            world.event();
        }
        world.come_to_rest();
        helps = [0, 1].map(|kind| helps[kind] + world.story.helps[kind]);
    }
    assert!(helps.iter().all(|count| *count > 150), "too few stories in which a worker helps: {helps:?}");
}
