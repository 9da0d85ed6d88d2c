//! The connection for the calls of a worker: opened when the worker asks for it, and again when it
//! is lost.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::ids::{Generation, Rank};
use crate::pool::command::Command;
use crate::pool::spawn::{OnEnd, spawn};
use crate::pool::tasks::shared::Shared;
use crate::pool::tasks::timing::{CALLER_ANSWER, CALLER_PAUSE, CALLER_REACHED, LONGEST_CALLER_PAUSE};
use crate::remote::{ByteStream, Remote};
use crate::worker::calls::{CallerHello, FromCaller, ToCaller};
use crate::worker::codec::Frame;
use crate::worker::link::{Reader, Sender, link};
use crate::worker::message::PROTOCOL_VERSION;

/// Connects to a worker that makes calls, however many attempts it takes, until the worker has
/// ended. A worker that cannot be reached for long is ended, because its payload can get the
/// outcomes that it waits for in no other way.
pub(crate) async fn reach_caller(shared: Arc<Shared>, remote: Arc<dyn Remote>, rank: Rank, generation: Generation) {
    tokio::select! {
        biased;
        _ = shared.exited(rank, generation) => {}
        reached = persist(&shared, remote.as_ref(), rank, generation) => if let Err(error) = reached {
            tracing::warn!(
                pool = %shared.pool, rank = rank.0, error = error.summary(),
                "the connection for the worker's calls cannot be opened; the worker is ended"
            );
            shared.kill(rank, WorkerExit::Unreachable);
        }
    }
}

async fn persist(shared: &Arc<Shared>, remote: &dyn Remote, rank: Rank, generation: Generation) -> Result<()> {
    let mut end = Instant::now() + CALLER_REACHED;
    let fruitless = shared.lock().calls_of(rank, generation).map_or(0, |calls| calls.fruitless);
    if fruitless >= FRUITLESS {
        let what = format!("{fruitless} connections for the calls of rank {rank} carried invalid messages");
        return Err(Error::new(ErrorKind::Protocol, what));
    }
    // Connections that end at once, one after another, must not keep a processor busy.
    let mut pause = (CALLER_PAUSE * (1 << fruitless.min(16))).min(LONGEST_CALLER_PAUSE);
    if fruitless > 1 {
        tokio::time::sleep(pause).await;
    }
    loop {
        let error = match connect(shared, remote, rank, generation).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // While the worker cannot be reached at all, nothing is wrong with its calls.
        if shared.lock().row(rank, generation).is_some_and(|row| !row.connection.is_read()) {
            end = Instant::now() + CALLER_REACHED;
        }
        if Instant::now() >= end {
            return Err(error);
        }
        tracing::debug!(pool = %shared.pool, rank = rank.0, %error, "the connection for the worker's calls is not open yet");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_CALLER_PAUSE);
    }
}

async fn connect(shared: &Arc<Shared>, remote: &dyn Remote, rank: Rank, generation: Generation) -> Result<()> {
    let known = {
        let mut state = shared.lock();
        state.calls_of(rank, generation).map(|calls| (calls.path.clone(), calls.pid, calls.session.acknowledge()))
    };
    let Some((path, pid, received)) = known else { return Ok(()) };
    // Opening it has a deadline of its own.
    let stream = remote.open(&path).await?;
    let greeted = greet(shared, stream, rank, generation, pid, received);
    let late = |_| Error::new(ErrorKind::Timeout, format!("the worker did not answer within {CALLER_ANSWER:?}"));
    tokio::time::timeout(CALLER_ANSWER, greeted).await.map_err(late)?
}

async fn greet(
    shared: &Arc<Shared>,
    stream: ByteStream,
    rank: Rank,
    generation: Generation,
    pid: u32,
    received: u64,
) -> Result<()> {
    let (sender, writer, mut reader) = link(stream, shared.limits.max_frame_bytes);
    spawn(async move {
        // The reader notices the same loss and reports it.
        let _ = writer.run().await;
    });
    let (head, body) = ToCaller::hello(generation.0, received)?;
    sender.push(&head, body)?;
    sender.flush();
    let mut waiting = VecDeque::new();
    let first = FromCaller::decode(reader.next(&mut waiting).await?)?;
    let FromCaller::Hello(hello) = first else {
        let what = format!("the socket for the calls of rank {rank} answered {first:?} instead of Hello");
        return Err(Error::new(ErrorKind::Protocol, what));
    };
    check(&hello, pid, generation, rank)?;
    let Some(connection) = attach(shared, rank, generation, &sender, hello.received)? else { return Ok(()) };
    if !waiting.is_empty() {
        shared.on_call_frames(rank, generation, connection, &mut waiting.into())?;
    }
    let reader = spawn(read(Arc::clone(shared), rank, generation, reader, connection)).abort_handle();
    match shared.lock().calls_of(rank, generation).filter(|calls| calls.connection == connection) {
        Some(calls) => calls.reader = Some(reader),
        None => reader.abort(),
    }
    Ok(())
}

/// Replaces the present connection by this one. Messages that the worker has not received are sent
/// again. Returns the number of the connection; `None` if the worker has ended.
pub(super) fn attach(
    shared: &Shared,
    rank: Rank,
    generation: Generation,
    link: &Sender,
    received: u64,
) -> Result<Option<u64>> {
    let connection = {
        let mut state = shared.lock();
        let Some(calls) = state.calls_of(rank, generation) else { return Ok(None) };
        for (head, body) in calls.session.on_connected(received)? {
            link.push(&head, body)?;
        }
        if let Some(before) = calls.link.replace(link.clone()) {
            before.close();
        }
        calls.connection += 1;
        calls.connection
    };
    link.flush();
    Ok(Some(connection))
}

fn check(hello: &CallerHello, pid: u32, generation: Generation, rank: Rank) -> Result<()> {
    let due = CallerHello { version: PROTOCOL_VERSION, pid, generation: generation.0, rank: rank.0, ..*hello };
    if *hello == due {
        return Ok(());
    }
    let what =
        format!("another worker answered on the socket for the calls of rank {rank}: {hello:?} instead of {due:?}");
    Err(Error::new(ErrorKind::Protocol, what))
}

/// Passes the messages of a worker to the pool until the connection ends.
pub(super) async fn read(shared: Arc<Shared>, rank: Rank, generation: Generation, mut reader: Reader, connection: u64) {
    let _end = OnEnd(|| shared.command(Command::CallerDisconnected { rank, generation, connection }));
    let take = |frames: &mut Vec<Frame>| {
        let taken = shared.on_call_frames(rank, generation, connection, frames);
        // The worker is not to blame for connections that are cut, however often that happens.
        if taken.is_err()
            && let Some(calls) = shared.lock().calls_of(rank, generation)
        {
            calls.fruitless += 1;
        }
        taken
    };
    let error = reader.each(take).await;
    tracing::debug!(pool = %shared.pool, rank = rank.0, ?error, "the connection of the worker's calls ended");
}

/// The number of connections in a row with invalid messages after which a worker is ended.
const FRUITLESS: u32 = 40;
