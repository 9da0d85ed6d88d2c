//! What takes time when something is lost: reach it again, start it again, replace it. Each has a deadline; each may be dropped at any moment.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;

use super::cleanup::Cleanup;
use super::lifecycle::Workers;
use super::node::{Launch, Node, Recipe};
use super::shared::Shared;
use super::world::{ANSWER, NotStarted, World};
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{Generation, NodeIndex, Rank};

/// Connects to an agent again whose connection was lost. On the client's own host a socket at which nobody listens says at once that nobody ever will.
pub(super) async fn reach_agent(shared: Arc<Shared>, node: Arc<Node>, workers_per_node: u32) -> Result<Node> {
    let patience = if node.machine.on_client_host { AT_HAND } else { shared.limits.lease / 2 };
    let end = Instant::now() + patience;
    let mut pause = SHORTEST;
    loop {
        let error = match node.reconnect(&shared, workers_per_node).await {
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

/// Connects to a worker again whose connection was lost. If its process is gone its agent tells; one that lives and cannot be reached is ended.
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
    let connected = tokio::select! {
        biased;
        _ = shared.exited(rank, generation) => return Ok(()),
        connected = reconnect(&world, &shared, &node, rank, generation) => connected,
    };
    let Err(error) = connected else {
        tracing::info!(pool = %shared.pool, rank = rank.0, "the connection to the worker was lost, and is there again");
        return Ok(());
    };
    tracing::warn!(pool = %shared.pool, rank = rank.0, %error, "the worker cannot be reached and is ended");
    shared.kill(rank, WorkerExit::Unreachable);
    match tokio::time::timeout(shared.limits.grace + STOP, shared.exited(rank, generation)).await {
        Ok(_) => Ok(()),
        Err(_) => {
            let what = format!("the worker of rank {rank} cannot be reached, and its agent does not end it");
            Err(Error::new(ErrorKind::Timeout, what).with_source(error))
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
    let made = make(recipe, cleanup, Arc::clone(&shared), launch, workers_per_node).await;
    let made = match made {
        Ok(made) if node == NodeIndex(0) => {
            // The port was reserved on the head that is lost.
            made.agent.reserve_port(ANSWER).await.map(|port| {
                let mut state = shared.lock();
                state.rendezvous = Some((state.generation, port));
                made
            })
        }
        made => made,
    };
    made.map_err(|error| {
        Error::new(
            error.kind(),
            format!("another machine for node {node} could not be made ready: {}", error.message()),
        )
        .with_source(error)
    })
}

/// Makes a further machine ready, on record first, and connects to its agent.
pub(super) async fn make(
    recipe: Arc<Recipe>,
    cleanup: Cleanup,
    shared: Arc<Shared>,
    launch: Launch,
    workers_per_node: u32,
) -> Result<Node> {
    let limit = shared.limits.start + shared.limits.environment;
    let make = async {
        cleanup.intend(std::iter::once((launch.id(&shared), launch.machine))).await?;
        let prepared = recipe.prepare(&shared, &cleanup, launch).await?;
        prepared.join(&shared, launch.node, workers_per_node).await
    };
    tokio::time::timeout(limit, make).await.unwrap_or_else(|_| {
        let hint = "`Limits::start` and `Limits::environment` give more time";
        Err(Error::new(ErrorKind::Timeout, format!("it was not ready after {limit:?}")).with_hint(hint))
    })
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

/// Connects to a worker again, several times if need be.
async fn reconnect(world: &World, shared: &Arc<Shared>, node: &Node, rank: Rank, generation: Generation) -> Result<()> {
    let mut pause = SHORTEST;
    loop {
        match world.reconnect(shared, node, rank, generation).await {
            Err(_) if pause < LONGEST => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            result => return result,
        }
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
/// The longest pause between two tries to have a connection again.
const LONGEST: Duration = Duration::from_secs(5);
/// How long an agent on the client's own host is looked for.
const AT_HAND: Duration = Duration::from_millis(100);
/// What an agent gets to end process trees, beside the grace.
const STOP: Duration = Duration::from_secs(10);
