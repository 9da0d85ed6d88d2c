//! When an elastic pool grows and shrinks: the load goes in, a number of nodes comes out. No I/O,
//! no clock.
//!
//! - It grows when tasks have waited for a while and more tasks wait than the machines under way
//!   can take, at most to twice its size at once.
//! - It shrinks when its last nodes have been idle for as long as allowed and no task waits, at
//!   most by half at once.
//! - After machines that could not be made ready it pauses, each time twice as long.

use std::time::{Duration, Instant};

use super::timing::{GROWTH_PAUSE, LONGEST_GROWTH_PAUSE, LONGEST_LOAD_PAUSE, SHORTEST_LOAD_PAUSE, SUSTAINED};
use crate::spec::Limits;

/// The bounds of an elastic pool, and what it has seen so far.
#[derive(Debug)]
pub(crate) struct Elastic {
    min: u32,
    max: u32,
    /// How long a node must be idle before it is released.
    idle: Duration,
    /// The number of waiting tasks for which one more node is launched.
    per_node: u32,
    /// Since when tasks have waited at every look.
    waiting_since: Option<Instant>,
    /// The pool does not grow before this time.
    not_before: Option<Instant>,
    failures: u32,
}

/// The load of a pool at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    /// Tasks that any worker may run and that wait for a worker.
    pub(crate) waiting: usize,
    /// Nodes that are in the pool and do not leave.
    pub(crate) nodes: u32,
    /// Machines that are being made ready.
    pub(crate) coming: u32,
    /// Since when each of the last nodes has been idle: from the last node backwards, up to the
    /// first one that is not idle.
    pub(crate) idle: Vec<Instant>,
}

impl Elastic {
    pub(crate) fn new(min: u32, max: u32, workers_per_node: u32, limits: &Limits) -> Self {
        let per_node = limits.backlog.saturating_mul(workers_per_node).max(1);
        Self { min, max, idle: limits.idle, per_node, waiting_since: None, not_before: None, failures: 0 }
    }

    /// The most nodes of the pool.
    pub(crate) fn most(&self) -> u32 {
        self.max
    }

    /// When to look at the load again.
    pub(crate) fn next_look(&self, now: Instant) -> Instant {
        now + LONGEST_LOAD_PAUSE.min(self.idle / 4).max(SHORTEST_LOAD_PAUSE)
    }

    /// How many nodes the pool should have from now on; `None` for no change.
    pub(crate) fn look(&mut self, now: Instant, load: &Load) -> Option<u32> {
        let all = load.nodes + load.coming;
        let may_grow = self.not_before.is_none_or(|at| at <= now);
        if all < self.min && may_grow {
            return Some(self.min);
        }
        if load.waiting == 0 {
            self.waiting_since = None;
            return self.shrunk(now, load).filter(|wanted| *wanted < all);
        }
        let since = *self.waiting_since.get_or_insert(now);
        if now.saturating_duration_since(since) < SUSTAINED || !may_grow {
            return None;
        }
        let room = (load.coming as usize).saturating_mul(self.per_node as usize);
        let more = load.waiting.saturating_sub(room).div_ceil(self.per_node as usize);
        let more = u32::try_from(more).unwrap_or(u32::MAX).min(load.nodes.max(1));
        let wanted = all.saturating_add(more).min(load.nodes.saturating_mul(2)).min(self.max);
        if wanted <= all {
            return None;
        }
        // First let the new machines work, then decide again.
        self.waiting_since = None;
        Some(wanted)
    }

    /// A machine joined the pool.
    pub(crate) fn on_joined(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    /// The machines that were requested could not be made ready.
    pub(crate) fn on_failed(&mut self, now: Instant) {
        let pause = GROWTH_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_GROWTH_PAUSE);
        self.failures += 1;
        self.not_before = now.checked_add(pause);
    }

    fn shrunk(&self, now: Instant, load: &Load) -> Option<u32> {
        let over = |since: &&Instant| now.saturating_duration_since(**since) >= self.idle;
        let idle = load.idle.iter().take_while(over).count() as u32;
        // No task waits, so the machines under way are not needed either.
        let fewer = load.coming + idle.min((load.nodes / 2).max(1));
        (idle > 0).then(|| (load.nodes + load.coming).saturating_sub(fewer).max(self.min).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { idle: Duration::from_secs(60), backlog: 2, ..Limits::default() }
    }

    /// Looks twice, with the time between that tasks must wait.
    fn sustained(elastic: &mut Elastic, now: &mut Instant, load: &Load) -> Option<u32> {
        assert_eq!(elastic.look(*now, load), None, "it does not grow at once");
        *now += SUSTAINED;
        elastic.look(*now, load)
    }

    fn load(waiting: usize, nodes: u32, coming: u32) -> Load {
        Load { waiting, nodes, coming, idle: Vec::new() }
    }

    #[test]
    fn it_grows_with_the_backlog_to_at_most_twice_its_size_and_at_most_its_maximum() {
        for (waiting, nodes, coming, wanted) in [
            (1, 1, 0, Some(2)),
            (100, 1, 0, Some(2)),
            (100, 1, 1, None),
            (3, 4, 0, Some(6)),
            (9, 4, 0, Some(8)),
            (100, 4, 0, Some(8)),
            (100, 4, 1, Some(8)),
            (9, 4, 3, Some(8)),
            (6, 4, 3, None),
            (100, 6, 0, Some(9)),
            (100, 9, 0, None),
        ] {
            let (mut elastic, mut now) = (Elastic::new(1, 9, 1, &limits()), Instant::now());
            let load = load(waiting, nodes, coming);
            assert_eq!(sustained(&mut elastic, &mut now, &load), wanted, "{load:?}");
        }
    }

    #[test]
    fn it_does_not_grow_for_tasks_that_wait_briefly_nor_right_after_it_has_grown() {
        let (mut elastic, mut now) = (Elastic::new(1, 9, 1, &limits()), Instant::now());
        for waiting in [5, 0, 5, 0, 5] {
            assert_eq!(elastic.look(now, &load(waiting, 1, 0)), None);
            now += SUSTAINED / 2;
        }
        now += SUSTAINED / 2;
        assert_eq!(elastic.look(now, &load(5, 1, 0)), Some(2));
        assert_eq!(elastic.look(now, &load(5, 2, 0)), None);
        assert_eq!(sustained(&mut elastic, &mut now, &load(50, 2, 0)), Some(4));
    }

    #[test]
    fn it_releases_idle_last_nodes_down_to_at_least_half_its_size_and_its_minimum() {
        let now = Instant::now() + Duration::from_secs(1000);
        let ago = |seconds: u64| now - Duration::from_secs(seconds);
        for (nodes, idle, wanted) in [
            (4, vec![], None),
            (4, vec![59], None),
            (4, vec![60], Some(3)),
            (4, vec![60, 59, 61], Some(3)),
            (4, vec![60, 61, 62], Some(2)),
            (8, vec![60; 8], Some(4)),
            (3, vec![60; 3], Some(2)),
            (2, vec![60; 2], None),
        ] {
            let mut elastic = Elastic::new(2, 9, 1, &limits());
            let load = Load { nodes, idle: idle.iter().map(|seconds| ago(*seconds)).collect(), ..Load::default() };
            assert_eq!(elastic.look(now, &load), wanted, "{load:?}");
            let waiting = Load { waiting: 1, ..load };
            assert_eq!(elastic.look(now, &waiting), None, "a task waits");
        }
    }

    #[test]
    fn machines_under_way_are_given_up_when_no_task_waits() {
        let now = Instant::now() + Duration::from_secs(1000);
        let mut elastic = Elastic::new(1, 9, 1, &limits());
        let idle = vec![now - Duration::from_secs(60)];
        assert_eq!(elastic.look(now, &Load { nodes: 1, coming: 1, idle, ..Load::default() }), Some(1));
    }

    #[test]
    fn the_pause_doubles_with_each_failure_to_get_machines() {
        let (mut elastic, mut now) = (Elastic::new(1, 9, 1, &limits()), Instant::now());
        for pause in [10, 20, 40] {
            elastic.on_failed(now);
            now += Duration::from_secs(pause - 1);
            assert_eq!(elastic.look(now, &load(5, 1, 0)), None);
            now += SUSTAINED;
            assert_eq!(elastic.look(now, &load(5, 1, 0)), Some(2));
        }
        elastic.on_failed(now);
        elastic.on_joined();
        assert_eq!(sustained(&mut elastic, &mut now, &load(5, 2, 0)), Some(4));
    }
}
