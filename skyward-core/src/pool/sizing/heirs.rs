//! Machines that take the places of those that will end.

use super::{MAX_FAILURES, Phase, SizeStep, Sizing};
use crate::ids::{MachineNumber, NodeIndex};

/// A machine that takes the place of one that will end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heir {
    pub(super) machine: MachineNumber,
    pub(super) ready: bool,
    pub(super) place: Legacy,
}

/// How far the machine is that will end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Legacy {
    /// It finishes what it has.
    Draining,
    /// It has nothing more to do.
    Drained,
    /// Its workers are being stopped.
    Stopping,
    /// Its workers are stopped.
    Stopped,
    /// It is lost.
    Lost,
}

/// A node, the machine that it gets, and the one that it had.
pub(crate) type Taken = (NodeIndex, MachineNumber, MachineNumber);

impl Sizing {
    /// A node's machine will end: another one is made ready to take its place.
    pub(crate) fn on_ending(&mut self, node: NodeIndex) -> Vec<SizeStep> {
        let is_member = self.phase(node) == Some(Phase::Member);
        if !is_member || self.heirs.contains_key(&node) {
            return Vec::new();
        }
        self.unheired.remove(&node);
        // A world is held as a whole.
        let mut steps = if self.joined { Vec::new() } else { vec![SizeStep::Cordon { node }] };
        steps.push(self.succeed(node, Legacy::Draining));
        steps.extend(self.plan());
        steps
    }

    /// A node is lost. If another machine is on its way to its place already, it takes it when it is ready.
    pub(crate) fn on_lost(&mut self, node: NodeIndex) -> Vec<SizeStep> {
        self.unheired.remove(&node);
        let Some(heir) = self.heirs.get_mut(&node) else { return Vec::new() };
        heir.place = Legacy::Lost;
        self.hand_over(node)
    }

    /// The node whose place the machine is to take, if that is what it is for.
    pub(crate) fn inherits(&self, machine: MachineNumber) -> Option<NodeIndex> {
        self.heirs.iter().find(|(_, heir)| heir.machine == machine).map(|(node, _)| *node)
    }

    /// Whether a machine is on its way to the place of this node's.
    pub(crate) fn has_heir(&self, node: NodeIndex) -> bool {
        self.heirs.contains_key(&node)
    }

    /// The number of a further machine for the place of a node's.
    fn succeed(&mut self, node: NodeIndex, place: Legacy) -> SizeStep {
        let machine = self.free();
        self.heirs.insert(node, Heir { machine, ready: false, place });
        SizeStep::Succeed { node, machine }
    }

    /// What comes next for a node whose machine will end.
    pub(super) fn hand_over(&mut self, node: NodeIndex) -> Vec<SizeStep> {
        let Some(heir) = self.heirs.get_mut(&node).filter(|heir| heir.ready) else { return Vec::new() };
        match heir.place {
            // A world is stopped as a whole, when it is idle.
            Legacy::Drained if !self.joined => {
                heir.place = Legacy::Stopping;
                vec![SizeStep::Vacate { node }]
            }
            Legacy::Stopped | Legacy::Lost => {
                let mut steps: Vec<SizeStep> = self.take(node).into_iter().map(taken).collect();
                steps.extend(self.plan());
                steps
            }
            Legacy::Draining | Legacy::Drained | Legacy::Stopping => Vec::new(),
        }
    }

    /// The heir of a node takes its place.
    pub(super) fn take(&mut self, node: NodeIndex) -> Option<Taken> {
        let heir = self.heirs.remove(&node)?;
        let row = self.row(node)?;
        let left = std::mem::replace(&mut row.machine, heir.machine);
        self.leaving.insert(left);
        self.unheired.remove(&node);
        Some((node, heir.machine, left))
    }

    /// No machine could be made ready for the place of a node's.
    pub(super) fn on_heir_failed(&mut self, node: NodeIndex) -> Vec<SizeStep> {
        let Some(heir) = self.heirs.remove(&node) else { return Vec::new() };
        self.leaving.insert(heir.machine);
        let mut steps = vec![SizeStep::Forget { machine: heir.machine }];
        let failures = self.unheired.entry(node).or_default();
        *failures += 1;
        let given_up = *failures >= MAX_FAILURES;
        match heir.place {
            Legacy::Lost => steps.push(SizeStep::Replace { node }),
            // It takes tasks again, until another machine is tried.
            Legacy::Draining | Legacy::Drained if given_up => steps.push(SizeStep::Uncordon { node }),
            Legacy::Stopping | Legacy::Stopped if given_up => {
                steps.extend([SizeStep::Revive { node }, SizeStep::Uncordon { node }]);
            }
            place => steps.push(self.succeed(node, place)),
        }
        steps.extend(self.plan());
        steps
    }

    /// No machine takes the place of nodes that leave.
    pub(super) fn disinherit(&mut self, from: u32) -> Vec<SizeStep> {
        let mut steps = Vec::new();
        for (node, heir) in self.heirs.split_off(&NodeIndex(from)) {
            self.leaving.insert(heir.machine);
            steps.push(SizeStep::Forget { machine: heir.machine });
            // What was submitted for it by name is still to be done.
            match heir.place {
                Legacy::Draining | Legacy::Drained => {}
                Legacy::Stopping | Legacy::Stopped => steps.push(SizeStep::Revive { node }),
                Legacy::Lost => steps.push(SizeStep::Replace { node }),
            }
        }
        steps
    }
}

fn taken((node, machine, left): Taken) -> SizeStep {
    SizeStep::Take { node, machine, left }
}
