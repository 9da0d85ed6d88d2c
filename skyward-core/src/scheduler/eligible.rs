//! Which nodes take tasks. The owner of the nodes decides that, and the scheduler follows.

use std::collections::BTreeSet;

use super::Scheduler;
use crate::ids::NodeIndex;

/// Which nodes take tasks, as the owner of the nodes decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Eligible {
    /// How many nodes take any task: the first ones. The nodes behind them drain, which means that
    /// they take only tasks that name them.
    pub active: u32,
    /// Nodes whose machines will end: they take no tasks, and tasks that name them wait for their
    /// next machines.
    pub cordoned: BTreeSet<NodeIndex>,
    /// Whether a joined world waits for a resize: no task and no gang starts, and those that are
    /// under way are finished.
    pub held: bool,
}

/// What tasks a node takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Any,
    /// Only tasks that name the node.
    Own,
    None,
}

impl Eligible {
    fn takes(&self, node: NodeIndex) -> Takes {
        match (self.is_draining(node), self.cordoned.contains(&node)) {
            (true, _) => Takes::Own,
            (false, true) => Takes::None,
            (false, false) => Takes::Any,
        }
    }

    /// Whether a node is draining, or has left: it takes only tasks that name it.
    pub(super) fn is_draining(&self, node: NodeIndex) -> bool {
        node.0 >= self.active
    }
}

impl Scheduler {
    /// Other nodes take tasks than before. [`Action::NodeDrained`](super::Action::NodeDrained)
    /// reports when a node that takes no more tasks has finished those that it has, and
    /// [`Action::WorldIdle`](super::Action::WorldIdle) when a held world has.
    pub fn follow(&mut self, eligible: Eligible) {
        if eligible == self.eligible {
            return;
        }
        let before = std::mem::replace(&mut self.eligible, eligible);
        for node in (0..self.nodes.len() as u32).map(NodeIndex) {
            if before.takes(node) != self.eligible.takes(node) {
                self.nodes[node.0 as usize].reported = false;
                self.departing.push(node);
                self.ranks_of(node).for_each(|rank| self.refresh(rank));
                self.look_on(node);
            }
        }
        if before.held != self.eligible.held {
            self.reported_idle = false;
            self.look_all();
        }
    }
}
