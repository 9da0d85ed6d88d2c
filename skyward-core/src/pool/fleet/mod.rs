//! The pure part of a pool, which decides about its nodes: events in, directives out. No I/O, no
//! clock.
//!
//! A [`Fleet`] has the one table of a pool's nodes. [`recovery`] changes the table where nodes and
//! workers are lost, [`membership`] where nodes come and leave. Both are impl blocks of the fleet,
//! because the directives of one depend on rows that the other has changed. The driver keeps
//! everything that is not pure, such as the connection to an agent, by the number of the node.
//!
//! The fleet lies in the pool's state, behind its lock, so that the status is made from this table
//! also while the driver is busy or gone. Only the driver changes it.

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use self::losses::Verdict;
use self::membership::Successor;
use self::streak::Streak;
use self::table::Table;
use crate::ids::{MachineNumber, NodeIndex, Rank};
use crate::layout::Layout;
use crate::spec::Nodes;

pub(crate) mod account;
pub(crate) mod autoscale;
pub(crate) mod directive;
pub(crate) mod launch;
mod losses;
mod membership;
pub(crate) mod notices;
mod recovery;
pub(crate) mod shortlist;
mod streak;
mod table;
mod timing;
mod view;

/// The nodes of a pool: those that it has, and those that come, leave or are lost.
#[derive(Debug)]
pub(crate) struct Fleet {
    joined: bool,
    layout: Layout,
    table: Table,
    /// Workers to start as soon as their node is up; in a joined world all workers or none.
    due: BTreeSet<Rank>,
    /// The target number of nodes.
    target: u32,
    /// The most nodes that the pool may have.
    most: u32,
    /// Further machines that have no place yet, each with whether it is ready.
    coming: BTreeMap<MachineNumber, bool>,
    /// Machines that are being ended.
    dismissing: BTreeSet<MachineNumber>,
    /// The numbers of machines that are not confirmed gone.
    left: BTreeSet<MachineNumber>,
    /// The number of machines in a row that could not be made ready.
    failures: u32,
    /// Losses of workers that ran no task, and failed starts of workers, in the whole pool.
    idle: Streak,
    /// Whether the machines are other than the client's own host.
    apart: bool,
    /// Whether the driver is changing the nodes of an idle world.
    reshaping: bool,
    /// Whether the pool ends when no task runs.
    ends: bool,
    /// Successors: machines that will replace a machine that will end.
    successors: BTreeMap<NodeIndex, Successor>,
    /// How often in a row no successor could be made ready for a machine that will end.
    failed_successors: BTreeMap<NodeIndex, u32>,
}

impl Default for Fleet {
    /// A fleet without nodes, of a pool that does not run yet.
    fn default() -> Self {
        Self::new(false, Layout::new(0), Nodes::fixed(0), Vec::new(), std::iter::empty())
    }
}

impl Fleet {
    /// A fleet of nodes on these machines, in this order, with all of their workers started, and of
    /// further machines (`coming`) that are being made ready.
    pub(crate) fn new(
        joined: bool,
        layout: Layout,
        size: Nodes,
        nodes: Vec<MachineNumber>,
        coming: impl Iterator<Item = MachineNumber>,
    ) -> Self {
        Self {
            joined,
            layout,
            table: Table::new(nodes),
            due: BTreeSet::new(),
            target: size.wanted(),
            most: size.most(),
            coming: coming.map(|machine| (machine, false)).collect(),
            dismissing: BTreeSet::new(),
            left: BTreeSet::new(),
            failures: 0,
            idle: Streak::default(),
            apart: false,
            reshaping: false,
            ends: false,
            successors: BTreeMap::new(),
            failed_successors: BTreeMap::new(),
        }
    }

    /// The number of nodes that the pool should have: those that are there, and those that come.
    pub(crate) fn target(&self) -> u32 {
        self.target
    }

    /// The most nodes that the pool may have.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    pub(crate) fn set_most(&mut self, nodes: u32) {
        self.most = nodes;
    }

    /// All places, including those of nodes that are lost or have left.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        self.table.nodes()
    }

    /// The machine that a node has, or had last; `None` if there is no such place.
    pub(crate) fn machine(&self, node: NodeIndex) -> Option<MachineNumber> {
        self.table.machine(node)
    }
}
