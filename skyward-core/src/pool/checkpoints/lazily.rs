//! Brings a data set to a machine whose worker asks for it.

use std::sync::Arc;

use async_trait::async_trait;

use super::attempt::Channel;
use super::messages::ToPayload;
use super::post::Post;
use crate::error::Result;
use crate::event::{PoolEvent, Transfer};
use crate::ids::{MachineId, NodeIndex};
use crate::pool::data::Site;
use crate::pool::mover::Line;
use crate::pool::tasks::shared::Shared;
use crate::worker::message::{FromMover, ToMover};

/// Answers a worker when the data set is on its machine, or cannot be brought. `n` is the number of the
/// worker's question for it.
pub(super) async fn bring(post: Post, from: Channel, n: u64, name: String) {
    let site = WorkerSite { shared: &post.0, at: &from };
    if n > 1 {
        // The worker has not found what it was told before.
        post.0.data.forget(&from.machine);
    }
    let answer = match post.0.data.bring(&name, &site).await {
        Ok(path) => ToPayload::Brought { n, path },
        Err(error) => ToPayload::refused(n, &error),
    };
    post.deliver(&from, &answer);
}

/// The machine of a worker.
struct WorkerSite<'s> {
    shared: &'s Arc<Shared>,
    at: &'s Channel,
}

#[async_trait]
impl Site for WorkerSite<'_> {
    fn node(&self) -> NodeIndex {
        self.at.node
    }

    fn machine(&self) -> &MachineId {
        &self.at.machine
    }

    async fn ask(&self, request: &ToMover) -> Result<FromMover> {
        self.shared.ask_mover(self.at.node, Some(&self.at.machine), Line::Data, request).await
    }

    fn report(&self, transfer: &Transfer) {
        self.shared.emit(PoolEvent::Transfer(transfer.clone()));
    }
}
