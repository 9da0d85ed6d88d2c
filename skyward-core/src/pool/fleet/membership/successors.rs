//! Successors: machines that are made ready to replace machines that will end.

use super::{Free, MAX_FAILURES};
use crate::ids::{MachineNumber, NodeIndex};
use crate::pool::fleet::Fleet;
use crate::pool::fleet::step::{Step, Taken};
use crate::pool::fleet::table::Membership;

/// A successor: a machine that will replace a machine that will end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool::fleet) struct Successor {
    pub(super) machine: MachineNumber,
    pub(super) ready: bool,
    pub(super) place: Legacy,
}

/// The state of the node whose machine will end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Legacy {
    /// The node finishes its work.
    Draining,
    /// The node has finished its work.
    Drained,
    /// The workers of the node are being stopped.
    Stopping,
    /// The workers of the node have stopped.
    Stopped,
    /// The node is lost.
    Lost,
}

impl Fleet {
    /// The machines of these nodes will end: a successor is made ready for each of them.
    pub(crate) fn on_ending(&mut self, nodes: &[NodeIndex]) -> Vec<Step> {
        let (mut steps, mut free) = (Vec::new(), self.free(0));
        for node in nodes.iter().copied() {
            let is_member = self.table.membership(node) == Some(Membership::Member);
            if self.ends || !is_member || self.successors.contains_key(&node) {
                continue;
            }
            self.unheired.remove(&node);
            if !self.joined {
                // Nodes of a world are not cordoned one by one: the whole world is held.
                steps.push(Step::Cordon { node });
            }
            steps.push(self.succeed(node, Legacy::Draining, &mut free));
        }
        if !steps.is_empty() {
            steps.extend(self.plan());
        }
        steps
    }

    /// A node is lost. If a successor is already being made ready, it takes the place as soon as it
    /// is ready. Otherwise the node gets another machine, unless it leaves (`stays`).
    pub(crate) fn on_lost(&mut self, node: NodeIndex, stays: bool) -> Vec<Step> {
        self.unheired.remove(&node);
        match self.successors.get_mut(&node) {
            Some(successor) => {
                successor.place = Legacy::Lost;
                self.hand_over(node)
            }
            None if stays => self.replace(node),
            None => Vec::new(),
        }
    }

    /// The node whose place the machine will take, if it is a successor.
    pub(crate) fn inherits(&self, machine: MachineNumber) -> Option<NodeIndex> {
        self.successors.iter().find(|(_, successor)| successor.machine == machine).map(|(node, _)| *node)
    }

    /// Whether a successor is being made ready for this node.
    pub(crate) fn has_successor(&self, node: NodeIndex) -> bool {
        self.successors.contains_key(&node)
    }

    /// Gives the successor of a node the next free machine number, and returns the step that makes
    /// it ready.
    fn succeed(&mut self, node: NodeIndex, place: Legacy, free: &mut Free) -> Step {
        let machine = free.take();
        self.successors.insert(node, Successor { machine, ready: false, place });
        Step::Succeed { node, machine }
    }

    /// The next steps for a node whose machine will end.
    pub(super) fn hand_over(&mut self, node: NodeIndex) -> Vec<Step> {
        let Some(successor) = self.successors.get_mut(&node).filter(|successor| successor.ready) else {
            return Vec::new();
        };
        match successor.place {
            // A world is stopped as a whole, when it is idle.
            Legacy::Drained if !self.joined => {
                successor.place = Legacy::Stopping;
                vec![Step::Vacate { node }]
            }
            Legacy::Stopped | Legacy::Lost => {
                let mut steps: Vec<Step> = self.take(node).into_iter().map(taken).collect();
                steps.extend(self.plan());
                steps
            }
            Legacy::Draining | Legacy::Drained | Legacy::Stopping => Vec::new(),
        }
    }

    /// Gives the place of a node to its successor.
    pub(super) fn take(&mut self, node: NodeIndex) -> Option<Taken> {
        let successor = self.successors.remove(&node)?;
        let left = self.table.replace_machine(node, successor.machine)?;
        self.dismissing.insert(left);
        self.unheired.remove(&node);
        Some((node, successor.machine, left))
    }

    /// The successor of a node could not be made ready.
    pub(super) fn on_heir_failed(&mut self, node: NodeIndex) -> Vec<Step> {
        let Some(successor) = self.successors.remove(&node) else { return Vec::new() };
        let mut steps = vec![self.forget(node, successor.machine)];
        let failures = self.unheired.entry(node).or_default();
        *failures += 1;
        let given_up = *failures >= MAX_FAILURES;
        match successor.place {
            Legacy::Lost => steps.extend(self.replace(node)),
            // The node takes tasks again until another successor is tried.
            Legacy::Draining | Legacy::Drained if given_up => steps.push(Step::Uncordon { node }),
            Legacy::Stopping | Legacy::Stopped if given_up => {
                steps.extend(self.revive(node));
                steps.push(Step::Uncordon { node });
            }
            place => {
                let mut free = self.free(0);
                steps.push(self.succeed(node, place, &mut free));
            }
        }
        steps.extend(self.plan());
        steps
    }

    /// Gives up the successors of nodes that leave, from this index on.
    pub(super) fn disinherit(&mut self, from: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        for (node, successor) in self.successors.split_off(&NodeIndex(from)) {
            steps.push(self.forget(node, successor.machine));
            // Tasks that were submitted for the node by name must still run.
            match successor.place {
                Legacy::Draining | Legacy::Drained => {}
                Legacy::Stopping | Legacy::Stopped => steps.extend(self.revive(node)),
                Legacy::Lost => steps.extend(self.replace(node)),
            }
        }
        steps
    }
}

fn taken((node, machine, left): Taken) -> Step {
    Step::Take { node, machine, left }
}
