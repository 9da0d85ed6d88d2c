//! What other parts of a pool read of its fleet: its status, and what its workers learn about the
//! nodes.

use super::Fleet;
use super::membership::{HandOver, Successor};
use super::table::{Health, Membership};
use crate::ids::{MachineNumber, NodeIndex};
use crate::scheduler::Eligible;

impl Fleet {
    /// Whether a node takes no new tasks because it leaves, or has left.
    pub(crate) fn is_draining(&self, node: NodeIndex) -> bool {
        self.table.membership(node) != Some(Membership::Member)
    }

    /// Whether a node has left. Its place remains as long as a node behind it has not left.
    pub(crate) fn has_left(&self, node: NodeIndex) -> bool {
        matches!(self.table.membership(node), None | Some(Membership::Vacant))
    }

    /// Whether the client reconnects to the agent of a node.
    pub(crate) fn is_away(&self, node: NodeIndex) -> bool {
        self.table.health(node) == Some(&Health::Away)
    }

    /// Why a node waits for another machine; `None` if it does not.
    pub(crate) fn loss(&self, node: NodeIndex) -> Option<&str> {
        match self.table.health(node)? {
            Health::Lost(cause) => Some(cause),
            _ => None,
        }
    }

    /// Whether the world finishes its work and takes no new work, because its nodes will change.
    pub(crate) fn is_held(&self) -> bool {
        let changes = self.reshaping || self.is_to_change() || !self.successors.is_empty();
        self.joined && !self.ends && changes
    }

    /// Which nodes take tasks. Nodes of a world are not cordoned one by one: the whole world is
    /// held.
    pub(crate) fn eligible(&self) -> Eligible {
        let at_work = |successor: &Successor| !self.joined && successor.state != HandOver::Lost;
        let cordoned = self.successors.iter().filter(|(_, successor)| at_work(successor)).map(|(node, _)| *node);
        Eligible { active: self.members(), cordoned: cordoned.collect(), held: self.is_held() }
    }

    /// The machines that are being ended, in the order of their numbers.
    pub(crate) fn dismissing(&self) -> impl Iterator<Item = MachineNumber> {
        self.dismissing.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::spec::Nodes;

    const NODE: NodeIndex = NodeIndex(1);

    #[test]
    fn a_lost_node_shows_its_cause_until_it_has_another_machine() {
        let mut fleet =
            Fleet::new(false, Layout::new(1), Nodes::fixed(2), (0..2).map(MachineNumber).collect(), std::iter::empty());
        assert!(!fleet.is_away(NODE) && fleet.loss(NODE).is_none());
        fleet.on_agent_away(NODE);
        assert!(fleet.is_away(NODE));
        fleet.lose(NODE, "the host is down".to_owned());
        assert!(!fleet.is_away(NODE));
        assert_eq!(fleet.loss(NODE), Some("the host is down"));
        fleet.on_replaced(NODE);
        assert_eq!(fleet.loss(NODE), None);
    }

    #[test]
    fn a_node_drains_until_it_has_left_and_its_machine_is_shown_until_it_is_gone() {
        let mut fleet =
            Fleet::new(false, Layout::new(1), Nodes::fixed(3), (0..3).map(MachineNumber).collect(), std::iter::empty());
        fleet.set_target(1);
        assert!(fleet.is_draining(NODE) && !fleet.has_left(NODE));
        fleet.on_drained(NODE);
        fleet.on_stopped(NODE);
        assert!(fleet.is_draining(NODE) && fleet.has_left(NODE), "node 2 has not left");
        assert_eq!(fleet.dismissing().collect::<Vec<_>>(), [MachineNumber(1)]);
        fleet.on_dismissed(MachineNumber(1), true);
        assert_eq!(fleet.dismissing().count(), 0);
        assert!(!fleet.is_draining(NodeIndex(0)) && !fleet.is_held());
    }
}
