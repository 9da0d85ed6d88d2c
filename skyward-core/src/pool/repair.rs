//! What takes time when something is lost: reach it again, start it again, replace it. Each has a deadline; each may be dropped at any moment.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;

use super::cleanup::Cleanup;
use super::lifecycle::Workers;
use super::node::{Launch, Node, Recipe};
use super::purchase::{Patience, Purchase};
use super::shared::Shared;
use super::world::{ANSWER, NotStarted, World, lost_if_silent};
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::provider::Checked;

/// Connects to an agent again whose connection was lost, unless the provider reports its machine as ending or gone: it is asked at once, and again for as long as it takes.
pub(super) async fn reach_agent(
    provider: Checked,
    shared: Arc<Shared>,
    node: Arc<Node>,
    workers_per_node: u32,
) -> Result<Node> {
    tokio::select! {
        biased;
        reached = reconnect_agent(&shared, &node, workers_per_node) => reached,
        gone = provider.until_gone(&node.machine.id, Duration::ZERO) => Err(gone),
    }
}

/// Connects to an agent again. On the client's own host a socket at which nobody listens says at once that nobody ever will.
async fn reconnect_agent(shared: &Arc<Shared>, node: &Node, workers_per_node: u32) -> Result<Node> {
    let patience = if node.place.on_client_host { AT_HAND } else { shared.limits.lease / 2 };
    let end = Instant::now() + patience;
    let mut pause = SHORTEST;
    loop {
        let error = match node.reconnect(shared, workers_per_node).await {
            Ok(node) => return Ok(node),
            Err(error) => error,
        };
        // A machine that is known to be gone does not come back.
        if error.kind() == ErrorKind::NotFound || Instant::now() + pause >= end {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

/// The error of an agent whose connection ended with `cause` and that was not reached again. How its machine ended, where the provider says so, is how its workers did.
pub(super) fn not_reached(cause: Error, error: Error) -> Error {
    cause.with_exit_of(&error).with_context("connecting again", error)
}

/// Connects to a worker again whose connection was lost. If its process is gone its agent tells; one that runs something is waited for, however long that takes; one that lives, runs nothing and
/// cannot be reached is ended.
///
/// # Errors
///
/// It can neither be reached nor ended: its node is of no use.
pub(super) async fn reach_worker(
    world: Arc<World>,
    shared: Arc<Shared>,
    node: Arc<Node>,
    rank: Rank,
    generation: Generation,
) -> Result<()> {
    tokio::select! {
        biased;
        _ = shared.exited(rank, generation) => return Ok(()),
        () = reconnect(&world, &shared, &node, rank, generation) => {
            tracing::info!(pool = %shared.pool, rank = rank.0, "the connection to the worker was lost, and is there again");
            return Ok(());
        }
        () = until_idle(&shared, rank, generation) => {}
    }
    tracing::warn!(pool = %shared.pool, rank = rank.0, "the worker runs nothing, cannot be reached and is ended");
    shared.kill(rank, WorkerExit::Unreachable);
    match tokio::time::timeout(shared.limits.grace + STOP, shared.exited(rank, generation)).await {
        Ok(_) => Ok(()),
        Err(_) => {
            let what = format!("the worker of rank {rank} cannot be reached, and its agent does not end it");
            Err(Error::new(ErrorKind::Timeout, what))
        }
    }
}

/// Waits until a worker that does not answer is known to run nothing. What it has not begun goes elsewhere meanwhile.
async fn until_idle(shared: &Shared, rank: Rank, generation: Generation) {
    loop {
        tokio::time::sleep(UNANSWERED).await;
        if !shared.is_busy(rank, generation).await {
            return;
        }
    }
}

/// Ends what is left of a lost node's machine, and makes another one ready. Whether the old one is confirmed gone is told, and the new one does not wait for it longer than a shutdown may take.
pub(super) async fn replace(
    recipe: Arc<Recipe>,
    cleanup: Cleanup,
    shared: Arc<Shared>,
    launch: Launch,
    workers_per_node: u32,
) -> Result<Node> {
    let node = launch.node;
    let end = Instant::now() + shared.limits.shutdown;
    let gone = |machine: &crate::provider::Machine| {
        shared.emit(PoolEvent::NodeGone { node, machine: machine.id.clone() });
    };
    if let Err(error) = cleanup.retire(launch.machine, end, gone).await {
        tracing::error!(pool = %shared.pool, node = node.0, %error, "a lost machine is not confirmed gone");
        shared.emit(PoolEvent::NodeLeft { node, error });
    }
    let made = make(recipe, cleanup, Arc::clone(&shared), launch, workers_per_node, Patience::Wait).await;
    let made = match made {
        Ok(made) => {
            if let Some(port) = made.port {
                let mut state = shared.lock();
                state.rendezvous = Some((state.generation, port));
            }
            Ok(made)
        }
        made => made,
    };
    made.map_err(|error| {
        let what = format!("another machine for node {node} could not be made ready: {}", error.message());
        Error::new(error.kind(), what).with_exit_of(&error).with_source(error)
    })
}

/// Makes a further machine ready, on record first, and connects to its agent.
pub(super) async fn make(
    recipe: Arc<Recipe>,
    cleanup: Cleanup,
    shared: Arc<Shared>,
    launch: Launch,
    workers_per_node: u32,
    patience: Patience,
) -> Result<Node> {
    let limit = shared.limits.start + shared.limits.environment;
    let mut make = std::pin::pin!(async {
        cleanup.intend(std::iter::once((launch.id(&shared), launch.machine))).await?;
        let prepared = recipe.prepare(&shared, &cleanup, launch, Purchase::With(patience)).await?;
        let mut node = prepared.join(&shared, launch.node, workers_per_node).await?;
        if launch.node == NodeIndex(0) {
            // That of this generation was reserved on the head before this one.
            node.port = Some(node.agent.reserve_port(ANSWER).await?);
        }
        Ok(node)
    });
    match shared.until_ready(Instant::now(), limit, launch.machine, make.as_mut()).await {
        Ok(made) => made,
        Err(_) => {
            // What it waited for is known for as long as it is not dropped.
            let error = Error::new(ErrorKind::Timeout, format!("it was not ready after {limit:?}"))
                .with_hint("`Limits::start` and `Limits::environment` give more time");
            Err(shared.lock().waits.explain(error, Some(launch.machine)))
        }
    }
}

/// Starts workers again, those that still run among them: a world as its next generation.
pub(super) async fn start(
    world: Arc<World>,
    shared: Arc<Shared>,
    nodes: Vec<Arc<Node>>,
    workers: Workers,
) -> std::result::Result<(), NotStarted> {
    let per_node = world.cluster.workers_per_node;
    let generation = shared.lock().generation;
    let of = |rank: Rank| NodeIndex(rank.0 / per_node.max(1));
    match workers {
        Workers::World => {
            let stopped = stop(&shared, &nodes, (0..per_node).collect()).await;
            stopped.map_err(|error| NotStarted { node: NodeIndex(0), error })?;
            let ranks: Vec<Rank> = (0..nodes.len() as u32 * per_node).map(Rank).collect();
            world.start(&shared, &nodes, Generation(generation.0 + 1), &ranks).await
        }
        Workers::One(rank) => {
            let stopped = stop(&shared, &nodes, vec![rank.0 % per_node]).await;
            stopped.map_err(|error| NotStarted { node: of(rank), error })?;
            world.start(&shared, &nodes, generation, &[rank]).await
        }
    }
}

/// Starts the first workers of a pool. Where the connection to an agent is cut meanwhile and the agent can be reached
/// again, the workers start anew, as the next generation: the answer that says which of them run was lost.
///
/// # Errors
///
/// Workers do not start for another reason, the agent cannot be reached again, or connections are cut for longer than
/// [`Limits::hooks`](crate::spec::Limits::hooks).
pub(super) async fn start_first(
    world: &Arc<World>,
    provider: &Checked,
    shared: &Arc<Shared>,
    mut nodes: Vec<Arc<Node>>,
) -> Result<Vec<Arc<Node>>> {
    let per_node = world.cluster.workers_per_node;
    let end = Instant::now() + shared.limits.hooks;
    let ranks: Vec<Rank> = (0..nodes.len() as u32 * per_node).map(Rank).collect();
    let mut started = world.start(shared, &nodes, Generation(1), &ranks).await;
    while let Err(NotStarted { error, .. }) = started {
        let may_be_cut = matches!(error.kind(), ErrorKind::NodeLost | ErrorKind::Io) && Instant::now() < end;
        let silent = if may_be_cut { silent(nodes.clone()).await } else { Vec::new() };
        // An agent that is silent for long is no connection that was cut.
        if silent.is_empty() || silent.iter().any(|(.., cause)| cause.kind() != ErrorKind::Io) {
            return Err(error);
        }
        for (index, _, cause) in silent {
            let node = &mut nodes[index.0 as usize];
            *node = Arc::new(reach_first(provider, shared, node, per_node, cause).await?);
        }
        // Those that were ready are stopped, not lost.
        shared.act(|state, _| nodes.iter().for_each(|node| state.scheduler.retire(node.index)));
        started = start(Arc::clone(world), Arc::clone(shared), nodes.clone(), Workers::World).await;
    }
    Ok(nodes)
}

/// Connects to an agent again while the first workers start; `cause` is how its connection ended.
async fn reach_first(
    provider: &Checked,
    shared: &Arc<Shared>,
    node: &Arc<Node>,
    workers_per_node: u32,
    cause: Error,
) -> Result<Node> {
    tracing::warn!(pool = %shared.pool, node = node.index.0, error = %cause, "the connection to the agent was lost while the workers were started");
    shared.emit(PoolEvent::NodeDisconnected { node: node.index, error: cause.clone() });
    let reached = reach_agent(provider.clone(), Arc::clone(shared), Arc::clone(node), workers_per_node).await;
    let reached = reached.map_err(|error| lost_if_silent(node, not_reached(cause, error)))?;
    shared.on_agent_back(&reached);
    shared.emit(PoolEvent::NodeReconnected { node: node.index });
    Ok(reached)
}

/// Ends workers of these nodes at once.
pub(super) async fn stop(shared: &Shared, nodes: &[Arc<Node>], workers: Vec<u32>) -> Result<()> {
    let generation = shared.lock().generation;
    let deadline = shared.limits.grace + STOP;
    let stops = nodes.iter().map(|node| node.agent.stop(generation, workers.clone(), Duration::ZERO, deadline));
    try_join_all(stops).await.map(|_| ())
}

/// The nodes whose agents do not answer, with the connection that was tried.
pub(super) async fn silent(nodes: Vec<Arc<Node>>) -> Vec<(NodeIndex, u64, Error)> {
    let checks = nodes.iter().map(|node| async move {
        let error = node.agent.check(ANSWER).await.err()?;
        Some((node.index, node.agent.connection, error))
    });
    join_all(checks).await.into_iter().flatten().collect()
}

/// Connects to a worker again, however often it takes. A connection that stands is kept for long, since one that is given up stays in the worker's queue until it comes to it.
async fn reconnect(world: &World, shared: &Arc<Shared>, node: &Node, rank: Rank, generation: Generation) {
    let (mut pause, mut patience) = (SHORTEST, PATIENCE);
    while let Err(error) = world.reconnect(shared, node, rank, generation, patience).await {
        tracing::debug!(pool = %shared.pool, rank = rank.0, %error, "the worker is not reached yet");
        if error.kind() == ErrorKind::Timeout {
            patience = (patience * 2).min(LONGEST_PATIENCE);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
/// The longest pause between two tries to have a connection again.
const LONGEST: Duration = Duration::from_secs(5);
/// How long a connection stands on which a worker does not answer: first, and at most.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST_PATIENCE: Duration = Duration::from_secs(900);
/// After this time it is asked whether a worker that does not answer runs something, and again after each such time.
const UNANSWERED: Duration = Duration::from_secs(15);
/// How long an agent on the client's own host is looked for.
const AT_HAND: Duration = Duration::from_millis(100);
/// What an agent gets to end process trees, beside the grace.
const STOP: Duration = Duration::from_secs(10);
