//! How the ranks of a try agree on a step at which they save.
//!
//! 1. A rank writes its step into a file, and then looks in the file for an ask.
//! 2. The mover writes the ask into the file, makes all processors see it, and then reads the step. So
//!    the rank sees the ask, or the mover reads the step with which the rank goes on.
//! 3. A rank that sees the ask waits. The target is the largest step plus one, which no rank has reached.
//! 4. Each rank gets the target, and saves at that step.

use std::collections::BTreeMap;

/// The asks of one try, one after another.
#[derive(Debug, Default)]
pub(super) struct Asks {
    last: i64,
    /// The steps that ranks have reached, while an ask is open.
    open: Option<BTreeMap<u32, i64>>,
    /// The outcome of the last ask that was closed: its number, and the step.
    outcome: Option<(i64, Option<i64>)>,
    /// Whether a rank wishes an ask that could not begin yet.
    is_wished: bool,
}

impl Asks {
    /// A rank at this step wishes that all agree on one. An open ask, and a step that all have agreed on
    /// and that the rank has not reached, answer the wish.
    pub(super) fn wish(&mut self, step: i64) {
        let is_agreed = self.outcome.is_some_and(|(_, agreed)| agreed.is_some_and(|agreed| step < agreed));
        self.is_wished |= self.open.is_none() && !is_agreed;
    }

    /// Begins an ask that is wished, if none is open. Returns its number.
    pub(super) fn begin(&mut self) -> Option<i64> {
        if self.open.is_some() || !self.is_wished {
            return None;
        }
        self.is_wished = false;
        self.last += 1;
        self.open = Some(BTreeMap::new());
        Some(self.last)
    }

    /// A rank has reached this step when it saw the ask with this number, or before. Returns the
    /// outcome if that was the last of so many ranks.
    pub(super) fn on_step(&mut self, ask: i64, rank: u32, step: i64, ranks: usize) -> Option<(i64, Option<i64>)> {
        let steps = self.open.as_mut().filter(|_| ask == self.last)?;
        steps.insert(rank, step);
        if steps.len() < ranks {
            return None;
        }
        let largest = steps.values().max().copied()?;
        self.close(Some(largest.saturating_add(1)))
    }

    /// Ends the open ask without a step. Returns its outcome. If the ranks go on, it is wished again.
    pub(super) fn withdraw(&mut self, goes_on: bool) -> Option<(i64, Option<i64>)> {
        self.open.as_ref()?;
        self.is_wished = goes_on;
        self.close(None)
    }

    fn close(&mut self, step: Option<i64>) -> Option<(i64, Option<i64>)> {
        self.open = None;
        self.outcome = Some((self.last, step));
        self.outcome
    }

    /// The outcome of the last ask, for a rank that may not have heard it.
    pub(super) fn outcome(&self) -> Option<(i64, Option<i64>)> {
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_save_after_the_largest_step() {
        let mut asks = Asks::default();
        assert_eq!(asks.begin(), None, "nobody wishes it");
        asks.wish(6);
        assert_eq!(asks.begin(), Some(1));
        asks.wish(7);
        assert_eq!(asks.begin(), None, "one at a time");
        assert_eq!(asks.on_step(1, 0, 7, 2), None);
        assert_eq!(asks.on_step(1, 0, 7, 2), None, "an answer may come twice");
        assert_eq!(asks.on_step(1, 1, 9, 2), Some((1, Some(10))));
        assert_eq!(asks.on_step(1, 1, 9, 2), None, "it is closed");
        asks.wish(9);
        assert_eq!(asks.begin(), None, "the ask has answered both wishes");
        asks.wish(10);
        assert_eq!(asks.begin(), Some(2));
    }

    #[test]
    fn an_ask_that_a_rank_cannot_answer_is_withdrawn() {
        let mut asks = Asks::default();
        asks.wish(1);
        asks.begin();
        assert_eq!(asks.withdraw(true), Some((1, None)));
        assert_eq!(asks.on_step(1, 0, 5, 1), None);
        assert_eq!(asks.begin(), Some(2));
        assert_eq!(asks.withdraw(false), Some((2, None)));
        assert_eq!((asks.begin(), asks.withdraw(false)), (None, None));
        assert_eq!(asks.outcome(), Some((2, None)));
    }
}
