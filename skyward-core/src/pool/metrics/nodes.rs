//! The phases of the nodes, and the number of nodes in each.

use std::collections::BTreeMap;

use crate::ids::{MachineId, NodeIndex};

/// The phase of each node, and the number of nodes in each phase, so that an event in a pool of
/// thousands of nodes does not need a count of all nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    phases: BTreeMap<NodeIndex, Phase>,
    /// The machines of nodes that were replaced or have joined.
    machines: BTreeMap<NodeIndex, MachineId>,
    pub(super) counts: [usize; PHASES.len()],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Up,
    Lost,
    Ending,
}

impl Nodes {
    pub(super) fn set(&mut self, node: NodeIndex, phase: Phase) {
        if let Some(before) = self.phases.insert(node, phase) {
            self.counts[before as usize] -= 1;
        }
        self.counts[phase as usize] += 1;
    }

    /// Removes the node if it is in this phase.
    pub(super) fn remove(&mut self, node: NodeIndex, phase: Phase) {
        if self.phases.get(&node) == Some(&phase) {
            self.phases.remove(&node);
            self.counts[phase as usize] -= 1;
        }
    }

    /// A machine is launched. A node that is up keeps its machine until another one is ready.
    pub(super) fn on_launching(&mut self, node: NodeIndex) {
        if self.phases.get(&node) != Some(&Phase::Up) {
            self.set(node, Phase::Starting);
        }
    }

    /// A node takes tasks on this machine.
    pub(super) fn on_up(&mut self, node: NodeIndex, machine: &MachineId) {
        self.machines.insert(node, machine.clone());
        self.set(node, Phase::Up);
    }

    pub(super) fn on_lost(&mut self, node: NodeIndex) {
        self.machines.remove(&node);
        self.set(node, Phase::Lost);
    }

    /// A machine is gone. It may have been an earlier machine of a node that has another one.
    pub(super) fn on_gone(&mut self, node: NodeIndex, machine: &MachineId) {
        if self.machines.get(&node).is_none_or(|present| present == machine) {
            self.machines.remove(&node);
            self.remove(node, Phase::Ending);
        }
    }

    /// Changes many nodes at once.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut BTreeMap<NodeIndex, Phase>)) {
        change(&mut self.phases);
        self.counts = [0; PHASES.len()];
        self.phases.values().for_each(|phase| self.counts[*phase as usize] += 1);
        self.machines.retain(|node, _| self.phases.contains_key(node));
    }
}

/// The labels of the phases, in the order of [`Phase`].
pub(super) const PHASES: [&str; 4] = ["starting", "up", "lost", "ending"];
