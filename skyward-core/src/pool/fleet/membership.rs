//! How a pool gets from its present nodes to its target number of nodes: events in, directives out.
//! No I/O, no clock.
//!
//! The nodes of a pool are numbered without gaps, so further machines get their places in the order
//! in which they become ready, and the nodes that leave are the last ones. The machines have
//! numbers of their own, by which the provider knows them.
//!
//! In a joined world nodes come and leave all at once, while the world is idle.

mod successors;

use std::collections::BTreeSet;

pub(super) use self::successors::{HandOver, Successor};
use super::Fleet;
use super::directive::{Directive, Job, Repair, Workers};
use super::table::Membership;
use crate::ids::{MachineNumber, NodeIndex};

impl Fleet {
    /// The number of nodes that take new tasks.
    pub(crate) fn members(&self) -> u32 {
        self.table.members()
    }

    /// The number of machines that are being made ready.
    pub(crate) fn coming(&self) -> u32 {
        self.coming.len() as u32
    }

    /// Whether the pool has its target number of nodes, and no node comes or leaves.
    pub(crate) fn is_settled(&self) -> bool {
        self.coming.is_empty() && self.dismissing.is_empty() && !self.is_held() && self.table.len() == self.members()
    }

    /// Whether no further machine is tried, because several in a row could not be made ready.
    pub(crate) fn has_given_up(&self) -> bool {
        self.failures >= MAX_FAILURES
    }

    /// Sets the target number of nodes.
    pub(crate) fn set_target(&mut self, target: u32) -> Vec<Directive> {
        self.target = target.max(1);
        self.failures = 0;
        self.plan()
    }

    /// A further machine is ready.
    pub(crate) fn on_ready(&mut self, machine: MachineNumber) -> Vec<Directive> {
        if let Some((node, successor)) = self.successors.iter_mut().find(|(_, successor)| successor.machine == machine)
        {
            successor.ready = true;
            let node = *node;
            self.failed_successors.remove(&node);
            return self.hand_over(node);
        }
        if let Some(ready) = self.coming.get_mut(&machine) {
            *ready = true;
            self.failures = 0;
        }
        self.plan()
    }

    /// The connection to a ready machine that has no place yet is cut: the machine gets no place
    /// until [`on_ready`](Self::on_ready) reports it again.
    pub(crate) fn on_cut(&mut self, machine: MachineNumber) -> Vec<Directive> {
        if let Some(successor) = self.successors.values_mut().find(|successor| successor.machine == machine) {
            successor.ready = false;
            return Vec::new();
        }
        if let Some(ready) = self.coming.get_mut(&machine) {
            *ready = false;
        }
        self.plan()
    }

    /// A further machine could not be made ready, or was lost before it got a place.
    pub(crate) fn on_failed(&mut self, machine: MachineNumber) -> Vec<Directive> {
        if let Some(node) = self.succeeds(machine) {
            return self.on_successor_failed(node);
        }
        let mut directives = Vec::new();
        if self.coming.remove(&machine).is_some() {
            self.failures += 1;
            directives.push(self.forget(NodeIndex(machine.0), machine));
        }
        directives.extend(self.plan());
        directives
    }

    /// A node that drains, or whose machine will end, has finished its work.
    pub(crate) fn on_drained(&mut self, node: NodeIndex) -> Vec<Directive> {
        if let Some(successor) =
            self.successors.get_mut(&node).filter(|successor| successor.state == HandOver::Draining)
        {
            successor.state = HandOver::Drained;
            return self.hand_over(node);
        }
        if self.table.membership(node) != Some(Membership::Draining) {
            return Vec::new();
        }
        self.table.set_membership(node, Membership::Stopping);
        vec![Directive::Stop { node }]
    }

    /// The workers of a node that leaves, or whose machine will end, have stopped.
    pub(crate) fn on_stopped(&mut self, node: NodeIndex) -> Vec<Directive> {
        if let Some(successor) =
            self.successors.get_mut(&node).filter(|successor| successor.state == HandOver::Stopping)
        {
            successor.state = HandOver::Stopped;
            return self.hand_over(node);
        }
        if self.table.membership(node) != Some(Membership::Stopping) {
            return Vec::new();
        }
        let Some(machine) = self.table.remove(node) else { return Vec::new() };
        self.dismissing.insert(machine);
        let mut directives = vec![Directive::Remove { node, machine, rows: self.table.len() }];
        directives.extend(self.plan());
        directives
    }

    /// The world has finished its work.
    pub(crate) fn on_world_idle(&mut self) -> Vec<Directive> {
        if !self.is_held() || self.reshaping {
            return Vec::new();
        }
        let any_ready = self.successors.values().any(|successor| successor.ready);
        if !self.is_to_change() && !any_ready {
            return self.plan();
        }
        self.reshaping = true;
        let stay = self.members();
        let mut directives = self.drop_successors(stay);
        let ready: Vec<NodeIndex> =
            self.successors.iter().filter(|(_, successor)| successor.ready).map(|(node, _)| *node).collect();
        let taken = ready.into_iter().filter_map(|node| self.take(node)).collect();
        let left = self.table.remove_from(stay);
        self.dismissing.extend(&left);
        let join: Vec<MachineNumber> =
            self.coming.iter().filter(|(_, ready)| **ready).map(|(machine, _)| *machine).collect();
        self.coming.retain(|_, ready| !*ready);
        for (node, machine) in (stay..).map(NodeIndex).zip(&join) {
            self.table.join(node, *machine);
        }
        directives.push(Directive::Reshape { stay, left, join, taken });
        directives.extend(self.plan());
        directives
    }

    /// A machine that was to be ended is gone (`gone`), or could not be confirmed gone.
    pub(crate) fn on_dismissed(&mut self, machine: MachineNumber, gone: bool) {
        self.dismissing.remove(&machine);
        if !gone {
            self.left.insert(machine);
        }
    }

    /// The pool ends when no task runs. No further machine is made ready, and nothing that is lost is
    /// replaced; agents and workers that may still run a task are reconnected to.
    pub(crate) fn end(&mut self) -> Vec<Directive> {
        self.ends = true;
        let mut directives = self.drop_successors(0);
        for machine in std::mem::take(&mut self.coming).into_keys() {
            directives.push(self.forget(NodeIndex(machine.0), machine));
        }
        let ranks = self.layout.ranks(self.table.len()).map(Workers::One);
        let starts = ranks.chain([Workers::World]).map(Repair::Start);
        let repairs = self.table.nodes().map(Repair::Replace).chain(starts);
        directives.extend(repairs.map(|repair| Directive::End(Job::Repair(repair))));
        directives
    }

    /// The directives from the present nodes to the target.
    fn plan(&mut self) -> Vec<Directive> {
        if self.ends {
            return Vec::new();
        }
        let mut directives = Vec::new();
        loop {
            let before = self.members();
            self.stay(&mut directives);
            if !self.joined {
                self.join(&mut directives);
            }
            if self.members() == before {
                break;
            }
        }
        for node in (self.target..self.members()).rev().map(NodeIndex) {
            self.table.set_membership(node, Membership::Draining);
            directives.push(Directive::Leave { node });
        }
        let members = self.members();
        directives.extend(self.drop_successors(members));
        let surplus = self.coming().saturating_sub(self.target - members);
        if surplus > 0 {
            // First the machines that are furthest from being ready.
            let mut coming: Vec<_> = self.coming.iter().rev().map(|(machine, ready)| (*machine, *ready)).collect();
            coming.sort_by_key(|(_, ready)| *ready);
            for (machine, _) in coming.into_iter().take(surplus as usize) {
                self.coming.remove(&machine);
                directives.push(self.forget(NodeIndex(machine.0), machine));
            }
        }
        if self.has_given_up() && self.coming.is_empty() {
            // The pool continues with the nodes that it has.
            self.target = members;
        }
        let missing = (self.target - members).saturating_sub(self.coming());
        if missing > 0 && !self.has_given_up() {
            // Until it becomes a node, a further machine is named by its number, so that must not
            // be the number of a node.
            let mut free = self.free(self.table.len());
            for _ in 0..missing {
                let machine = free.take();
                self.coming.insert(machine, false);
                directives.push(Directive::Launch { machine });
            }
        }
        directives
    }

    /// A machine that has no place is not needed any more.
    pub(super) fn forget(&mut self, node: NodeIndex, machine: MachineNumber) -> Directive {
        self.dismissing.insert(machine);
        Directive::Forget { node, machine }
    }

    /// Lets nodes that were to leave stay if the target includes them again and their workers are
    /// not being stopped yet.
    fn stay(&mut self, directives: &mut Vec<Directive>) {
        for node in (self.members()..self.target).map(NodeIndex) {
            if self.table.membership(node) != Some(Membership::Draining) {
                return;
            }
            self.table.set_membership(node, Membership::Member);
            directives.push(Directive::Stay { node });
        }
    }

    /// Gives ready machines their places as soon as the nodes that had these places have left.
    fn join(&mut self, directives: &mut Vec<Directive>) {
        for node in (self.members()..self.target).map(NodeIndex) {
            let free = matches!(self.table.membership(node), None | Some(Membership::Vacant));
            let ready = self.coming.iter().find(|(_, ready)| **ready).map(|(machine, _)| *machine);
            let Some(machine) = ready.filter(|_| free) else { return };
            self.coming.remove(&machine);
            self.table.join(node, machine);
            directives.push(Directive::Join { node, machine });
        }
    }

    /// Whether a world has nodes to remove, or new machines that are all ready.
    pub(super) fn is_to_change(&self) -> bool {
        let leaves = self.table.len() > self.members();
        leaves || !self.coming.is_empty() && self.coming.values().all(|ready| *ready)
    }

    /// The numbers from `least` on that no machine of the pool has.
    fn free(&self, least: u32) -> Free {
        let successors = self.successors.values().map(|successor| successor.machine);
        let leaving = self.dismissing.iter().chain(&self.left).copied();
        let taken = self.coming.keys().copied().chain(successors).chain(leaving).chain(self.table.machines());
        Free { next: least, taken: taken.collect() }
    }
}

/// Machine numbers that no machine of the pool has, the lowest first.
struct Free {
    next: u32,
    taken: BTreeSet<MachineNumber>,
}

impl Free {
    fn take(&mut self) -> MachineNumber {
        while self.taken.contains(&MachineNumber(self.next)) {
            self.next += 1;
        }
        self.next += 1;
        MachineNumber(self.next - 1)
    }
}

/// The number of machines in a row that could not be made ready after which no further machine is
/// tried.
const MAX_FAILURES: u32 = 3;

#[cfg(test)]
mod tests;
