//! The workers of a pool, one for each rank.

use std::collections::BTreeMap;

use super::worker::WorkerRow;
use crate::error::WorkerExit;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::layout::Layout;

/// What the client knows about the worker of each rank.
#[derive(Default)]
pub(crate) struct WorkerRows {
    rows: Vec<WorkerRow>,
    /// How many bytes the workers of ranks that have left had written, and in which generation.
    written: BTreeMap<Rank, (Generation, [u64; 2])>,
}

impl WorkerRows {
    /// All ranks, in order.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.rows.len() as u32).map(Rank)
    }

    /// The row of a rank; `None` if the pool has no such rank.
    pub(crate) fn get(&self, rank: Rank) -> Option<&WorkerRow> {
        self.rows.get(rank.0 as usize)
    }

    /// The row of a rank; `None` if the pool has no such rank.
    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut WorkerRow> {
        self.rows.get_mut(rank.0 as usize)
    }

    /// All ranks with their rows, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Rank, &WorkerRow)> {
        self.ranks().zip(&self.rows)
    }

    /// The workers of a node with their rows, in order.
    pub(crate) fn of(&mut self, node: NodeIndex, layout: Layout) -> impl Iterator<Item = (Rank, &mut WorkerRow)> {
        let rows = layout.rows_of(node, self.rows.len());
        layout.ranks_of(node).zip(&mut self.rows[rows])
    }

    /// Adds the rows of as many further ranks.
    pub(crate) fn add(&mut self, ranks: u32, max_frame_bytes: usize) {
        for _ in 0..ranks {
            let row = match self.written.get(&Rank(self.rows.len() as u32)) {
                // An earlier worker of this rank has written output, in the same life of the pool.
                Some((generation, written)) => WorkerRow::rejoined(*generation, *written, max_frame_bytes),
                None => WorkerRow::new(Generation(0), max_frame_bytes),
            };
            self.rows.push(row);
        }
    }

    /// The worker of a rank has left with its node: messages that still arrive from it are ignored.
    pub(crate) fn leave(&mut self, rank: Rank) {
        if let Some(row) = self.rows.get_mut(rank.0 as usize) {
            row.leave(WorkerExit::Left);
            self.written.insert(rank, (row.generation(), row.output.written()));
        }
    }

    /// Keeps the rows of the first ranks.
    pub(crate) fn truncate(&mut self, ranks: u32) {
        self.rows.truncate(ranks as usize);
    }
}
