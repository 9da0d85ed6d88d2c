//! Sends what is decided to workers and to the outboxes of nodes, through the movers.

use std::sync::Arc;

use super::attempt::{Channel, Saved};
use super::messages::ToPayload;
use crate::ids::{MachineId, NodeIndex};
use crate::pool::mover::Line;
use crate::pool::spawn::spawn;
use crate::pool::tasks::shared::Shared;
use crate::worker::message::ToMover;

/// Sends short messages. A node that is lost gets none, and needs none.
#[derive(Clone)]
pub(super) struct Post(pub(super) Arc<Shared>);

impl Post {
    /// Passes a message to a worker.
    pub(super) fn deliver(&self, to: &Channel, message: &ToPayload) {
        let deliver = ToMover::Deliver { channel: to.number, received: 0, body: message.body() };
        self.send(to.node, &to.machine, deliver);
    }

    /// Acknowledges what has come from a worker.
    pub(super) fn acknowledge(&self, to: &Channel, received: u64) {
        let nothing = ToMover::Deliver { channel: to.number, received, body: bytes::Bytes::new() };
        self.send(to.node, &to.machine, nothing);
    }

    /// Removes saves from their nodes.
    pub(super) fn settle(&self, saves: impl IntoIterator<Item = Saved>) {
        for Saved { id, node, machine, .. } in saves {
            self.send(node, &machine, ToMover::Settle { save: id });
        }
    }

    /// Removes a restored folder from a node.
    pub(super) fn remove(&self, node: NodeIndex, machine: &MachineId, folder: String) {
        self.send(node, machine, ToMover::Settle { save: folder });
    }

    fn send(&self, node: NodeIndex, machine: &MachineId, message: ToMover) {
        let (shared, machine) = (Arc::clone(&self.0), machine.clone());
        spawn(async move {
            if let Err(error) = shared.ask_mover(node, Some(&machine), Line::Control, &message).await {
                tracing::debug!(pool = %shared.pool, node = node.0, %error, "a message about checkpoints did not arrive");
            }
        });
    }
}
