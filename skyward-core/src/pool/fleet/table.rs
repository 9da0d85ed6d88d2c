//! The nodes of a pool, one row each: the machine in the node's place, whether the node stays,
//! whether its agent is connected, and what the node has lost.
//!
//! The nodes are numbered without gaps, and the number of a row is the number of its node. Rows are
//! added and removed only at the end.

use super::streak::Streak;
use crate::ids::{MachineNumber, NodeIndex};

/// The nodes of a pool, in order.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Row>,
}

/// A place in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    /// The machine that the node has, or had last.
    machine: MachineNumber,
    membership: Membership,
    health: Health,
    losses: Losses,
}

/// Whether a node stays in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    Member,
    /// The node finishes its work.
    Draining,
    /// The workers of the node are being stopped.
    Stopping,
    /// The node has left, but a node behind it has not.
    Vacant,
}

/// Whether a node can run workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Health {
    /// The agent is connected.
    Up,
    /// The connection to the agent was lost; the client tries to reconnect.
    Away,
    /// The machine is given up, for this cause; another one is made ready.
    Lost(String),
    /// The node has left, or is about to leave or to join: nothing is repaired.
    Gone,
}

/// The losses of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Machines that were lost, or could not be replaced.
    pub(super) machines: Streak,
    /// Workers that were lost while they ran no task, or could not be started.
    pub(super) workers: Streak,
}

impl Row {
    fn member(machine: MachineNumber, health: Health) -> Self {
        Self { machine, membership: Membership::Member, health, losses: Losses::default() }
    }
}

impl Table {
    /// A table of members on these machines, in this order, with connected agents.
    pub(super) fn new(machines: Vec<MachineNumber>) -> Self {
        let row = |machine| Row::member(machine, Health::Up);
        Self { rows: machines.into_iter().map(row).collect() }
    }

    pub(super) fn len(&self) -> u32 {
        self.rows.len() as u32
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.len()).map(NodeIndex)
    }

    /// The number of nodes that take new tasks: the first nodes, up to the first that is not a
    /// member.
    pub(super) fn members(&self) -> u32 {
        self.rows.iter().take_while(|row| row.membership == Membership::Member).count() as u32
    }

    pub(super) fn are_all_up(&self) -> bool {
        self.rows.iter().all(|row| row.health == Health::Up)
    }

    pub(super) fn machine(&self, node: NodeIndex) -> Option<MachineNumber> {
        self.row(node).map(|row| row.machine)
    }

    pub(super) fn membership(&self, node: NodeIndex) -> Option<Membership> {
        self.row(node).map(|row| row.membership)
    }

    pub(super) fn health(&self, node: NodeIndex) -> Option<&Health> {
        self.row(node).map(|row| &row.health)
    }

    pub(super) fn losses(&self, node: NodeIndex) -> Option<&Losses> {
        self.row(node).map(|row| &row.losses)
    }

    pub(super) fn losses_mut(&mut self, node: NodeIndex) -> Option<&mut Losses> {
        self.row_mut(node).map(|row| &mut row.losses)
    }

    /// The machines of the nodes that have not left.
    pub(super) fn machines(&self) -> impl Iterator<Item = MachineNumber> {
        self.rows.iter().filter(|row| row.membership != Membership::Vacant).map(|row| row.machine)
    }

    pub(super) fn set_membership(&mut self, node: NodeIndex, membership: Membership) {
        if let Some(row) = self.row_mut(node) {
            row.membership = membership;
        }
    }

    pub(super) fn set_health(&mut self, node: NodeIndex, health: Health) {
        if let Some(row) = self.row_mut(node) {
            row.health = health;
        }
    }

    /// Gives a node another machine, and returns the machine that it had.
    pub(super) fn replace_machine(&mut self, node: NodeIndex, machine: MachineNumber) -> Option<MachineNumber> {
        self.row_mut(node).map(|row| std::mem::replace(&mut row.machine, machine))
    }

    /// Puts a machine in the place of a node that has left, or at the end. Its agent counts as
    /// connected when the driver reports it.
    pub(super) fn join(&mut self, node: NodeIndex, machine: MachineNumber) {
        let row = Row::member(machine, Health::Gone);
        match self.row_mut(node) {
            Some(vacant) => *vacant = row,
            None => self.rows.push(row),
        }
    }

    /// Marks that a node has left, and returns its machine.
    pub(super) fn remove(&mut self, node: NodeIndex) -> Option<MachineNumber> {
        let machine = self.machine(node)?;
        self.set_membership(node, Membership::Vacant);
        self.end_rows();
        Some(machine)
    }

    /// Marks that all nodes from `stay` on have left, and returns their machines.
    pub(super) fn remove_from(&mut self, stay: u32) -> Vec<MachineNumber> {
        let left = self.rows.iter_mut().skip(stay as usize).map(|row| {
            row.membership = Membership::Vacant;
            row.machine
        });
        let left = left.collect();
        self.end_rows();
        left
    }

    /// Removes the rows behind the last node that has not left. Rows are removed nowhere else.
    fn end_rows(&mut self) {
        let last = self.rows.iter().rposition(|row| row.membership != Membership::Vacant);
        self.rows.truncate(last.map_or(0, |last| last + 1));
    }

    fn row(&self, node: NodeIndex) -> Option<&Row> {
        self.rows.get(node.0 as usize)
    }

    fn row_mut(&mut self, node: NodeIndex) -> Option<&mut Row> {
        self.rows.get_mut(node.0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(nodes: u32) -> Table {
        Table::new((0..nodes).map(MachineNumber).collect())
    }

    #[test]
    fn a_row_is_removed_when_all_nodes_behind_it_have_left() {
        let mut table = table(4);
        assert_eq!(table.remove(NodeIndex(2)), Some(MachineNumber(2)));
        assert_eq!(table.len(), 4, "node 3 has not left");
        assert_eq!(table.members(), 2, "node 3 has not left");
        assert_eq!(table.machine(NodeIndex(2)), Some(MachineNumber(2)), "the machine that the node had last");
        assert!(table.machines().all(|machine| machine != MachineNumber(2)));
        assert_eq!(table.remove(NodeIndex(3)), Some(MachineNumber(3)));
        assert_eq!(table.len(), 2);
        assert_eq!(table.members(), 2);
        assert_eq!(table.machine(NodeIndex(2)), None);
        assert_eq!(table.remove(NodeIndex(2)), None);
        assert_eq!(table.remove_from(1), [MachineNumber(1)]);
        assert!(table.remove_from(1).is_empty());
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_node_that_joins_is_a_member_at_once_and_up_when_that_is_reported() {
        let mut table = table(3);
        table.remove(NodeIndex(1));
        for (node, machine, len) in [(1, 4, 3), (3, 5, 4)] {
            let node = NodeIndex(node);
            table.join(node, MachineNumber(machine));
            assert_eq!(table.machine(node), Some(MachineNumber(machine)));
            assert_eq!(table.len(), len);
            assert_eq!(table.membership(node), Some(Membership::Member));
            assert!(!table.are_all_up());
            table.set_health(node, Health::Up);
            assert!(table.are_all_up());
        }
        assert_eq!(table.members(), 4);
    }

    #[test]
    fn reads_and_changes_of_a_missing_place_do_nothing() {
        let (mut table, node) = (table(1), NodeIndex(1));
        table.set_health(node, Health::Away);
        table.set_membership(node, Membership::Draining);
        assert_eq!(table.replace_machine(node, MachineNumber(7)), None);
        assert_eq!(table.health(node), None);
        assert_eq!(table.membership(node), None);
        assert!(table.are_all_up() && table.machines().all(|machine| machine != MachineNumber(7)));
        assert_eq!(table.replace_machine(NodeIndex(0), MachineNumber(7)), Some(MachineNumber(0)));
        assert_eq!(table.machines().collect::<Vec<_>>(), [MachineNumber(7)]);
    }
}
