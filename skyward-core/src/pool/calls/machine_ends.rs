//! The ends of machines that workers are notified of.

use std::time::Instant;

use super::state::State;
use crate::event::DrainReason;
use crate::ids::NodeIndex;
use crate::pool::fleet::notices::{Notice, Notices};

/// What is known about the ends of the machines.
#[derive(Debug, Default)]
pub(crate) struct MachineEnds {
    /// The notices of machines that will end. Only the driver changes them.
    pub(crate) notices: Notices,
    /// When the whole pool ends because of its budget.
    pub(super) budget: Option<Instant>,
}

impl State {
    /// The end of a node's machine, if its workers are notified of it.
    pub(super) fn announced(&self, node: NodeIndex) -> Option<&Notice> {
        self.machine_ends.notices.announced(&self.nodes.get(node.0 as usize)?.machine.id)
    }

    /// The nearest end that concerns a node, with the name of its reason in the protocol and the
    /// provider's words; in a joined world the end of any node.
    pub(super) fn nearest_end(&self, node: NodeIndex) -> Option<(&'static str, Instant, &str)> {
        let joined = self.scheduler.is_joined();
        let all = joined.then(|| self.machine_ends.notices.all_announced()).into_iter().flatten();
        let ends = self.announced(node).into_iter().chain(all);
        let ends = ends.map(|notice| (kind(notice.reason), notice.at, notice.words.as_deref().unwrap_or_default()));
        ends.chain(self.machine_ends.budget.map(|at| ("budget", at, ""))).min_by_key(|(_, at, _)| *at)
    }
}

/// The name of the reason in the protocol.
fn kind(reason: DrainReason) -> &'static str {
    match reason {
        DrainReason::Preempted => "preempted",
        DrainReason::Resized | DrainReason::Idle | DrainReason::Expired => "expired",
    }
}
