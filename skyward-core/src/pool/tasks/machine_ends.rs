//! The ends of machines that workers are notified of.

use std::sync::Arc;
use std::time::Instant;

use crate::event::DrainReason;
use crate::pool::fleet::notices::{Notice, Notices};

/// What is known about the ends of the machines.
#[derive(Debug, Default)]
pub(crate) struct MachineEnds {
    /// The notices of machines that will end. Only the driver changes them.
    pub(crate) notices: Notices,
    /// When the whole pool ends because of its budget.
    pub(super) budget: Option<Instant>,
    /// The end that the workers of a joined world were notified of last.
    pub(super) told: Option<AnnouncedEnd>,
}

/// An end that workers are notified of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AnnouncedEnd {
    /// The name of the reason in the protocol.
    pub(super) kind: &'static str,
    pub(super) at: Instant,
    /// The provider's words; empty if there are none.
    pub(super) words: Arc<str>,
}

impl MachineEnds {
    /// The nearer of the end of a machine and the end of the budget.
    pub(super) fn nearest(&self, notice: Option<&Notice>) -> Option<AnnouncedEnd> {
        let end = notice.map(|notice| (kind(notice.reason), notice.at, notice.words.as_deref().unwrap_or_default()));
        let budget = self.budget.map(|at| ("budget", at, ""));
        let nearest = end.into_iter().chain(budget).min_by_key(|(_, at, _)| *at);
        nearest.map(|(kind, at, words)| AnnouncedEnd { kind, at, words: words.into() })
    }
}

/// The name of the reason in the protocol.
fn kind(reason: DrainReason) -> &'static str {
    match reason {
        DrainReason::Preempted => "preempted",
        DrainReason::Resized | DrainReason::Idle | DrainReason::Expired => "expired",
    }
}
