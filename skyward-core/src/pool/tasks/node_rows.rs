//! The nodes of a pool, as far as messages to a node and the status of the pool need them.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::ids::NodeIndex;
use crate::pool::environment::Environment;
use crate::provider::{Machine, Place};
use crate::worker::link::Sender;

/// What messages to a node and the status of a pool need of the node.
pub(crate) struct NodeRow {
    pub(crate) machine: Arc<Machine>,
    pub(crate) place: Arc<Place>,
    /// The link to the node's agent; `None` if the node is lost or has left.
    pub(crate) agent: Option<Sender>,
    /// What is installed there; `None` if the node is lost or has left, and no other machine was
    /// admitted to its place yet.
    pub(crate) environment: Option<Environment>,
}

/// A row for each node, in order.
#[derive(Default)]
pub(crate) struct NodeRows {
    rows: Vec<NodeRow>,
    /// Notified when a row may have changed.
    changed: Arc<Notify>,
}

impl NodeRows {
    /// The number of nodes.
    pub(crate) fn len(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Is notified when a row may have changed. It has one listener, which looks at all rows.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// The row of a node; `None` if the pool has no such node.
    pub(crate) fn get(&self, node: NodeIndex) -> Option<&NodeRow> {
        self.rows.get(node.0 as usize)
    }

    /// The row of a node; `None` if the pool has no such node.
    pub(crate) fn get_mut(&mut self, node: NodeIndex) -> Option<&mut NodeRow> {
        self.changed.notify_one();
        self.rows.get_mut(node.0 as usize)
    }

    /// The nodes with their rows, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeIndex, &NodeRow)> {
        (0..).map(NodeIndex).zip(&self.rows)
    }

    /// Adds a row behind the others.
    pub(crate) fn push(&mut self, row: NodeRow) {
        self.changed.notify_one();
        self.rows.push(row);
    }

    /// A node has no machine now.
    pub(crate) fn clear(&mut self, node: NodeIndex) {
        if let Some(row) = self.get_mut(node) {
            row.agent = None;
            row.environment = None;
        }
    }

    /// Keeps the rows of the first nodes.
    pub(crate) fn truncate(&mut self, rows: u32) {
        self.changed.notify_one();
        self.rows.truncate(rows as usize);
    }
}
