//! Successors: machines that are made ready to replace machines that will end.

use super::{Free, MAX_FAILURES};
use crate::ids::{MachineNumber, NodeIndex};
use crate::pool::fleet::Fleet;
use crate::pool::fleet::directive::{Directive, Taken};
use crate::pool::fleet::table::Membership;

/// A successor: a machine that will replace a machine that will end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool::fleet) struct Successor {
    pub(super) machine: MachineNumber,
    pub(super) ready: bool,
    pub(in crate::pool::fleet) state: HandOver,
}

/// How far a node whose machine will end is on its way to the successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool::fleet) enum HandOver {
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
    pub(crate) fn on_ending(&mut self, nodes: &[NodeIndex]) -> Vec<Directive> {
        let (mut directives, mut free) = (Vec::new(), self.free(0));
        for node in nodes.iter().copied() {
            let is_member = self.table.membership(node) == Some(Membership::Member);
            if self.ends || !is_member || self.successors.contains_key(&node) {
                continue;
            }
            self.failed_successors.remove(&node);
            directives.push(self.succeed(node, HandOver::Draining, &mut free));
        }
        if !directives.is_empty() {
            directives.extend(self.plan());
        }
        directives
    }

    /// The successor of a lost node takes its place as soon as it is ready. Without one, the node
    /// gets another machine, unless it leaves (`stays`).
    pub(in crate::pool::fleet) fn succeed_lost(&mut self, node: NodeIndex, stays: bool) -> Vec<Directive> {
        self.failed_successors.remove(&node);
        match self.successors.get_mut(&node) {
            Some(successor) => {
                successor.state = HandOver::Lost;
                self.hand_over(node)
            }
            None if stays => self.replace(node),
            None => Vec::new(),
        }
    }

    /// The node whose place the machine will take, if it is a successor.
    pub(crate) fn succeeds(&self, machine: MachineNumber) -> Option<NodeIndex> {
        self.successors.iter().find(|(_, successor)| successor.machine == machine).map(|(node, _)| *node)
    }

    /// Whether a successor is being made ready for this node.
    pub(crate) fn has_successor(&self, node: NodeIndex) -> bool {
        self.successors.contains_key(&node)
    }

    /// Gives the successor of a node the next free machine number, and returns the directive that
    /// makes it ready.
    fn succeed(&mut self, node: NodeIndex, state: HandOver, free: &mut Free) -> Directive {
        let machine = free.take();
        self.successors.insert(node, Successor { machine, ready: false, state });
        Directive::Succeed { node, machine }
    }

    /// The next directives for a node whose machine will end.
    pub(super) fn hand_over(&mut self, node: NodeIndex) -> Vec<Directive> {
        let Some(successor) = self.successors.get_mut(&node).filter(|successor| successor.ready) else {
            return Vec::new();
        };
        match successor.state {
            // A world is stopped as a whole, when it is idle.
            HandOver::Drained if !self.joined => {
                successor.state = HandOver::Stopping;
                vec![Directive::Vacate { node }]
            }
            HandOver::Stopped | HandOver::Lost => {
                let mut directives: Vec<Directive> = self.take(node).into_iter().map(taken).collect();
                directives.extend(self.plan());
                directives
            }
            HandOver::Draining | HandOver::Drained | HandOver::Stopping => Vec::new(),
        }
    }

    /// Gives the place of a node to its successor.
    pub(super) fn take(&mut self, node: NodeIndex) -> Option<Taken> {
        let successor = self.successors.remove(&node)?;
        let left = self.table.replace_machine(node, successor.machine)?;
        self.dismissing.insert(left);
        self.failed_successors.remove(&node);
        Some((node, successor.machine, left))
    }

    /// The successor of a node could not be made ready.
    pub(super) fn on_successor_failed(&mut self, node: NodeIndex) -> Vec<Directive> {
        let Some(successor) = self.successors.remove(&node) else { return Vec::new() };
        let mut directives = vec![self.forget(node, successor.machine)];
        let failures = self.failed_successors.entry(node).or_default();
        *failures += 1;
        let given_up = *failures >= MAX_FAILURES;
        match successor.state {
            HandOver::Lost => directives.extend(self.replace(node)),
            // The node takes tasks again until another successor is tried.
            HandOver::Draining | HandOver::Drained if given_up => {}
            HandOver::Stopping | HandOver::Stopped if given_up => directives.extend(self.revive(node)),
            state => {
                let mut free = self.free(0);
                directives.push(self.succeed(node, state, &mut free));
            }
        }
        directives.extend(self.plan());
        directives
    }

    /// Gives up the successors of nodes that leave, from this index on.
    pub(super) fn drop_successors(&mut self, from: u32) -> Vec<Directive> {
        let mut directives = Vec::new();
        for (node, successor) in self.successors.split_off(&NodeIndex(from)) {
            directives.push(self.forget(node, successor.machine));
            // Tasks that were submitted for the node by name must still run.
            match successor.state {
                HandOver::Draining | HandOver::Drained => {}
                HandOver::Stopping | HandOver::Stopped => directives.extend(self.revive(node)),
                HandOver::Lost => directives.extend(self.replace(node)),
            }
        }
        directives
    }
}

fn taken((node, machine, left): Taken) -> Directive {
    Directive::Take { node, machine, left }
}
