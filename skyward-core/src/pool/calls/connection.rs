//! The connection over which a worker calls: opened when the worker asks, and again when it is lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::driver::{self, Command};
use super::super::node::Node;
use super::super::shared::Shared;
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::ids::{Generation, Rank};
use crate::worker::calls::{CallerHello, FromCaller, ToCaller};
use crate::worker::codec::Frame;
use crate::worker::link::{Reader, Sender, link};
use crate::worker::message::PROTOCOL_VERSION;

/// Connects to a worker that calls, however often it takes, until the worker has ended. One that cannot be reached for
/// long is ended: nobody else can give its payload the outcomes that it waits for.
pub(in crate::pool) async fn reach_caller(shared: Arc<Shared>, node: Arc<Node>, rank: Rank, generation: Generation) {
    tokio::select! {
        biased;
        _ = shared.exited(rank, generation) => {}
        reached = persist(&shared, &node, rank, generation) => if let Err(error) = reached {
            tracing::warn!(
                pool = %shared.pool, rank = rank.0, %error,
                "the calls of the worker's payload cannot be reached, and the worker is ended"
            );
            shared.kill(rank, WorkerExit::Unreachable);
        }
    }
}

async fn persist(shared: &Arc<Shared>, node: &Node, rank: Rank, generation: Generation) -> Result<()> {
    let mut end = Instant::now() + LOST;
    let fruitless = shared.lock().calls_of(rank, generation).map_or(0, |calls| calls.fruitless);
    if fruitless >= FRUITLESS {
        let what = format!("{fruitless} connections to the calls of rank {rank} brought what is no message");
        return Err(Error::new(ErrorKind::Protocol, what));
    }
    // Connections that end at once, one after another, must not keep a processor busy.
    let mut pause = (SHORTEST * (1 << fruitless.min(16))).min(LONGEST);
    if fruitless > 1 {
        tokio::time::sleep(pause).await;
    }
    loop {
        let error = match tokio::time::timeout(ANSWER, connect(shared, node, rank, generation)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => Error::new(ErrorKind::Timeout, format!("the worker did not answer within {ANSWER:?}")),
        };
        // While the worker cannot be reached at all, nothing is wrong with its calls.
        if shared.lock().slot(rank, generation).is_some_and(|slot| !slot.is_read()) {
            end = Instant::now() + LOST;
        }
        if Instant::now() >= end {
            return Err(error);
        }
        tracing::debug!(pool = %shared.pool, rank = rank.0, %error, "the calls of the worker are not reached yet");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

async fn connect(shared: &Arc<Shared>, node: &Node, rank: Rank, generation: Generation) -> Result<()> {
    let known = {
        let mut state = shared.lock();
        state.calls_of(rank, generation).map(|calls| (calls.path.clone(), calls.pid, calls.session.acknowledge()))
    };
    let Some((path, pid, received)) = known else { return Ok(()) };
    let stream = node.remote.open(&path).await?;
    let (sender, writer, mut reader) = link(stream, shared.limits.max_frame);
    driver::spawn(async move {
        // The reader sees the same loss, and reports it.
        let _ = writer.run().await;
    });
    let (head, body) = ToCaller::hello(generation.0, received)?;
    sender.push(&head, body)?;
    sender.flush();
    let mut waiting = VecDeque::new();
    let first = FromCaller::decode(reader.next(&mut waiting).await?)?;
    let FromCaller::Hello(hello) = first else {
        let what = format!("the calls of rank {rank} answered {first:?} where Hello was due");
        return Err(Error::new(ErrorKind::Protocol, what));
    };
    check(&hello, pid, generation, rank)?;
    let Some(connection) = attach(shared, rank, generation, &sender, hello.received)? else { return Ok(()) };
    if !waiting.is_empty() {
        shared.on_call_frames(rank, generation, connection, &mut waiting.into())?;
    }
    let reader = driver::spawn(read(Arc::clone(shared), rank, generation, reader, connection)).abort_handle();
    match shared.lock().calls_of(rank, generation).filter(|calls| calls.connection == connection) {
        Some(calls) => calls.reader = Some(reader),
        None => reader.abort(),
    }
    Ok(())
}

/// The connection takes the place of the one before: what the worker has not received goes out again. Its number;
/// none, if the worker has ended.
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
    let what = format!("the calls of rank {rank} were due, and others answered: {hello:?}, not {due:?}");
    Err(Error::new(ErrorKind::Protocol, what))
}

/// Hands what a worker sends to the pool until the connection ends.
pub(super) async fn read(shared: Arc<Shared>, rank: Rank, generation: Generation, mut reader: Reader, connection: u64) {
    let take = |frames: &mut Vec<Frame>| {
        let taken = shared.on_call_frames(rank, generation, connection, frames);
        // A connection that is cut is no fault of the worker's, however often that happens.
        if taken.is_err()
            && let Some(calls) = shared.lock().calls_of(rank, generation)
        {
            calls.fruitless += 1;
        }
        taken
    };
    let error = reader.each(take).await;
    tracing::debug!(pool = %shared.pool, rank = rank.0, ?error, "the connection of the worker's calls ended");
    shared.command(Command::CallerDisconnected { rank, generation, connection });
}

/// What a worker gets to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// For how long a worker whose calls cannot be reached is tried.
const LOST: Duration = Duration::from_secs(60);
/// Connections over which came what is no message, one after another, after which a worker is ended.
const FRUITLESS: u32 = 40;
/// The pauses between two tries, each twice as long as the one before.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_secs(2);
