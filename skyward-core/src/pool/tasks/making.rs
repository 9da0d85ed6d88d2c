//! The machines that are being made ready, and what each of them waits for.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::timing::QUEUED_CHECK;
use crate::compute::WaitingFor;
use crate::error::Error;
use crate::ids::{MachineNumber, NodeIndex};

/// The machines that are being made ready.
#[derive(Debug, Default)]
pub(crate) struct Making {
    pub(super) machines: BTreeMap<MachineNumber, Made>,
}

/// The progress of a machine that is being made ready.
#[derive(Debug)]
pub(super) struct Made {
    /// The index of the node, for events and status.
    pub(super) node: NodeIndex,
    pub(super) step: Option<&'static str>,
    /// The provider's last report on the machine, while the machine was not running.
    pub(super) report: Option<String>,
    /// How long the machine was queued before, and since when it has been queued now.
    pub(super) queued: (Duration, Option<Instant>),
    /// The last error of the step, which is tried again.
    pub(super) trouble: Option<Error>,
}

impl Making {
    /// Adds to the error of machines that were not ready in time what each of them waited for, and
    /// the last error of that. `only` selects one machine.
    pub(crate) fn explain(&self, error: Error, only: Option<MachineNumber>) -> Error {
        let late = self.made(only);
        let mut shown: Vec<String> = late.iter().take(MOST_LATE).map(|made| made.to_string()).collect();
        if late.len() > MOST_LATE {
            shown.push(format!("and {} more", late.len() - MOST_LATE));
        }
        let error = if shown.is_empty() { error } else { error.with_context("waited for", shown.join("; ")) };
        error.caused_by(late.iter().find_map(|made| made.trouble.clone()))
    }

    /// The machines that are being made ready, or only the machine that `only` names.
    fn made(&self, only: Option<MachineNumber>) -> Vec<&Made> {
        match only {
            Some(machine) => self.machines.get(&machine).into_iter().collect(),
            None => self.machines.values().collect(),
        }
    }

    /// The deadline of a wait that began at `began` and may take `limit`. The time for which a
    /// machine is queued does not count; it has a limit of its own. `only` selects one machine.
    pub(crate) fn deadline(&self, began: Instant, limit: Duration, only: Option<MachineNumber>) -> Instant {
        let now = Instant::now();
        let made = self.made(only);
        let queued = made.iter().map(|made| made.queued(now)).max().unwrap_or_default();
        let deadline = began + limit + queued;
        // A machine that is queued now will have been queued for longer.
        if made.iter().any(|made| made.queued.1.is_some()) { deadline.max(now + QUEUED_CHECK) } else { deadline }
    }
}

impl Made {
    pub(super) fn new(node: NodeIndex, step: Option<&'static str>) -> Self {
        Self { node, step, report: None, queued: (Duration::ZERO, None), trouble: None }
    }

    /// How long the machine has been queued so far.
    pub(super) fn queued(&self, now: Instant) -> Duration {
        let (before, since) = self.queued;
        before + since.map_or(Duration::ZERO, |since| now - since)
    }

    pub(super) fn waiting_for(&self) -> WaitingFor {
        match self.step {
            None => WaitingFor::Machine { node: self.node, report: self.report.clone() },
            Some(step) => WaitingFor::Environment { node: self.node, step },
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.trouble {
            Some(trouble) => write!(f, "{}; the last try failed: {}", self.waiting_for(), trouble.summary()),
            None => self.waiting_for().fmt(f),
        }
    }
}

/// The most machines that an error names.
const MOST_LATE: usize = 8;
