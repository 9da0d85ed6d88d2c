//! One machine of a fake provider: its cost, its end, and the report on its state at any time.

use std::time::Duration;

use tokio::time::Instant;

use super::faults::{Arrival, Forewarning};
use crate::provider::{Machine, MachineReport, MachineState, Place, Reason};
use crate::testkit::fake_worker::FakeNode;

#[derive(Debug)]
pub(super) struct Fake {
    pub(super) machine: Machine,
    /// How many machines its node had before.
    pub(super) nth: u32,
    pub(super) place: Place,
    pub(super) node: FakeNode,
    pub(super) usd_per_hour: f64,
    pub(super) launched: Instant,
    pub(super) arrival: Arrival,
    pub(super) forewarning: Option<Forewarning>,
    /// When the machine ends by itself, if its launch asked for that.
    pub(super) expires: Option<Instant>,
    pub(super) lingers: Duration,
    /// How long after its release its reports lack the reason.
    pub(super) explains_after: Duration,
    /// When the machine is released; it is gone when it has lingered after that.
    pub(super) gone: Option<Instant>,
    /// Why the machine is gone or ending.
    pub(super) reason: Option<Reason>,
}

impl Fake {
    /// The machine ends at `gone`, unless its end is already set.
    pub(super) fn end(&mut self, gone: Instant, reason: Reason) {
        if self.gone.is_none() {
            (self.gone, self.reason) = (Some(gone), Some(reason));
        }
    }

    /// When and why the machine ends by itself.
    pub(super) fn ends(&self) -> Vec<(Instant, Reason)> {
        let forewarned = self.forewarning.map(|warned| (self.launched + warned.after + warned.ends_in, warned.reason));
        forewarned.into_iter().chain(self.expires.map(|at| (at, Reason::Expired))).collect()
    }

    pub(super) fn cost(&self, now: Instant) -> f64 {
        let end = self.gone.map_or(now, |gone| gone.min(now));
        end.saturating_duration_since(self.launched).as_secs_f64() / 3600.0 * self.usd_per_hour
    }

    pub(super) fn report(&self, now: Instant) -> MachineReport {
        let Arrival { queued, starting } = self.arrival;
        let there = self.launched + queued;
        let state = match self.gone {
            Some(gone) if gone + self.lingers <= now => MachineState::Gone,
            Some(gone) if gone <= now => MachineState::Released,
            Some(_) => MachineState::Ending,
            None if now < there => MachineState::Queued,
            None if now < there + starting => MachineState::Starting,
            None => MachineState::Running,
        };
        let report = MachineReport::new(state);
        match (state, self.reason) {
            (MachineState::Running, _) => {
                let report = report.at(self.place.clone());
                match self.forewarning.filter(|warned| self.launched + warned.after <= now) {
                    Some(warned) => {
                        let end = self.launched + warned.after + warned.ends_in;
                        report.because(warned.reason).ends_in(end.saturating_duration_since(now))
                    }
                    None => report,
                }
            }
            (MachineState::Queued, _) => report.saying("PENDING (Resources)"),
            (_, Some(reason)) if !self.gone.is_some_and(|gone| gone <= now && now < gone + self.explains_after) => {
                report.because(reason)
            }
            _ => report,
        }
    }

    /// How long the machine lived, if it is released.
    pub(super) fn lived(&self, now: Instant) -> Option<Duration> {
        let gone = self.gone.filter(|gone| *gone <= now)?;
        Some(gone.saturating_duration_since(self.launched))
    }

    pub(super) fn is_gone(&self, now: Instant) -> bool {
        self.gone.is_some_and(|gone| gone <= now)
    }
}
