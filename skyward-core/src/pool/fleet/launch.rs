//! `Launch`: the numbers that identify one launch of a machine for a node.

use crate::ids::{Attempt, LaunchId, MachineNumber, NodeIndex, PoolId};

/// One launch of a machine for a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// The index of the node in the pool, for events.
    pub(crate) node: NodeIndex,
    /// The number by which the provider knows the machine. In a partial pool that starts with fewer
    /// nodes than it wants, the number can differ from the index of the node.
    pub(crate) machine: MachineNumber,
    pub(crate) attempt: Attempt,
}

impl Launch {
    pub(crate) fn id(&self, pool: &PoolId) -> LaunchId {
        LaunchId::of(pool, self.machine, self.attempt)
    }
}
