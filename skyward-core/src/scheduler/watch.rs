//! The progress of a running task or gang.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::timers::Timer;
use crate::ids::Rank;

/// The progress of a running task, or of a running gang as one.
#[derive(Debug)]
pub(super) struct Watch {
    /// The time of the last sign of any rank.
    pub(super) last: Instant,
    /// The time of the last sign before the stall that was reported last.
    pub(super) reported: Option<Instant>,
    /// When the ranks were asked for their stacks, and why.
    pub(super) asked: Option<(Instant, Purpose)>,
    /// The answers of ranks whose workers have their task.
    pub(super) answers: BTreeMap<Rank, String>,
    pub(super) timer: Option<(Instant, Timer)>,
}

/// Why the ranks are asked for their stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To report the stacks. The gang goes on.
    Report,
    /// To end the gang with an error that holds the stacks.
    End,
}

impl Watch {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, reported: None, asked: None, answers: BTreeMap::new(), timer: None }
    }

    /// A rank's worker has answered or is lost.
    pub(super) fn leave(&mut self, rank: Rank) {
        self.answers.remove(&rank);
    }

    /// What is due now, or else the time until the next look. `report` and `end` are the times
    /// without progress after which a gang is reported and ended.
    pub(super) fn due(&self, now: Instant, report: Duration, end: Option<Duration>) -> Result<Purpose, Duration> {
        let silent = now.saturating_duration_since(self.last);
        let end = end.map(|end| end.saturating_sub(silent));
        let report = match self.reported == Some(self.last) {
            false => report.saturating_sub(silent),
            // The next look sees any sign that comes before it, and the time since that sign is
            // then shorter than `report`.
            true => report,
        };
        match end {
            Some(Duration::ZERO) => Ok(Purpose::End),
            _ if report.is_zero() => Ok(Purpose::Report),
            end => Err(end.map_or(report, |end| end.min(report))),
        }
    }
}
