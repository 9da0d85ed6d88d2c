//! Reaches the mover of a node, which the agent starts when it is needed.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::make::Node;
use super::timing::{AGENT_ANSWER, MOVER_REACHED};
use crate::error::{Error, ErrorKind, Result};
use crate::pool::foreign::answer;
use crate::pool::mover::{Line, Mover};
use crate::pool::tasks::shared::Shared;

/// Connects to the mover of a node.
pub(crate) async fn reach_mover(
    shared: Arc<Shared>,
    node: Arc<Node>,
    line: Line,
    done: oneshot::Sender<Result<Mover>>,
) {
    let reached = connect(&shared, &node, line);
    let late = |_| {
        let message = format!("the node's mover did not answer within {MOVER_REACHED:?}");
        Err(Error::new(ErrorKind::Io, message).temporary())
    };
    answer(done, timeout(MOVER_REACHED, reached).await.unwrap_or_else(late));
}

async fn connect(shared: &Shared, node: &Node, line: Line) -> Result<Mover> {
    let (pid, socket) = node.agent.mover(AGENT_ANSWER).await?;
    let stream = node.remote.open(&socket).await?;
    let news = shared.stored.as_ref().filter(|_| line == Line::Control).map(|stored| stored.news.clone());
    Mover::greet(&shared.pool, node.machine.id.clone(), node.ready.work_dir.clone(), pid, stream, news).await
}
