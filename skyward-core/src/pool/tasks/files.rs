//! Reads files on the nodes of a pool over the connections to their movers, which are opened when
//! somebody reads.

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::shared::Shared;
use super::timing::{FIRST_MOVER_PAUSE, LONGEST_MOVER_PAUSE, MOVER_ANSWER};
use crate::compute::PoolPhase;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{PoolEvent, Transfer};
use crate::files::{Entry, Identity, NodeFiles, NodePath, Piece};
use crate::ids::NodeIndex;
use crate::pool::command::Command;
use crate::pool::mover::Mover;
use crate::worker::message::{FromMover, ToMover};

#[async_trait]
impl NodeFiles for Shared {
    async fn entries(&self, node: NodeIndex, path: &NodePath) -> Result<Vec<Entry>> {
        match self.ask_mover(node, &ToMover::Stat { path: path.clone() }).await? {
            FromMover::Entries { entries, .. } => Ok(entries),
            other => Err(unexpected(&other)),
        }
    }

    async fn read(
        &self,
        node: NodeIndex,
        path: &NodePath,
        identity: Option<Identity>,
        offset: u64,
        length: u64,
    ) -> Result<Piece> {
        let read = ToMover::Read { path: path.clone(), identity, offset, length };
        match self.ask_mover(node, &read).await? {
            FromMover::Piece(piece) => Ok(piece),
            other => Err(unexpected(&other)),
        }
    }

    async fn discard(&self, node: NodeIndex, artifact: &str) -> Result<()> {
        match self.ask_mover(node, &ToMover::Drop { artifact: artifact.to_owned() }).await? {
            FromMover::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn report(&self, transfer: &Transfer) {
        self.emit(PoolEvent::Transfer(transfer.clone()));
    }
}

impl Shared {
    /// Sends a request to the mover of a node. A lost connection is opened again and the request
    /// repeated, for a while: no request changes what another one reads.
    async fn ask_mover(&self, node: NodeIndex, request: &ToMover) -> Result<FromMover> {
        let end = Instant::now() + MOVER_ANSWER;
        let mut pause = FIRST_MOVER_PAUSE;
        loop {
            let answer = timeout_at(end, async { self.mover(node).await?.ask(request).await }).await;
            let error = match answer {
                Err(_) => {
                    self.movers.forget(node);
                    let silent = format!("the mover of node {node} did not answer within {MOVER_ANSWER:?}");
                    return Err(Error::new(ErrorKind::Timeout, silent).temporary());
                }
                Ok(Err(error)) if error.kind() == ErrorKind::Io && error.is_temporary() => error,
                Ok(answer) => return answer.map_err(|error| error.with_context("node", node)),
            };
            if Instant::now() + pause >= end {
                return Err(error.with_context("node", node));
            }
            tracing::debug!(pool = %self.pool, node = node.0, %error, "the node's mover cannot be reached yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_MOVER_PAUSE);
        }
    }

    /// The connection to the mover of a node; a new one if there is none that lasts.
    async fn mover(&self, node: NodeIndex) -> Result<Mover> {
        let machine = {
            let state = self.lock();
            if state.life.phase() == PoolPhase::Closed {
                return Err(state.life.refusal());
            }
            let Some(row) = state.nodes.get(node) else {
                let message = format!("the pool has no node {node}; it has {} nodes", state.nodes.len());
                return Err(Error::new(ErrorKind::NotFound, message));
            };
            if row.agent.is_none() {
                return Err(without_machine(node));
            }
            row.machine.id.clone()
        };
        if let Some(mover) = self.movers.get(node, &machine) {
            return Ok(mover);
        }
        let (done, reached) = oneshot::channel();
        self.command(Command::ReachMover { node, done });
        // If the driver is gone, the channel closes without an answer.
        let mover = reached.await.unwrap_or_else(|_| Err(self.refusal()))?;
        self.movers.put(node, mover.clone());
        Ok(mover)
    }
}

/// The error for files of a node that is lost, or is being replaced.
pub(crate) fn without_machine(node: NodeIndex) -> Error {
    Error::new(ErrorKind::NodeLost, format!("node {node} is lost, and its files with it"))
        .with_hint("another machine that takes its place begins without files")
}

fn unexpected(got: &FromMover) -> Error {
    Error::new(ErrorKind::Protocol, format!("the node's mover gave another answer than was asked for: {got:?}"))
}
