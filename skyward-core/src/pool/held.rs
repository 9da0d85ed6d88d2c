//! Outcomes that wait for what their tasks have printed, since the two take different ways: results come from the worker, output from its agent. No I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::outbox::Told;
use super::shared::{Shared, State, WorkerSlot};
use crate::event::OutputStream;
use crate::ids::{Generation, Rank};

/// The output that a task has left behind: it comes before the task's outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unread {
    pub(super) rank: Rank,
    pub(super) generation: Generation,
    /// How long the worker's two files were when the task ended.
    pub(super) ends: [u64; 2],
}

/// What waits, by worker, in the order in which it came.
pub(crate) struct Held<T> {
    ranks: BTreeMap<Rank, Queue<T>>,
    due: BTreeSet<(Instant, Rank)>,
    ready: Vec<T>,
    /// No more output comes: nothing waits.
    over: bool,
}

struct Queue<T> {
    due: Instant,
    waiting: VecDeque<(Unread, T)>,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self { ranks: BTreeMap::new(), due: BTreeSet::new(), ready: Vec::new(), over: false }
    }
}

impl<T> Held<T> {
    /// Lets something wait for output.
    pub(crate) fn hold(&mut self, now: Instant, unread: Unread, waiting: T) {
        if self.over {
            return self.ready.push(waiting);
        }
        let rank = unread.rank;
        let queue = self.ranks.entry(rank).or_insert_with(|| {
            let due = now + PATIENCE;
            self.due.insert((due, rank));
            Queue { due, waiting: VecDeque::new() }
        });
        queue.waiting.push_back((unread, waiting));
    }

    /// A worker's output has come on: what waited for no more than that is ready, and the rest waits anew.
    fn advance(&mut self, now: Instant, rank: Rank, told: impl Fn(&Unread) -> bool) {
        let Some(queue) = self.ranks.get_mut(&rank) else { return };
        while let Some((_, waiting)) = queue.waiting.pop_front_if(|(unread, _)| told(unread)) {
            self.ready.push(waiting);
        }
        self.due.remove(&(queue.due, rank));
        if queue.waiting.is_empty() {
            self.ranks.remove(&rank);
        } else {
            queue.due = now + PATIENCE;
            self.due.insert((queue.due, rank));
        }
    }

    /// No more output of this worker comes: nothing waits for it.
    pub(super) fn release(&mut self, rank: Rank) {
        if let Some(queue) = self.ranks.remove(&rank) {
            self.due.remove(&(queue.due, rank));
            self.ready.extend(queue.waiting.into_iter().map(|(_, waiting)| waiting));
        }
    }

    /// No more output comes: nothing waits for any, from now on.
    pub(super) fn release_all(&mut self) {
        self.over = true;
        while let Some(rank) = self.ranks.keys().next().copied() {
            self.release(rank);
        }
    }

    /// When a worker has been waited for long enough.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The workers that have been waited for long enough; nothing waits for them any more.
    fn overdue(&mut self, now: Instant) -> Vec<Rank> {
        let mut ranks = Vec::new();
        while let Some((_, rank)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.release(rank);
            ranks.push(rank);
        }
        ranks
    }
}

impl Shared {
    /// All that a worker wrote up to `end` has been emitted.
    pub(super) fn on_told(&self, rank: Rank, generation: Generation, stream: OutputStream, end: u64) {
        self.act(|state, now| {
            let State { held, workers, .. } = state;
            let slot = workers.get_mut(rank.0 as usize);
            if let Some(slot) = slot.filter(|slot| slot.generation == generation) {
                slot.told[stream as usize] = end;
                slot.mute = false;
                held.advance(now, rank, |unread| slot.has_told(unread));
            }
        });
    }
}

impl State {
    /// Has this told, after the output.
    pub(super) fn tell_after(&mut self, now: Instant, unread: Option<Unread>, told: Told) {
        let slot = |unread: &Unread| self.workers.get(unread.rank.0 as usize);
        match unread.filter(|unread| slot(unread).is_some_and(|slot| !slot.has_told(unread))) {
            Some(unread) => self.held.hold(now, unread, told),
            None => self.told.push(told),
        }
    }

    /// Has told what has waited for its output, and what has waited for it in vain.
    pub(super) fn tell_held(&mut self, now: Instant) {
        for rank in self.held.overdue(now) {
            self.told.push(Told::OutputLate(rank));
            if let Some(slot) = self.workers.get_mut(rank.0 as usize) {
                slot.mute = true;
            }
        }
        self.told.append(&mut self.held.ready);
    }

    /// When something is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let calls = self.calls.next_due();
        self.scheduler.next_timeout().into_iter().chain(self.held.next_due()).chain(calls).min()
    }
}

impl WorkerSlot {
    pub(super) fn has_told(&self, unread: &Unread) -> bool {
        let told = unread.ends[0] <= self.told[0] && unread.ends[1] <= self.told[1];
        told || self.mute || self.output_ended || self.generation != unread.generation
    }
}

/// How long outcomes wait while no output of their worker arrives.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn unread(rank: u32, stdout: u64, stderr: u64) -> Unread {
        Unread { rank: Rank(rank), generation: Generation(1), ends: [stdout, stderr] }
    }

    fn ready(held: &mut Held<&'static str>) -> Vec<&'static str> {
        std::mem::take(&mut held.ready)
    }

    #[test]
    fn what_waits_is_ready_in_order_when_its_output_has_come() {
        let (mut held, now) = (Held::default(), Instant::now());
        held.hold(now, unread(0, 10, 0), "a");
        held.hold(now, unread(0, 20, 5), "b");
        held.hold(now, unread(1, 1, 0), "other");
        let upto = |stdout, stderr| move |unread: &Unread| unread.ends[0] <= stdout && unread.ends[1] <= stderr;
        held.advance(now, Rank(0), upto(9, 0));
        assert_eq!(ready(&mut held), [""; 0]);
        held.advance(now, Rank(0), upto(20, 0));
        assert_eq!(ready(&mut held), ["a"]);
        held.advance(now, Rank(0), upto(20, 5));
        assert_eq!(ready(&mut held), ["b"]);
        held.release(Rank(1));
        assert_eq!(ready(&mut held), ["other"]);
        assert_eq!(held.next_due(), None);
        assert!(held.due.is_empty() && held.ranks.is_empty());
    }

    #[test]
    fn output_that_stays_away_is_not_waited_for_longer_than_that() {
        let (mut held, now) = (Held::default(), Instant::now());
        held.hold(now, unread(0, 10, 0), "a");
        held.hold(now + PATIENCE / 2, unread(1, 10, 0), "b");
        assert_eq!(held.overdue(now + PATIENCE / 2), []);
        // Some has come, and more may.
        held.advance(now + PATIENCE / 2, Rank(0), |_| false);
        assert_eq!(held.overdue(now + PATIENCE), []);
        assert_eq!(held.next_due(), Some(now + PATIENCE + PATIENCE / 2));
        assert_eq!(held.overdue(now + PATIENCE * 2), [Rank(0), Rank(1)]);
        assert_eq!(ready(&mut held), ["a", "b"]);
        held.hold(now, unread(2, 1, 0), "c");
        held.release_all();
        assert_eq!((ready(&mut held), held.next_due()), (vec!["c"], None));
        // What ends only because the pool does comes after this, and nobody looks at the clock any more.
        held.hold(now, unread(2, 1, 0), "d");
        assert_eq!((ready(&mut held), held.next_due()), (vec!["d"], None));
    }
}
