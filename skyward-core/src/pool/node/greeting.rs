//! Opens the connection to a worker, exchanges hellos, and reads the connection until it ends.

use std::collections::VecDeque;
use std::sync::Arc;

use super::make::Node;
use super::timing::{GREET_PAUSE, LONGEST_GREET_PAUSE};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{Generation, Rank};
use crate::pool::command::Command;
use crate::pool::spawn::{OnEnd, spawn};
use crate::pool::tasks::failure::start_error;
use crate::pool::tasks::shared::Shared;
use crate::worker::link::{Reader, link};
use crate::worker::message::{FromWorker, StartedWorker, ToWorker};
use crate::worker::session;

/// A connection to a worker, after the hellos.
pub(super) struct Connected {
    reader: Reader,
    /// The number of the connection.
    connection: u64,
}

/// Exchanges hellos with a worker that is being started. A connection that is cut before the worker
/// answers is opened again, for a while; if the worker has ended, the agent reports that meanwhile.
pub(super) async fn greet_persistently(
    shared: &Arc<Shared>,
    node: &Node,
    generation: Generation,
    worker: &StartedWorker,
    rank: Rank,
) -> Result<Connected> {
    let mut pause = GREET_PAUSE;
    loop {
        let error = match greet(shared, node, generation, worker, rank).await {
            Err(error) if error.kind() == ErrorKind::Io && pause <= LONGEST_GREET_PAUSE => error,
            greeted => return greeted,
        };
        tracing::debug!(pool = %shared.pool, rank = rank.0, %error, "cannot connect to the worker yet; retrying");
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

/// Opens a worker's socket and exchanges hellos; returns when the worker has entered its hooks.
pub(super) async fn greet(
    shared: &Arc<Shared>,
    node: &Node,
    generation: Generation,
    worker: &StartedWorker,
    rank: Rank,
) -> Result<Connected> {
    let stream = node.remote.open(&worker.socket).await?;
    let (sender, writer, mut reader) = link(stream, shared.limits.max_frame_bytes);
    spawn(async move {
        // The reader notices the same loss and reports it.
        let _ = writer.run().await;
    });
    let (acknowledged, streams) = {
        let mut state = shared.lock();
        let acknowledged = state.row(rank, generation).map_or(0, |row| row.session.received());
        (acknowledged, state.streams(rank))
    };
    let (head, body) = ToWorker::Hello { generation: generation.0, acknowledged, streams: &streams }.encode()?;
    sender.push(&head, body)?;
    sender.flush();
    let mut waiting = VecDeque::new();
    let first = FromWorker::decode(reader.next(&mut waiting).await?)?;
    let FromWorker::Hello(hello) = first else {
        let what = format!("the worker of rank {rank} answered {first:?} instead of Hello");
        return Err(Error::new(ErrorKind::Protocol, what));
    };
    session::check_hello(&hello, worker.pid, generation, rank)?;
    if let Some(failure) = hello.failure {
        return Err(start_error(&failure, &shared.imports, &shared.requirements, node.index, rank));
    }
    let connection = shared.on_worker_connected(rank, generation, &sender, hello.received)?;
    if !waiting.is_empty() {
        shared.on_frames(rank, generation, connection, &mut waiting.into())?;
    }
    Ok(Connected { reader, connection })
}

/// Begins to read the messages of a worker.
pub(super) fn listen(shared: &Arc<Shared>, rank: Rank, generation: Generation, connected: Connected) {
    let connection = connected.connection;
    let reader = spawn(read(Arc::clone(shared), rank, generation, connected)).abort_handle();
    match shared.lock().row(rank, generation).filter(|row| row.connection.is_latest(connection)) {
        Some(row) => row.connection.set_reader(reader),
        None => reader.abort(),
    }
}

/// Passes the messages of a worker to the pool until the connection ends.
async fn read(shared: Arc<Shared>, rank: Rank, generation: Generation, connected: Connected) {
    let Connected { mut reader, connection } = connected;
    // Also if a subscriber of `tracing` panics: a connection that nobody reads is lost.
    let _end = OnEnd(|| {
        shared.on_read(rank, generation, connection);
        shared.command(Command::WorkerDisconnected { rank, generation, connection });
    });
    let error = reader.each(|frames| shared.on_frames(rank, generation, connection, frames)).await;
    tracing::debug!(pool = %shared.pool, rank = rank.0, ?error, "the connection to the worker ended");
}
