//! What a pool's machines cost and how long its budget lasts: launches and ends of machines go in,
//! sums come out. No I/O, no clock.
//!
//! Three things hold a pool to its sum:
//!
//! - The pool ends in time: [`Account::ends_at`].
//! - Nobody renews a lease once the sum is spent: [`Account::is_spent`]. This also holds for a client
//!   whose driver hangs, or whose provider ends no machine.
//! - Each machine ends by itself when an equal share of the rest, for each node that is there and
//!   coming, would be spent.

mod billed;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::billed::{Billed, hours};
use super::timing::ENDING_MARGIN;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, MachineNumber};
use crate::provider::Offer;
use crate::spec::{Budget, Spent, seconds};

/// The money and time that a pool has spent and may spend.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Budget,
    /// The time that the pool needs to end.
    ending: Duration,
    /// How long a machine lives at most after the last renewal of its lease; `None` where nothing on
    /// the machine ends it then.
    outlives: Option<Duration>,
    /// When the first machine was requested, and how many nodes were to come then.
    began: Option<(Instant, u32)>,
    machines: BTreeMap<LaunchId, Billed>,
    /// The total of the machines that were released: US dollars, and the sum of their times.
    released: (f64, Duration),
    /// Why the pool ends before its budget is nearly spent.
    closed: Option<Error>,
}

/// An account without a bound.
impl Default for Account {
    fn default() -> Self {
        Self::new(Budget::default(), Duration::ZERO)
    }
}

impl Account {
    /// `shutdown` is the time that the pool has to end its machines.
    pub(crate) fn new(budget: Budget, shutdown: Duration) -> Self {
        let ending = shutdown + ENDING_MARGIN;
        let machines = BTreeMap::new();
        Self { budget, ending, outlives: None, began: None, machines, released: (0.0, Duration::ZERO), closed: None }
    }

    /// The same account, for machines that live at most for this time after the last renewal of their
    /// lease.
    pub(crate) fn outlives(self, outlives: Option<Duration>) -> Self {
        Self { outlives, ..self }
    }

    /// Why a pool of `nodes` nodes can never use the offer; `None` if it can.
    pub(crate) fn objection(&self, offer: &Offer, nodes: u32) -> Option<String> {
        if offer.usd_per_hour.is_none() && self.budget.is_in_dollars() {
            return Some("its price is not known, and the budget is in dollars".to_owned());
        }
        let (price, most) = (offer.usd_per_hour?, self.budget.usd_per_hour?);
        let rate = price * f64::from(nodes);
        let machines = if nodes == 1 { "1 machine".to_owned() } else { format!("{nodes} machines") };
        (rate > most + ROUNDING)
            .then(|| format!("{machines} at ${price:.2}/h cost more than the budget of ${most:.2}/h"))
    }

    /// The price at which the budget counts a machine of this offer; `None` if it counts no dollars.
    pub(crate) fn counts(&self, offer: &Offer) -> Option<f64> {
        offer.usd_per_hour.filter(|_| self.budget.is_in_dollars())
    }

    /// Checks that a machine of this offer can be launched now, by a pool with `nodes` nodes that are
    /// there and coming, and returns the time after which the machine must end by itself.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Budget`]: the budget does not allow it.
    pub(crate) fn allows(&self, offer: &Offer, nodes: u32, now: Instant) -> Result<Option<Duration>> {
        let price = offer.usd_per_hour.unwrap_or_default();
        if let Some(why) = self.objection(offer, 1) {
            return Err(self.refusal(&format!("{} cannot be launched: {why}", offer.machine_type)));
        }
        if let Some(most) = self.budget.usd_per_hour {
            let rate = self.rate();
            if rate + price > most + ROUNDING {
                let what = format!(
                    "another {} at ${price:.2}/h would exceed the budget of ${most:.2}/h: ${rate:.2}/h is already being paid",
                    offer.machine_type
                );
                return Err(self.refusal(&what).temporary());
            }
        }
        let ends_in = self.share(price, nodes, now);
        let is_late = |ends_in: Duration| ends_in <= self.least(nodes, now, ends_in);
        if ends_in.is_some_and(is_late) {
            let left = self.budget.usd.map(|usd| format!(" (${:.2})", (usd - self.usd(now)).max(0.0)));
            let what = format!(
                "the rest of the budget{} does not cover another {} for a pool of {nodes} nodes",
                left.unwrap_or_default(),
                offer.machine_type
            );
            return Err(self.refusal(&what));
        }
        Ok(ends_in)
    }

    /// Records that a machine of this offer is about to be launched, and returns the time after
    /// which it must end by itself.
    ///
    /// # Errors
    ///
    /// Those of [`allows`](Self::allows); then nothing is recorded.
    pub(crate) fn admit(
        &mut self,
        launch: &LaunchId,
        number: MachineNumber,
        offer: &Offer,
        nodes: u32,
        now: Instant,
    ) -> Result<Option<Duration>> {
        let ends_in = self.allows(offer, nodes, now)?;
        self.began.get_or_insert((now, nodes));
        let usd_per_hour = offer.usd_per_hour.unwrap_or_default();
        self.machines.insert(launch.clone(), Billed::new(number, usd_per_hour, now));
        Ok(ends_in)
    }

    /// Records that nothing is left of any launch with this number.
    pub(crate) fn on_retired(&mut self, number: MachineNumber, now: Instant) {
        let left = self.machines.iter().filter(|(_, billed)| billed.number == number).map(|(launch, _)| launch.clone());
        left.collect::<Vec<_>>().iter().for_each(|launch| self.on_released(launch, now));
    }

    /// Records that the launch started nothing, or that its machine is no longer paid for.
    pub(crate) fn on_released(&mut self, launch: &LaunchId, now: Instant) {
        if let Some(billed) = self.machines.remove(launch) {
            self.released.0 += billed.cost(now, self.outlives);
            self.released.1 += billed.time(now, self.outlives);
        }
    }

    /// Records that a renewal of a machine's lease is sent.
    pub(crate) fn on_renewing(&mut self, launch: &LaunchId, sent: Instant) {
        if let Some(billed) = self.machines.get_mut(launch) {
            billed.on_renewing(sent, self.outlives);
        }
    }

    /// Records that the renewal of a machine's lease that was sent then was answered.
    pub(crate) fn on_renewed(&mut self, launch: &LaunchId, sent: Instant) {
        if let Some(billed) = self.machines.get_mut(launch) {
            billed.on_renewed(sent);
        }
    }

    /// Records how long a machine lived, as its provider reports.
    pub(crate) fn on_ended(&mut self, launch: &LaunchId, lived: Duration) {
        if let Some(billed) = self.machines.get_mut(launch) {
            billed.on_ended(lived);
        }
    }

    /// Records that a provider refused the launch: nothing was started, and nothing is paid.
    pub(crate) fn on_refused(&mut self, launch: &LaunchId) {
        self.machines.remove(launch);
    }

    pub(crate) fn spent(&self, now: Instant) -> Spent {
        let time: Duration = self.machines.values().map(|billed| billed.time(now, self.outlives)).sum();
        Spent { usd: self.usd(now), usd_per_hour: self.rate(), machine_hours: hours(self.released.1 + time) }
    }

    /// How long the budget lasts with the present machines; `None` if it has no end or has not
    /// begun.
    pub(crate) fn lasts(&self, now: Instant) -> Option<Duration> {
        self.began?;
        let time = self.budget.time().map(|time| time.saturating_sub(self.elapsed(now)));
        let rate = self.rate();
        let money = self.budget.usd.and_then(|usd| {
            let left = usd - self.usd(now);
            match (rate > 0.0, left > 0.0) {
                (_, false) => Some(Duration::ZERO),
                (true, true) => Some(seconds(left / rate * 3600.0)),
                (false, true) => None,
            }
        });
        time.into_iter().chain(money).min()
    }

    /// The pool ends now, because the rest of the budget does not cover a machine that it needs.
    pub(crate) fn close(&mut self, error: Error) {
        self.closed.get_or_insert(error);
    }

    /// Whether the budget is spent, so that nobody may keep a machine.
    pub(crate) fn is_spent(&self, now: Instant) -> bool {
        self.lasts(now) == Some(Duration::ZERO)
    }

    /// When the pool must begin to end, so that its machines are gone before the budget is spent.
    pub(crate) fn ends_at(&self, now: Instant) -> Option<Instant> {
        if self.closed.is_some() {
            return Some(now);
        }
        let lasts = self.lasts(now)?;
        now.checked_add(lasts.saturating_sub(self.margin(now, lasts)))
    }

    /// The error of a pool that ends because of its budget.
    pub(crate) fn exhausted(&self, now: Instant) -> Error {
        if let Some(error) = &self.closed {
            return error.clone();
        }
        let Spent { usd, machine_hours, .. } = self.spent(now);
        let what = format!(
            "the pool's budget of {} is nearly spent: ${usd:.2} for {machine_hours:.2} machine hours",
            self.budget
        );
        self.refusal(&what)
    }

    /// The time after which a machine that is launched now must end by itself.
    fn share(&self, price: f64, nodes: u32, now: Instant) -> Option<Duration> {
        let time = self.budget.time().map(|time| time.saturating_sub(self.elapsed(now)));
        let money = self.budget.usd.filter(|_| price > 0.0).map(|usd| {
            let left = (usd - self.usd(now)).max(0.0);
            seconds(left / f64::from(nodes.max(1)) / price * 3600.0)
        });
        time.into_iter().chain(money).min()
    }

    /// For how long the rest of the budget must last with another machine: for half of the pool's
    /// life, or for as long again as the pool takes to end. A pool that has grown spends more while
    /// it ends, so a short life is no reason for it.
    fn least(&self, nodes: u32, now: Instant, lasts: Duration) -> Duration {
        match self.began {
            None => Duration::ZERO,
            Some((_, first)) if nodes > first => self.ending * 2,
            Some(_) => self.half(now, lasts).min(self.ending * 2),
        }
    }

    /// The time that is kept for the end of the pool: at most half of a short budget.
    fn margin(&self, now: Instant, lasts: Duration) -> Duration {
        self.ending.min(self.half(now, lasts))
    }

    /// Half of the pool's life, if it lasts for this time from now on.
    fn half(&self, now: Instant, lasts: Duration) -> Duration {
        (self.elapsed(now) + lasts) / 2
    }

    fn elapsed(&self, now: Instant) -> Duration {
        self.began.map_or(Duration::ZERO, |(began, _)| now.saturating_duration_since(began))
    }

    fn rate(&self) -> f64 {
        self.machines.values().map(|billed| billed.usd_per_hour).sum()
    }

    fn usd(&self, now: Instant) -> f64 {
        self.released.0 + self.machines.values().map(|billed| billed.cost(now, self.outlives)).sum::<f64>()
    }

    fn refusal(&self, what: &str) -> Error {
        Error::new(ErrorKind::Budget, what)
            .with_context("budget", self.budget)
            .with_hint("raise `.budget(…)`, or ask for fewer or cheaper machines; `.plan()` shows what they cost")
    }
}

/// Rounding error of sums, in dollars per hour.
const ROUNDING: f64 = 1e-9;

#[cfg(test)]
mod tests;
