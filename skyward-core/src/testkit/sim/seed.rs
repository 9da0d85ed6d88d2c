//! The draws of a simulation from its seed.

use std::time::Duration;

use super::timing::STALL_REPORT;
use crate::spec::Budget;

/// A seed. Every draw depends on the seed and on its purpose, never on the order of draws.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seed(pub(super) u64);

impl Seed {
    /// A number that depends on the seed and on its purpose.
    fn draw(self, what: &str, a: u64, b: u64) -> u64 {
        let mut state = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for part in what.bytes().map(u64::from).chain([a, b]) {
            state = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
            state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            state ^= state >> 31;
        }
        state
    }

    pub(super) fn below(self, what: &str, a: u64, b: u64, bound: u64) -> u64 {
        self.draw(what, a, b) % bound.max(1)
    }

    /// True once in `times`.
    pub(super) fn chance(self, what: &str, a: u64, b: u64, times: u64) -> bool {
        self.below(what, a, b, times) == 0
    }

    pub(super) fn time(self, what: &str, a: u64, b: u64, millis: u64) -> Duration {
        Duration::from_millis(self.below(what, a, b.wrapping_add(1 << 32), millis))
    }

    /// A third of the seeds have no faults of this sort at all, so that each sort also happens
    /// alone.
    pub(super) fn fault(self, sort: &str, a: u64, b: u64, times: u64) -> bool {
        !self.has_none(sort) && self.chance(sort, a, b, times)
    }

    pub(super) fn has_none(self, sort: &str) -> bool {
        self.chance(sort, u64::MAX, 0, 3)
    }

    /// How long a gang may be without progress until that is reported; a quarter of the seeds
    /// report none.
    pub(super) fn stall_report(self) -> Duration {
        if self.chance("stall report", 0, 0, 4) { Duration::MAX } else { STALL_REPORT }
    }

    /// The budget of the pool; most pools have none.
    pub(super) fn budget(self) -> Budget {
        let mut budget = Budget::default();
        if !self.chance("budget", 0, 0, 4) {
            return budget;
        }
        let draw = |what| 20.0 + self.below(what, 0, 2, 400) as f64;
        if self.chance("hours", 0, 1, 2) {
            budget = budget.hours(draw("hours") / 3600.0);
        }
        if self.chance("usd", 0, 1, 2) {
            budget = budget.usd(draw("usd") * DEAREST / 3600.0);
        }
        budget.usd_per_hour = self.chance("rate", 0, 1, 2).then(|| draw("rate"));
        budget
    }
}

/// The price per hour of the dearest offer.
pub(super) const DEAREST: f64 = 120.0;
