//! A node: since when it is ready, and the queue of the tasks that name it.

use std::time::Instant;

use super::table::List;

/// A node, and its queue.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// When the first worker on the node's present machine was ready.
    pub(super) ready_since: Option<Instant>,
    /// Tasks that wait for any worker of this node.
    pub(super) queue: List,
    /// Whether [`Action::NodeDrained`] was emitted.
    pub(super) reported: bool,
}
