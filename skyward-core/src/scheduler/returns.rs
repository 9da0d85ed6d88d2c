//! How many tasks have returned or committed a checkpoint: whoever counts losses in a row sees from it
//! that they are none.

use crate::ids::NodeIndex;

/// How many tasks have returned in a pool, and from each of its nodes. A checkpoint counts as well: its
/// task goes on from there.
#[derive(Debug, Default)]
pub struct Returns {
    all: u64,
    nodes: Vec<u64>,
}

impl Returns {
    /// A worker of this node has returned a task, or has a part in a checkpoint.
    pub fn add(&mut self, node: NodeIndex) {
        let index = node.0 as usize;
        if self.nodes.len() <= index {
            self.nodes.resize(index + 1, 0);
        }
        self.nodes[index] += 1;
        self.all += 1;
    }

    /// How many tasks have returned in the pool.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// How many tasks the workers of a node have returned, on all machines that the node has had.
    pub fn of(&self, node: NodeIndex) -> u64 {
        self.nodes.get(node.0 as usize).copied().unwrap_or_default()
    }
}
