//! One machine that is being paid for: from its launch to its end, as far as that is known.

use std::time::{Duration, Instant};

use crate::ids::MachineNumber;

/// A machine that is being paid for.
#[derive(Debug, Clone)]
pub(super) struct Billed {
    pub(super) number: MachineNumber,
    pub(super) usd_per_hour: f64,
    since: Instant,
    life: Option<Life>,
    /// How long it lived, as its provider reports.
    lived: Option<Duration>,
}

/// What the renewals of its lease show of a machine's life.
#[derive(Debug, Clone, Copy)]
struct Life {
    /// When the last renewal that was answered was sent. The machine lived then. The time of the
    /// answer does not count: an answer can wait in a host that is suspended.
    seen: Instant,
    /// When the last renewal that can have reached the machine was sent.
    renewed: Instant,
}

impl Billed {
    pub(super) fn new(number: MachineNumber, usd_per_hour: f64, since: Instant) -> Self {
        Self { number, usd_per_hour, since, life: None, lived: None }
    }

    /// A renewal of the lease is sent. One that is sent when the lease has certainly ended the
    /// machine renews nothing.
    pub(super) fn on_renewing(&mut self, sent: Instant, outlives: Option<Duration>) {
        if let Some(life) = &mut self.life
            && outlives.is_some_and(|outlives| sent <= life.renewed + outlives)
        {
            life.renewed = life.renewed.max(sent);
        }
    }

    /// The renewal that was sent then was answered.
    pub(super) fn on_renewed(&mut self, sent: Instant) {
        let life = self.life.get_or_insert(Life { seen: sent, renewed: sent });
        *life = Life { seen: life.seen.max(sent), renewed: life.renewed.max(sent) };
    }

    /// The provider reports how long the machine lived.
    pub(super) fn on_ended(&mut self, lived: Duration) {
        self.lived = Some(lived);
    }

    /// For how long the machine has been paid for. It is paid for until the end that its provider
    /// reports; without one, until the end of a lease that nobody has renewed; never beyond `now`,
    /// and never less than until the last sign of its life.
    pub(super) fn time(&self, now: Instant, outlives: Option<Duration>) -> Duration {
        let until = |at: Instant| at.saturating_duration_since(self.since);
        let unrenewed = self.life.zip(outlives).map(|(life, outlives)| until(life.renewed) + outlives);
        let seen = self.life.map_or(Duration::ZERO, |life| until(life.seen));
        let end = self.lived.or(unrenewed).unwrap_or(Duration::MAX);
        end.max(seen).min(until(now))
    }

    /// What the machine has cost so far.
    pub(super) fn cost(&self, now: Instant, outlives: Option<Duration>) -> f64 {
        hours(self.time(now, outlives)) * self.usd_per_hour
    }
}

pub(super) fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3600.0
}
