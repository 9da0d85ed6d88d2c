//! Which nodes take tasks. The owner of the nodes decides that, and the scheduler follows.

use std::collections::BTreeSet;

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
pub(super) enum Takes {
    Any,
    /// Only tasks that name the node.
    Own,
    None,
}

impl Eligible {
    pub(super) fn takes(&self, node: NodeIndex) -> Takes {
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
