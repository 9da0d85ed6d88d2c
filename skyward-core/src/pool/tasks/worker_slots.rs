//! The workers of a pool, one for each rank.

use std::collections::BTreeMap;

use super::worker::WorkerSlot;
use crate::error::WorkerExit;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::layout::Layout;

/// What the client knows about the worker of each rank.
#[derive(Default)]
pub(crate) struct WorkerSlots {
    slots: Vec<WorkerSlot>,
    /// How many bytes the workers of ranks that have left had written, and in which generation.
    written: BTreeMap<Rank, (Generation, [u64; 2])>,
}

impl WorkerSlots {
    /// All ranks, in order.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.slots.len() as u32).map(Rank)
    }

    /// The slot of a rank; `None` if the pool has no such rank.
    pub(crate) fn get(&self, rank: Rank) -> Option<&WorkerSlot> {
        self.slots.get(rank.0 as usize)
    }

    /// The slot of a rank; `None` if the pool has no such rank.
    pub(crate) fn get_mut(&mut self, rank: Rank) -> Option<&mut WorkerSlot> {
        self.slots.get_mut(rank.0 as usize)
    }

    /// All ranks with their slots, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Rank, &WorkerSlot)> {
        self.ranks().zip(&self.slots)
    }

    /// The workers of a node with their slots, in order.
    pub(crate) fn of(&mut self, node: NodeIndex, layout: Layout) -> impl Iterator<Item = (Rank, &mut WorkerSlot)> {
        let rows = layout.rows_of(node, self.slots.len());
        layout.ranks_of(node).zip(&mut self.slots[rows])
    }

    /// Adds the slots of as many further ranks.
    pub(crate) fn add(&mut self, ranks: u32, max_frame_bytes: usize) {
        for _ in 0..ranks {
            let slot = match self.written.get(&Rank(self.slots.len() as u32)) {
                // An earlier worker of this rank has written output, in the same life of the pool.
                Some((generation, written)) => WorkerSlot::rejoined(*generation, *written, max_frame_bytes),
                None => WorkerSlot::new(Generation(0), max_frame_bytes),
            };
            self.slots.push(slot);
        }
    }

    /// The worker of a rank has left with its node: messages that still arrive from it are ignored.
    pub(crate) fn leave(&mut self, rank: Rank) {
        if let Some(slot) = self.slots.get_mut(rank.0 as usize) {
            slot.leave(WorkerExit::Left);
            self.written.insert(rank, (slot.generation(), slot.output.written()));
        }
    }

    /// Keeps the slots of the first ranks.
    pub(crate) fn truncate(&mut self, ranks: u32) {
        self.slots.truncate(ranks as usize);
    }
}
