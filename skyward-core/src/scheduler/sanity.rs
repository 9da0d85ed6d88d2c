//! The invariants of the tables, which hold between any two calls of the scheduler.

use super::Scheduler;
use super::table::List;
use super::task::Position;
use super::worker::Counts;
use crate::ids::TaskId;
use crate::payload::Target;

impl Scheduler {
    /// Runs [`check`](Self::check) if the tables are small enough to check after each step.
    pub(super) fn check_if_small(&self) {
        if self.tasks.len() + self.workers.len() < SMALL {
            self.check();
        }
    }

    /// Checks that each task is in the one position that it names, and that the counts are right.
    ///
    /// # Panics
    ///
    /// When an invariant does not hold.
    pub(super) fn check(&self) {
        let mut placed = self.check_queue(&self.any, |target| matches!(target, Target::Any | Target::Head));
        for (node, record) in self.nodes.iter().enumerate() {
            placed += self.check_queue(&record.queue, |at| matches!(at, Target::Node(of) if of.0 as usize == node));
        }
        let mut counts = Counts::default();
        for (rank, worker) in self.ranks().zip(&self.workers) {
            placed += self.check_queue(&worker.queue, |at| at == Target::Rank(rank));
            placed += worker.load();
            for id in &worker.sent {
                assert_eq!(self.position_of(*id), Some(Position::Worker(rank)), "task {id}: {self:?}");
            }
            assert!(worker.ready || worker.sent.is_empty(), "rank {rank} is lost and has tasks: {self:?}");
            assert_eq!(worker.counted, self.counts_of(rank), "rank {rank}: {self:?}");
            counts.replace(Counts::default(), worker.counted);
            let takes = self.takes_more(rank) && !self.is_leaving(worker.node);
            assert_eq!(worker.listed, takes.then_some(worker.sent.len()), "rank {rank}: {self:?}");
            assert_eq!(worker.listed.is_some(), self.open.contains(&(worker.sent.len(), rank)), "rank {rank}");
        }
        assert_eq!(counts, self.counts);
        assert_eq!(self.open.len(), self.workers.iter().filter_map(|it| it.listed).count());
        for (id, _) in &self.backlog.lost {
            assert_eq!(self.position_of(*id), Some(Position::Lost), "task {id}: {self:?}");
        }
        let in_gangs = self.check_gangs();
        placed += self.check_calls();
        assert_eq!(self.tasks.len(), placed + self.backlog.lost.len() + in_gangs, "{self:?}");
    }

    /// Returns how many tasks are with their gangs.
    fn check_gangs(&self) -> usize {
        let (mut waiting, mut kept) = (0, 0);
        for first in self.gang_table.keys() {
            let Some(gang) = self.gang_table.get(&first) else { continue };
            waiting += usize::from(gang.waits());
            let positions = || gang.ids().filter_map(|id| self.position_of(id));
            let out = positions().filter(|position| matches!(position, Position::Worker(_) | Position::Lost)).count();
            assert_eq!(out, gang.running(), "gang {first}: {self:?}");
            kept += positions().filter(|position| *position == Position::Gang).count();
            assert!(gang.is_possible(), "gang {first}: {self:?}");
        }
        assert!(self.has_work() || self.next_gang().is_none(), "a gang can start and does not: {self:?}");
        assert_eq!(self.gangs.len(), waiting, "{self:?}");
        assert_eq!(self.gangs.iter(&self.gang_table).count(), waiting, "{self:?}");
        kept
    }

    fn check_queue(&self, queue: &List, fits: impl Fn(Target) -> bool) -> usize {
        for id in queue.iter(&self.tasks) {
            assert_eq!(self.position_of(id), Some(Position::Queue), "task {id}: {self:?}");
            assert!(self.tasks.get(&id).is_some_and(|task| fits(task.target) && task.gang.is_none()), "task {id}");
        }
        assert_eq!(queue.iter(&self.tasks).count(), queue.len());
        queue.len()
    }

    fn position_of(&self, id: TaskId) -> Option<Position> {
        self.tasks.get(&id).map(|task| task.position)
    }
}

const SMALL: usize = 64;
