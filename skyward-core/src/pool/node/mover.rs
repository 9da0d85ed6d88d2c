//! Reaches the mover of a node, which the agent starts when it is needed.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::make::Node;
use super::timing::{AGENT_ANSWER, MOVER_REACHED};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{PoolEvent, Transfer};
use crate::ids::{MachineId, NodeIndex};
use crate::pool::data::Site;
use crate::pool::foreign::answer;
use crate::pool::mover::{Line, Mover};
use crate::pool::tasks::shared::Shared;
use crate::worker::message::{FromMover, ToMover};

/// Connects to the mover of a node.
pub(crate) async fn reach_mover(
    shared: Arc<Shared>,
    node: Arc<Node>,
    line: Line,
    done: oneshot::Sender<Result<Mover>>,
) {
    answer(done, connect_in_time(&shared, &node, line).await);
}

/// A node that gets data sets before its workers start, when the driver takes no commands yet.
pub(super) struct NewNode<'n> {
    pub(super) shared: &'n Shared,
    pub(super) node: &'n Node,
}

#[async_trait]
impl Site for NewNode<'_> {
    fn node(&self) -> NodeIndex {
        self.node.index
    }

    fn machine(&self) -> &MachineId {
        &self.node.machine.id
    }

    async fn ask(&self, request: &ToMover) -> Result<FromMover> {
        let Self { shared, node } = self;
        let reach = || async {
            let route = shared.route_to_mover(node.index, Line::Data)?;
            route.mover(&node.machine.id, connect_in_time(shared, node, Line::Data)).await
        };
        shared.ask_reached(node.index, request, reach).await
    }

    fn report(&self, transfer: &Transfer) {
        self.shared.emit(PoolEvent::Transfer(transfer.clone()));
    }
}

async fn connect_in_time(shared: &Shared, node: &Node, line: Line) -> Result<Mover> {
    let late = |_| {
        let message = format!("the node's mover did not answer within {MOVER_REACHED:?}");
        Err(Error::new(ErrorKind::Io, message).temporary())
    };
    timeout(MOVER_REACHED, connect(shared, node, line)).await.unwrap_or_else(late)
}

async fn connect(shared: &Shared, node: &Node, line: Line) -> Result<Mover> {
    let (pid, socket) = node.agent.mover(AGENT_ANSWER).await?;
    let stream = node.remote.open(&socket).await?;
    let news = shared.news.as_ref().filter(|_| line == Line::Control).cloned();
    Mover::greet(&shared.pool, node.machine.id.clone(), node.ready.work_dir.clone(), pid, stream, news).await
}
