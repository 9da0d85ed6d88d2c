//! Converts between ranks and workers of nodes. No other place computes this.

use std::ops::Range;

use crate::ids::{NodeIndex, Rank};

/// The layout of ranks: all nodes have the same number of workers, and ranks count the workers node
/// by node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    workers_per_node: u32,
}

impl Layout {
    pub(crate) const fn new(workers_per_node: u32) -> Self {
        Self { workers_per_node }
    }

    /// The number of workers of a node.
    pub(crate) fn workers_per_node(self) -> u32 {
        self.workers_per_node
    }

    /// The number of workers of this many nodes.
    pub(crate) fn workers(self, nodes: u32) -> u32 {
        nodes * self.workers_per_node
    }

    /// The ranks of this many nodes.
    pub(crate) fn ranks(self, nodes: u32) -> impl Iterator<Item = Rank> {
        (0..self.workers(nodes)).map(Rank)
    }

    /// The rank of a worker, from its number on its node.
    pub(crate) fn rank(self, node: NodeIndex, worker: u32) -> Rank {
        Rank(node.0 * self.workers_per_node + worker)
    }

    /// The node of a rank; the head if nodes have no workers.
    pub(crate) fn node(self, rank: Rank) -> NodeIndex {
        NodeIndex(rank.0 / self.workers_per_node.max(1))
    }

    /// The number of a rank on its node.
    pub(crate) fn worker(self, rank: Rank) -> u32 {
        rank.0 % self.workers_per_node.max(1)
    }

    /// The ranks of a node.
    pub(crate) fn ranks_of(self, node: NodeIndex) -> impl Iterator<Item = Rank> {
        let first = node.0 * self.workers_per_node;
        (first..first + self.workers_per_node).map(Rank)
    }

    /// The rows of a node's workers in a table that has a row for each of the first `rows` ranks.
    pub(crate) fn rows_of(self, node: NodeIndex, rows: usize) -> Range<usize> {
        let first = (node.0 * self.workers_per_node) as usize;
        first.min(rows)..(first + self.workers_per_node as usize).min(rows)
    }

    /// The numbers of a node's workers.
    pub(crate) fn all_workers(self) -> Vec<u32> {
        (0..self.workers_per_node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_and_its_place_convert_into_each_other() {
        let layout = Layout::new(3);
        let places: Vec<(u32, u32)> = layout.ranks(2).map(|rank| (layout.node(rank).0, layout.worker(rank))).collect();
        assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        for rank in layout.ranks(4) {
            assert_eq!(layout.rank(layout.node(rank), layout.worker(rank)), rank);
            assert!(layout.ranks_of(layout.node(rank)).any(|of| of == rank));
        }
        assert_eq!(layout.rows_of(NodeIndex(1), 6), 3..6);
        assert_eq!(layout.rows_of(NodeIndex(1), 4), 3..4, "a table that ends within the node");
        assert_eq!(layout.rows_of(NodeIndex(2), 4), 4..4);
    }
}
