//! The ends of machines that workers are notified of.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::event::DrainReason;
use crate::ids::NodeIndex;
use crate::pool::fleet::notices::Notice;

/// The ends of machines that workers are notified of.
#[derive(Debug, Default)]
pub(crate) struct MachineEnds {
    pub(super) nodes: BTreeMap<NodeIndex, Notice>,
    /// When the whole pool ends because of its budget.
    pub(super) budget: Option<Instant>,
}

impl MachineEnds {
    /// Forgets the notice of a node that has another machine or no machine.
    pub(crate) fn forget(&mut self, node: NodeIndex) {
        self.nodes.remove(&node);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.budget.is_none()
    }

    /// The nearest end that concerns a node; in a joined world the end of any node.
    pub(super) fn of(&self, node: NodeIndex, joined: bool) -> Option<(&'static str, Instant, &str)> {
        let concerns = self.nodes.iter().filter(|(of, _)| joined || **of == node);
        let ends =
            concerns.map(|(_, notice)| (kind(notice.reason), notice.at, notice.words.as_deref().unwrap_or_default()));
        ends.chain(self.budget.map(|at| ("budget", at, ""))).min_by_key(|(_, at, _)| *at)
    }
}

/// The name of the reason in the protocol.
fn kind(reason: DrainReason) -> &'static str {
    match reason {
        DrainReason::Preempted => "preempted",
        DrainReason::Resized | DrainReason::Idle | DrainReason::Expired => "expired",
    }
}
