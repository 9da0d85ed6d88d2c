//! Reads files on the nodes of a pool over the connections to their movers, which are opened when
//! somebody reads.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::shared::Shared;
use super::timing::{FIRST_MOVER_PAUSE, LONGEST_MOVER_PAUSE, MOVER_REACHABLE};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{PoolEvent, Transfer};
use crate::files::{Entry, Identity, LARGEST_PIECE, NodeFiles, NodePath, Piece};
use crate::ids::{MachineId, NodeIndex};
use crate::pool::command::Command;
use crate::pool::mover::{Line, Mover, Route};
use crate::worker::message::{FromMover, ToMover};

#[async_trait]
impl NodeFiles for Shared {
    async fn entries(&self, node: NodeIndex, path: &NodePath) -> Result<Vec<Entry>> {
        self.entries_on(node, None, path).await
    }

    async fn read(
        &self,
        node: NodeIndex,
        path: &NodePath,
        identity: Option<Identity>,
        offset: u64,
        length: u64,
    ) -> Result<Piece> {
        self.read_on(node, None, path, identity, offset, length).await
    }

    async fn discard(&self, node: NodeIndex, artifact: &str) -> Result<()> {
        let request = ToMover::Drop { artifact: artifact.to_owned() };
        match self.ask_mover(node, None, Line::Files, &request).await? {
            FromMover::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    fn report(&self, transfer: &Transfer) {
        self.emit(PoolEvent::Transfer(transfer.clone()));
    }
}

/// The files of a node as long as it has this machine: another one that takes its place has others.
pub(crate) struct MachineFiles {
    pub(crate) shared: Arc<Shared>,
    pub(crate) machine: MachineId,
}

#[async_trait]
impl NodeFiles for MachineFiles {
    async fn entries(&self, node: NodeIndex, path: &NodePath) -> Result<Vec<Entry>> {
        self.shared.entries_on(node, Some(&self.machine), path).await
    }

    async fn read(
        &self,
        node: NodeIndex,
        path: &NodePath,
        identity: Option<Identity>,
        offset: u64,
        length: u64,
    ) -> Result<Piece> {
        self.shared.read_on(node, Some(&self.machine), path, identity, offset, length).await
    }

    async fn discard(&self, node: NodeIndex, artifact: &str) -> Result<()> {
        self.shared.discard(node, artifact).await
    }

    fn report(&self, transfer: &Transfer) {
        self.shared.report(transfer);
    }
}

impl Shared {
    async fn entries_on(&self, node: NodeIndex, machine: Option<&MachineId>, path: &NodePath) -> Result<Vec<Entry>> {
        path.check()?;
        match self.ask_mover(node, machine, Line::Files, &ToMover::Stat { path: path.clone() }).await? {
            FromMover::Entries { entries, .. } => Ok(entries),
            _ => Err(unexpected()),
        }
    }

    async fn read_on(
        &self,
        node: NodeIndex,
        machine: Option<&MachineId>,
        path: &NodePath,
        identity: Option<Identity>,
        offset: u64,
        length: u64,
    ) -> Result<Piece> {
        path.check()?;
        if length > LARGEST_PIECE {
            let message = format!("a piece of {length} bytes was asked for; it has at most {LARGEST_PIECE}");
            return Err(Error::new(ErrorKind::InvalidSpec, message));
        }
        let read = ToMover::Read { path: path.clone(), identity, offset, length };
        match self.ask_mover(node, machine, Line::Files, &read).await? {
            FromMover::Piece(piece) if piece.bytes.len() as u64 <= length => Ok(piece),
            _ => Err(unexpected()),
        }
    }

    /// Sends a request to the mover of a node, as long as the node has this machine, if one is named.
    /// Over a connection that lasts, it may take its time: others may be before it. A lost connection
    /// is opened again and the request repeated, as long as the node can be reached at all: every
    /// request may be repeated.
    pub(crate) async fn ask_mover(
        &self,
        node: NodeIndex,
        machine: Option<&MachineId>,
        line: Line,
        request: &ToMover,
    ) -> Result<FromMover> {
        self.ask_reached(node, request, || self.mover(node, machine, line)).await
    }

    /// Sends a request as [`ask_mover`](Self::ask_mover), over connections that `reach` returns.
    pub(crate) async fn ask_reached<F: Future<Output = Result<Mover>>>(
        &self,
        node: NodeIndex,
        request: &ToMover,
        reach: impl Fn() -> F,
    ) -> Result<FromMover> {
        let mut pause = FIRST_MOVER_PAUSE;
        let mut failing: Option<Instant> = None;
        loop {
            let error = match reach().await {
                Ok(mover) => match mover.ask(request).await {
                    Err(error) if is_lost(&error) => error,
                    answered => return answered.map_err(|error| error.with_context("node", node)),
                },
                Err(error) if is_lost(&error) => error,
                Err(error) => return Err(error.with_context("node", node)),
            };
            if failing.get_or_insert_with(Instant::now).elapsed() >= MOVER_REACHABLE {
                return Err(error.with_context("node", node));
            }
            tracing::debug!(pool = %self.pool, node = node.0, %error, "the node's mover cannot be reached yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_MOVER_PAUSE);
        }
    }

    /// The connection to the mover of a node; a new one if there is none that lasts.
    async fn mover(&self, node: NodeIndex, expected: Option<&MachineId>, line: Line) -> Result<Mover> {
        let route = self.route_to_mover(node, line)?;
        let machine = {
            let state = self.lock();
            let Some(row) = state.nodes.get(node) else {
                let message = format!("the pool has no node {node}; it has {} nodes", state.nodes.len());
                return Err(Error::new(ErrorKind::NotFound, message));
            };
            if row.agent.is_none() || expected.is_some_and(|expected| *expected != row.machine.id) {
                return Err(without_machine(node));
            }
            row.machine.id.clone()
        };
        let reach = async {
            let (done, reached) = oneshot::channel();
            self.command(Command::ReachMover { node, line, done });
            // If the driver is gone, the channel closes without an answer.
            reached.await.unwrap_or_else(|_| Err(self.without_files()))
        };
        route.mover(&machine, reach).await
    }

    /// The route to the mover of a node.
    ///
    /// # Errors
    ///
    /// The pool has ended.
    pub(crate) fn route_to_mover(&self, node: NodeIndex, line: Line) -> Result<Arc<Route>> {
        self.movers.route(node, line).ok_or_else(|| self.without_files())
    }

    /// The error for files of a pool that has ended.
    fn without_files(&self) -> Error {
        let failure = self.lock().life.failure().cloned();
        failure
            .unwrap_or_else(|| Error::new(ErrorKind::Closed, "the pool has ended, and the files of its nodes with it"))
    }
}

/// Whether a request may be repeated over another connection.
fn is_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::Io && error.is_temporary()
}

/// The error for files of a node that is lost, or is being replaced.
pub(crate) fn without_machine(node: NodeIndex) -> Error {
    Error::new(ErrorKind::NodeLost, format!("node {node} is lost, and its files with it"))
        .with_hint("another machine that takes its place begins without files")
}

pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Protocol, "the node's mover gave another answer than was asked for")
}
