//! Holds outcomes back until the output of their tasks has arrived. The two take different ways:
//! results come from the worker, output comes from its agent. No I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;
use std::vec::Drain;

use super::timing::OUTPUT_SILENCE;
use crate::ids::{Generation, Rank};

/// Output of a task that has not been reported yet; it must be reported before the task's outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unread {
    pub(crate) rank: Rank,
    pub(crate) generation: Generation,
    /// The lengths of the worker's two output files when the task ended.
    pub(crate) ends: [u64; 2],
}

/// Items that wait for output, by worker, in the order in which they arrived.
pub(crate) struct Held<T> {
    ranks: BTreeMap<Rank, Queue<T>>,
    due: BTreeSet<(Instant, Rank)>,
    ready: Vec<T>,
    /// No more output will arrive, so nothing waits.
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
    /// Lets an item wait for output.
    pub(crate) fn hold(&mut self, now: Instant, unread: Unread, waiting: T) {
        if self.over {
            return self.ready.push(waiting);
        }
        let rank = unread.rank;
        let queue = self.ranks.entry(rank).or_insert_with(|| {
            let due = now + OUTPUT_SILENCE;
            self.due.insert((due, rank));
            Queue { due, waiting: VecDeque::new() }
        });
        queue.waiting.push_back((unread, waiting));
    }

    /// Some output of a worker has arrived. Items that waited for no more than that are ready; for
    /// the others the wait begins again.
    pub(super) fn advance(&mut self, now: Instant, rank: Rank, has_emitted: impl Fn(&Unread) -> bool) {
        let Some(queue) = self.ranks.get_mut(&rank) else { return };
        while let Some((_, waiting)) = queue.waiting.pop_front_if(|(unread, _)| has_emitted(unread)) {
            self.ready.push(waiting);
        }
        self.due.remove(&(queue.due, rank));
        if queue.waiting.is_empty() {
            self.ranks.remove(&rank);
        } else {
            queue.due = now + OUTPUT_SILENCE;
            self.due.insert((queue.due, rank));
        }
    }

    /// No more output of this worker will arrive, so nothing waits for it.
    pub(crate) fn release(&mut self, rank: Rank) {
        if let Some(queue) = self.ranks.remove(&rank) {
            self.due.remove(&(queue.due, rank));
            self.ready.extend(queue.waiting.into_iter().map(|(_, waiting)| waiting));
        }
    }

    /// No more output will arrive, so from now on nothing waits.
    pub(crate) fn release_all(&mut self) {
        self.over = true;
        while let Some(rank) = self.ranks.keys().next().copied() {
            self.release(rank);
        }
    }

    /// Takes the items that do not wait any more, in order.
    pub(super) fn take_ready(&mut self) -> Drain<'_, T> {
        self.ready.drain(..)
    }

    /// When the wait for some worker is over.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The workers for which the wait is over; nothing waits for them any more.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Rank> {
        let mut ranks = Vec::new();
        while let Some((_, rank)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.release(rank);
            ranks.push(rank);
        }
        ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unread(rank: u32, stdout: u64, stderr: u64) -> Unread {
        Unread { rank: Rank(rank), generation: Generation(1), ends: [stdout, stderr] }
    }

    fn ready(held: &mut Held<&'static str>) -> Vec<&'static str> {
        held.take_ready().collect()
    }

    #[test]
    fn items_are_ready_in_order_when_their_output_has_arrived() {
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
    fn the_wait_for_missing_output_is_bounded() {
        let (mut held, now) = (Held::default(), Instant::now());
        held.hold(now, unread(0, 10, 0), "a");
        held.hold(now + OUTPUT_SILENCE / 2, unread(1, 10, 0), "b");
        assert_eq!(held.overdue(now + OUTPUT_SILENCE / 2), []);
        // Some output has arrived, and more may follow.
        held.advance(now + OUTPUT_SILENCE / 2, Rank(0), |_| false);
        assert_eq!(held.overdue(now + OUTPUT_SILENCE), []);
        assert_eq!(held.next_due(), Some(now + OUTPUT_SILENCE + OUTPUT_SILENCE / 2));
        assert_eq!(held.overdue(now + OUTPUT_SILENCE * 2), [Rank(0), Rank(1)]);
        assert_eq!(ready(&mut held), ["a", "b"]);
        held.hold(now, unread(2, 1, 0), "c");
        held.release_all();
        assert_eq!(ready(&mut held), vec!["c"]);
        assert_eq!(held.next_due(), None);
        // Items that end only because the pool ends come after this, when no timer runs any more.
        held.hold(now, unread(2, 1, 0), "d");
        assert_eq!(ready(&mut held), vec!["d"]);
        assert_eq!(held.next_due(), None);
    }
}
