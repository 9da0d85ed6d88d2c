//! The directives that the fleet asks its driver to carry out.
//!
//! Recovery and membership return the same directives, so the driver has one executor, which
//! carries them out in order. One flat enum serves both: each directive is one line of that
//! executor, and whatever runs in the background is a [`Job`] that a directive begins or ends.

use crate::ids::{MachineNumber, NodeIndex, Rank};

/// One directive for the driver. A node is named by its number in the pool, a machine by its number
/// at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Directive {
    Begin(Repair),
    /// Give the job up.
    End(Job),
    /// Make a further machine ready. [`Fleet::on_ready`](super::Fleet::on_ready) or
    /// [`Fleet::on_failed`](super::Fleet::on_failed) receives the result.
    Launch {
        machine: MachineNumber,
    },
    /// The machine is not needed any more: give up making it ready, and end it. `node` is the node
    /// that it was to succeed; for a further machine, its own number.
    Forget {
        node: NodeIndex,
        machine: MachineNumber,
    },
    /// Give a ready machine its place, and start its workers.
    Join {
        node: NodeIndex,
        machine: MachineNumber,
    },
    /// Report that the node takes no new tasks, and leaves when it has finished its work.
    Leave {
        node: NodeIndex,
    },
    /// The node does not leave after all: renew what its leaving has ended.
    Stay {
        node: NodeIndex,
    },
    /// Stop the workers of a node that leaves and has finished its work.
    Stop {
        node: NodeIndex,
    },
    /// A node has left, so that `rows` rows remain in the table: end its machine.
    Remove {
        node: NodeIndex,
        machine: MachineNumber,
        rows: u32,
    },
    /// Make a successor ready for a machine that will end.
    /// [`Fleet::on_ready`](super::Fleet::on_ready) or [`Fleet::on_failed`](super::Fleet::on_failed)
    /// receives the result.
    Succeed {
        node: NodeIndex,
        machine: MachineNumber,
    },
    /// Stop the workers of a node that has finished its work, so that the successor can take its
    /// place.
    Vacate {
        node: NodeIndex,
    },
    /// Give the node to the successor, which is ready, and end the machine that the node had
    /// (`left`).
    Take {
        node: NodeIndex,
        machine: MachineNumber,
        left: MachineNumber,
    },
    /// The world is idle: the first `stay` nodes stay, the machines in `join` become the nodes
    /// after them, and the nodes in `taken` get another machine.
    Reshape {
        stay: u32,
        left: Vec<MachineNumber>,
        join: Vec<MachineNumber>,
        taken: Vec<Taken>,
    },
}

/// A node, the machine that it gets, and the machine that it had.
pub(crate) type Taken = (NodeIndex, MachineNumber, MachineNumber);

/// A job that takes time. A job never runs twice at once: a later start replaces an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Job {
    Repair(Repair),
    /// A start has failed: find out whether the node is the reason.
    Examine(Workers),
    /// Reconnect to a worker.
    ReachWorker(Rank),
    /// Connect to a worker that makes calls.
    ReachCaller(Rank),
    /// Make a further machine ready, which has no place in the pool yet.
    Add(MachineNumber),
    /// Stop the workers of a node that leaves; they have time to leave their hooks.
    Stop(NodeIndex),
    /// End the machine of a node that has left, or that is not needed any more.
    Dismiss(MachineNumber),
    /// Query the provider for the states of the machines.
    Watch,
    /// Make workers check whether their machines will end.
    Remind,
}

/// A job that the fleet begins, because nodes or workers were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Repair {
    /// Reconnect to a node's agent.
    ReachAgent(NodeIndex),
    /// End what is left of a node's machine, and make another one ready.
    Replace(NodeIndex),
    /// End all workers of a world.
    StopWorld,
    Start(Workers),
}

/// Workers that are started together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Workers {
    One(Rank),
    /// All workers of a joined world, as its next generation.
    World,
}
