//! How a pool comes from the nodes that it has to the number that it is to have: events in, steps out. No I/O, no clock.
//!
//! The nodes of a pool are numbered without gaps. So further machines get their place in the order in which they are ready, and those that leave are the last ones. Their machines have
//! numbers of their own, by which the provider knows them.
//!
//! In a joined world nodes come and go all at once, at a moment when the world has nothing to do.

mod heirs;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use self::heirs::Taken;
use self::heirs::{Heir, Legacy};

use crate::ids::{MachineNumber, NodeIndex};

/// The nodes that there are, that come and that leave.
#[derive(Debug)]
pub(crate) struct Sizing {
    joined: bool,
    target: u32,
    rows: Vec<Row>,
    /// Further machines: whether they are ready.
    coming: BTreeMap<MachineNumber, bool>,
    /// Machines that are being ended.
    leaving: BTreeSet<MachineNumber>,
    /// The numbers of machines that are not confirmed gone.
    left: BTreeSet<MachineNumber>,
    /// Machines that could not be made ready since the target was set.
    failures: u32,
    /// The world was told to finish what it has.
    held: bool,
    /// Machines that take the place of those that will end.
    heirs: BTreeMap<NodeIndex, Heir>,
    /// How often in a row no machine could be had for the place of one that will end.
    unheired: BTreeMap<NodeIndex, u32>,
}

/// A place in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    machine: MachineNumber,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Member,
    /// It finishes what it has.
    Draining,
    /// Its workers are being stopped.
    Stopping,
    /// It has left, and one behind it has not.
    Vacant,
}

/// What is to be done. Nodes are meant by their number in the pool, machines by that of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SizeStep {
    /// Make a further machine ready: [`Sizing::on_ready`] or [`Sizing::on_failed`] says what became of it.
    Launch { machine: MachineNumber },
    /// It is not wanted any more: give up making it ready, and end it.
    Forget { machine: MachineNumber },
    /// A machine that is ready gets its place, and its workers are started.
    Join { node: NodeIndex, machine: MachineNumber },
    /// A node is to leave when it has nothing more to do.
    Leave { node: NodeIndex },
    /// It stays after all.
    Stay { node: NodeIndex },
    /// Stop the workers of a node that has nothing more to do.
    Stop { node: NodeIndex },
    /// A node has left: so many rows are left; its machine is to be ended.
    Remove { node: NodeIndex, machine: MachineNumber, rows: u32 },
    /// Have the world finish what it has, and take nothing else.
    Hold,
    /// It need not.
    Release,
    /// A node's machine will end: give the node nothing more.
    Cordon { node: NodeIndex },
    /// It gets tasks again.
    Uncordon { node: NodeIndex },
    /// Make a machine ready for the place of one that will end: [`Sizing::on_ready`] or [`Sizing::on_failed`] says what became of it.
    Succeed { node: NodeIndex, machine: MachineNumber },
    /// Stop the workers of a node that has nothing more to do, whose place is taken then.
    Vacate { node: NodeIndex },
    /// A machine that is ready takes the place of the one that the node had, which is to be ended.
    Take { node: NodeIndex, machine: MachineNumber, left: MachineNumber },
    /// The place of a node is not taken after all: start the workers again that were being stopped.
    Revive { node: NodeIndex },
    /// Nothing takes the place of a node that is lost: another machine is to be made ready.
    Replace { node: NodeIndex },
    /// The world is idle: of its nodes the first `stay` stay, and these machines join behind them. Of those that stay some get another machine.
    Reshape { stay: u32, left: Vec<MachineNumber>, join: Vec<MachineNumber>, taken: Vec<Taken> },
}

impl Sizing {
    /// Nodes on these machines, in this order, and further machines that are being made ready.
    pub(crate) fn new(
        joined: bool,
        target: u32,
        nodes: Vec<MachineNumber>,
        coming: impl Iterator<Item = MachineNumber>,
    ) -> Self {
        let rows = nodes.into_iter().map(|machine| Row { machine, phase: Phase::Member }).collect();
        Self {
            joined,
            target,
            rows,
            coming: coming.map(|machine| (machine, false)).collect(),
            leaving: BTreeSet::new(),
            left: BTreeSet::new(),
            failures: 0,
            held: false,
            heirs: BTreeMap::new(),
            unheired: BTreeMap::new(),
        }
    }

    /// The nodes that take what comes.
    pub(crate) fn members(&self) -> u32 {
        self.rows.iter().take_while(|row| row.phase == Phase::Member).count() as u32
    }

    /// The machines that are being made ready.
    pub(crate) fn coming(&self) -> u32 {
        self.coming.len() as u32
    }

    #[cfg(test)]
    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    /// Whether the pool has what it is to have, and nothing comes or leaves.
    pub(crate) fn is_settled(&self) -> bool {
        self.coming.is_empty() && self.leaving.is_empty() && !self.held && self.rows.len() as u32 == self.members()
    }

    /// Whether so many machines in a row could not be made ready that no other is tried.
    pub(crate) fn has_given_up(&self) -> bool {
        self.failures >= MAX_FAILURES
    }

    /// The pool is to have so many nodes.
    pub(crate) fn set_target(&mut self, target: u32) -> Vec<SizeStep> {
        self.target = target.max(1);
        self.failures = 0;
        self.plan()
    }

    /// A further machine is ready.
    pub(crate) fn on_ready(&mut self, machine: MachineNumber) -> Vec<SizeStep> {
        if let Some((node, heir)) = self.heirs.iter_mut().find(|(_, heir)| heir.machine == machine) {
            heir.ready = true;
            let node = *node;
            return self.hand_over(node);
        }
        if let Some(ready) = self.coming.get_mut(&machine) {
            *ready = true;
            self.failures = 0;
        }
        self.plan()
    }

    /// A further machine could not be made ready, or was lost before it got its place.
    pub(crate) fn on_failed(&mut self, machine: MachineNumber) -> Vec<SizeStep> {
        if let Some(node) = self.inherits(machine) {
            return self.on_heir_failed(node);
        }
        let mut steps = Vec::new();
        if self.coming.remove(&machine).is_some() {
            self.failures += 1;
            self.leaving.insert(machine);
            steps.push(SizeStep::Forget { machine });
        }
        steps.extend(self.plan());
        steps
    }

    /// A node that is to leave, or whose machine will end, has nothing more to do.
    pub(crate) fn on_drained(&mut self, node: NodeIndex) -> Vec<SizeStep> {
        if let Some(heir) = self.heirs.get_mut(&node).filter(|heir| heir.place == Legacy::Draining) {
            heir.place = Legacy::Drained;
            return self.hand_over(node);
        }
        match self.row(node) {
            Some(row) if row.phase == Phase::Draining => {
                row.phase = Phase::Stopping;
                vec![SizeStep::Stop { node }]
            }
            _ => Vec::new(),
        }
    }

    /// The workers of a node that leaves, or whose machine will end, are stopped.
    pub(crate) fn on_stopped(&mut self, node: NodeIndex) -> Vec<SizeStep> {
        if let Some(heir) = self.heirs.get_mut(&node).filter(|heir| heir.place == Legacy::Stopping) {
            heir.place = Legacy::Stopped;
            return self.hand_over(node);
        }
        let Some(row) = self.row(node).filter(|row| row.phase == Phase::Stopping) else { return Vec::new() };
        row.phase = Phase::Vacant;
        let machine = row.machine;
        self.leaving.insert(machine);
        while self.rows.last().is_some_and(|row| row.phase == Phase::Vacant) {
            self.rows.pop();
        }
        let mut steps = vec![SizeStep::Remove { node, machine, rows: self.rows.len() as u32 }];
        steps.extend(self.plan());
        steps
    }

    /// The world has nothing more to do.
    pub(crate) fn on_world_idle(&mut self) -> Vec<SizeStep> {
        if !self.held {
            return Vec::new();
        }
        let is_inherited = self.heirs.values().any(|heir| heir.ready);
        if !self.is_to_change() && !is_inherited {
            return self.plan();
        }
        self.held = false;
        let stay = self.members();
        let mut steps = self.disinherit(stay);
        let ready: Vec<NodeIndex> = self.heirs.iter().filter(|(_, heir)| heir.ready).map(|(node, _)| *node).collect();
        let taken = ready.into_iter().filter_map(|node| self.take(node)).collect();
        let left: Vec<MachineNumber> = self.rows.split_off(stay as usize).into_iter().map(|row| row.machine).collect();
        self.leaving.extend(&left);
        let join: Vec<MachineNumber> =
            self.coming.iter().filter(|(_, ready)| **ready).map(|(machine, _)| *machine).collect();
        self.coming.retain(|_, ready| !*ready);
        self.rows.extend(join.iter().map(|machine| Row { machine: *machine, phase: Phase::Member }));
        steps.push(SizeStep::Reshape { stay, left, join, taken });
        steps.extend(self.plan());
        steps
    }

    /// A machine that was to be ended is gone, or nobody knows.
    pub(crate) fn on_dismissed(&mut self, machine: MachineNumber, gone: bool) {
        self.leaving.remove(&machine);
        if !gone {
            self.left.insert(machine);
        }
    }

    /// From what there is to what is to be.
    fn plan(&mut self) -> Vec<SizeStep> {
        let mut steps = Vec::new();
        loop {
            let before = self.members();
            self.stay(&mut steps);
            if !self.joined {
                self.join(&mut steps);
            }
            if self.members() == before {
                break;
            }
        }
        while self.members() > self.target {
            let node = self.members() - 1;
            self.rows[node as usize].phase = Phase::Draining;
            steps.push(SizeStep::Leave { node: NodeIndex(node) });
        }
        let members = self.members();
        steps.extend(self.disinherit(members));
        while self.coming() > self.target - self.members() {
            // What is furthest from being ready first.
            let least = self.coming.iter().rev().min_by_key(|(_, ready)| **ready).map(|(machine, _)| *machine);
            let Some(machine) = least else { break };
            self.coming.remove(&machine);
            self.leaving.insert(machine);
            steps.push(SizeStep::Forget { machine });
        }
        if self.has_given_up() && self.coming.is_empty() {
            // It goes on with what it has.
            self.target = self.members();
        }
        while self.members() + self.coming() < self.target && !self.has_given_up() {
            let machine = self.free();
            self.coming.insert(machine, false);
            steps.push(SizeStep::Launch { machine });
        }
        let is_to_hold = self.is_to_change() || !self.heirs.is_empty();
        if self.joined && self.held != is_to_hold {
            self.held = !self.held;
            steps.push(if self.held { SizeStep::Hold } else { SizeStep::Release });
        }
        steps
    }

    /// Nodes that were to leave stay, where they are wanted again and have not begun to end.
    fn stay(&mut self, steps: &mut Vec<SizeStep>) {
        loop {
            let node = self.members();
            let draining = self.phase(NodeIndex(node)) == Some(Phase::Draining);
            if node >= self.target || !draining {
                return;
            }
            self.rows[node as usize].phase = Phase::Member;
            steps.push(SizeStep::Stay { node: NodeIndex(node) });
        }
    }

    /// Machines that are ready get their places, as soon as those before them have left.
    fn join(&mut self, steps: &mut Vec<SizeStep>) {
        loop {
            let node = self.members();
            let free = matches!(self.phase(NodeIndex(node)), None | Some(Phase::Vacant));
            let ready = self.coming.iter().find(|(_, ready)| **ready).map(|(machine, _)| *machine);
            let Some(machine) = ready.filter(|_| free && node < self.target) else { return };
            self.coming.remove(&machine);
            let row = Row { machine, phase: Phase::Member };
            match self.rows.get_mut(node as usize) {
                Some(vacant) => *vacant = row,
                None => self.rows.push(row),
            }
            steps.push(SizeStep::Join { node: NodeIndex(node), machine });
        }
    }

    /// Whether a world has nodes that leave, or that come and are all ready.
    fn is_to_change(&self) -> bool {
        let leaves = self.rows.len() as u32 > self.members();
        leaves || !self.coming.is_empty() && self.coming.values().all(|ready| *ready)
    }

    /// The lowest number that no machine has.
    fn free(&self) -> MachineNumber {
        let taken = |machine: &MachineNumber| {
            self.rows.iter().any(|row| row.phase != Phase::Vacant && row.machine == *machine)
                || self.coming.contains_key(machine)
                || self.heirs.values().any(|heir| heir.machine == *machine)
                || self.leaving.contains(machine)
                || self.left.contains(machine)
        };
        (0..).map(MachineNumber).find(|machine| !taken(machine)).unwrap_or(MachineNumber(u32::MAX))
    }

    fn phase(&self, node: NodeIndex) -> Option<Phase> {
        self.rows.get(node.0 as usize).map(|row| row.phase)
    }

    fn row(&mut self, node: NodeIndex) -> Option<&mut Row> {
        self.rows.get_mut(node.0 as usize)
    }
}

/// Machines in a row that cannot be made ready, before no other is tried.
const MAX_FAILURES: u32 = 3;

#[cfg(test)]
mod tests;
