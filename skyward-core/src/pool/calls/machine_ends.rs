//! The ends of machines that workers are notified of.

use std::sync::Arc;
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

/// An end that workers are notified of.
#[derive(Debug, Clone)]
pub(super) struct End {
    /// The name of the reason in the protocol.
    pub(super) kind: &'static str,
    pub(super) at: Instant,
    /// The provider's words; empty if there are none.
    pub(super) words: Arc<str>,
}

impl State {
    /// The end of a node's machine, if its workers are notified of it.
    pub(super) fn announced(&self, node: NodeIndex) -> Option<&Notice> {
        self.machine_ends.notices.announced(&self.nodes.get(node.0 as usize)?.machine.id)
    }

    /// The nearest end that concerns a node; in a joined world the end of any node.
    pub(super) fn nearest_end(&self, node: NodeIndex) -> Option<End> {
        if self.scheduler.is_joined() {
            return self.nearest_of(self.machine_ends.notices.all_announced());
        }
        self.nearest_of(self.announced(node).into_iter())
    }

    /// The nearest end that concerns each node.
    pub(super) fn nearest_ends(&self) -> Vec<Option<End>> {
        let nodes = self.rows().map(|(node, _)| node);
        match self.scheduler.is_joined() {
            true => vec![self.nearest_end(NodeIndex(0)); nodes.count()],
            false => nodes.map(|node| self.nearest_end(node)).collect(),
        }
    }

    fn nearest_of<'n>(&self, notices: impl Iterator<Item = &'n Notice>) -> Option<End> {
        let ends = notices.map(|notice| End {
            kind: kind(notice.reason),
            at: notice.at,
            words: notice.words.as_deref().unwrap_or_default().into(),
        });
        let budget = self.machine_ends.budget.map(|at| End { kind: "budget", at, words: "".into() });
        ends.chain(budget).min_by_key(|end| end.at)
    }
}

/// The name of the reason in the protocol.
fn kind(reason: DrainReason) -> &'static str {
    match reason {
        DrainReason::Preempted => "preempted",
        DrainReason::Resized | DrainReason::Idle | DrainReason::Expired => "expired",
    }
}
