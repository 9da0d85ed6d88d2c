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
}

/// An end that workers are notified of.
#[derive(Debug, Clone)]
pub(super) struct End {
    /// The name of the reason in the protocol.
    pub(super) kind: &'static str,
    pub(super) at: Instant,
    /// The provider's words; empty if there are none.
    pub(super) words: Arc<str>,
}

impl MachineEnds {
    /// The nearest of these ends of machines and the end of the budget.
    pub(super) fn nearest<'n>(&self, notices: impl Iterator<Item = &'n Notice>) -> Option<End> {
        let ends = notices.map(|notice| (kind(notice.reason), notice.at, notice.words.as_deref().unwrap_or_default()));
        let nearest = ends.chain(self.budget.map(|at| ("budget", at, ""))).min_by_key(|(_, at, _)| *at);
        nearest.map(|(kind, at, words)| End { kind, at, words: words.into() })
    }
}

/// The name of the reason in the protocol.
fn kind(reason: DrainReason) -> &'static str {
    match reason {
        DrainReason::Preempted => "preempted",
        DrainReason::Resized | DrainReason::Idle | DrainReason::Expired => "expired",
    }
}
