//! The jobs that repair a pool: reconnect, restart, replace. Each has a deadline, and each may be
//! dropped at any moment.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::generation::{NotStarted, World, lost_if_silent};
use super::make::{Node, Purchase, Recipe};
use super::timing::{
    AGENT_ANSWER, BUSY_CHECK, LOCAL_AGENT, LONGEST_RECONNECT_PAUSE, LONGEST_UNANSWERED, RECONNECT_PAUSE, STOP_MARGIN,
    UNANSWERED,
};
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::layout::Layout;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::fleet::directive::Workers;
use crate::pool::fleet::launch::Launch;
use crate::pool::tasks::shared::Shared;
use crate::provider::Checked;

/// Reconnects to an agent whose connection was lost, unless the provider reports the agent's
/// machine as ending or gone. The provider is queried at once, and again for as long as the
/// reconnecting takes.
pub(crate) async fn reach_agent(
    provider: Checked,
    shared: Arc<Shared>,
    node: Arc<Node>,
    layout: Layout,
) -> Result<Node> {
    tokio::select! {
        biased;
        reached = reconnect_agent(&shared, &node, layout) => reached,
        gone = provider.until_gone(&node.machine.id, Duration::ZERO) => Err(gone),
    }
}

/// Reconnects to an agent. On the client's own host, a socket without a listener shows at once that
/// the agent has ended, so the attempt is short.
async fn reconnect_agent(shared: &Arc<Shared>, node: &Node, layout: Layout) -> Result<Node> {
    let patience = if node.place.on_client_host { LOCAL_AGENT } else { shared.limits.lease / 2 };
    let end = Instant::now() + patience;
    let mut pause = RECONNECT_PAUSE;
    loop {
        let error = match node.reconnect(shared, layout).await {
            Ok(node) => return Ok(node),
            Err(error) => error,
        };
        // A machine that is known to be gone does not come back.
        if error.kind() == ErrorKind::NotFound || Instant::now() + pause >= end {
            return Err(error);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RECONNECT_PAUSE);
    }
}

/// The error of an agent whose connection ended with `cause` and that could not be reached again.
/// If the provider reports how the machine ended, the agent's workers ended in the same way.
pub(crate) fn not_reached(cause: Error, error: Error) -> Error {
    cause.with_exit_of(&error).with_context("connecting again", error)
}

/// Reconnects to a worker whose connection was lost:
///
/// - If the worker's process is gone, its agent reports that.
/// - If the worker runs something, this waits for it, however long that takes.
/// - If the worker lives, runs nothing and cannot be reached, it is ended.
///
/// # Errors
///
/// The worker can neither be reached nor ended: its node is not usable.
pub(crate) async fn reach_worker(
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
            tracing::info!(pool = %shared.pool, rank = rank.0, "the connection to the worker was lost and has been restored");
            return Ok(());
        }
        () = until_idle(&shared, rank, generation) => {}
    }
    tracing::warn!(pool = %shared.pool, rank = rank.0, "the worker runs nothing and cannot be reached; it is ended");
    shared.kill(rank, WorkerExit::Unreachable);
    match tokio::time::timeout(shared.limits.grace + STOP_MARGIN, shared.exited(rank, generation)).await {
        Ok(_) => Ok(()),
        Err(_) => {
            let what = format!("the worker of rank {rank} cannot be reached, and its agent does not end it");
            Err(Error::new(ErrorKind::Timeout, what))
        }
    }
}

/// Waits until a worker that does not answer is known to run nothing. Meanwhile, tasks that the
/// worker has not begun are given to other workers.
async fn until_idle(shared: &Shared, rank: Rank, generation: Generation) {
    loop {
        tokio::time::sleep(BUSY_CHECK).await;
        if !shared.is_busy(rank, generation).await {
            return;
        }
    }
}

/// Ends what is left of a lost node's machine, and makes another one ready. An event reports if the
/// old machine is not confirmed gone; the new machine waits for that no longer than a shutdown may
/// take.
pub(crate) async fn replace(
    recipe: Arc<Recipe>,
    cleanup: Cleanup,
    shared: Arc<Shared>,
    launch: Launch,
    layout: Layout,
) -> Result<Node> {
    let node = launch.node;
    let purchase = recipe.replacement(node);
    let end = Instant::now() + shared.limits.shutdown;
    let gone = |machine: &crate::provider::Machine| {
        shared.emit(PoolEvent::NodeGone { node, machine: machine.id.clone() });
    };
    if let Err(error) = cleanup.retire(launch.machine, end, gone).await {
        shared.emit(PoolEvent::NodeUnconfirmed { node, error });
    }
    let made = make(recipe, cleanup, Arc::clone(&shared), launch, layout, purchase, Some(node)).await;
    let made = match made {
        Ok(made) => {
            if let Some(port) = made.port {
                shared.lock().rendezvous.move_to(port);
            }
            Ok(made)
        }
        made => made,
    };
    made.map_err(|error| {
        let what = format!("another machine for node {node} could not be made ready");
        let made = match error.refusal() {
            Some(refusal) => Error::refused(refusal.clone(), what),
            None => Error::new(error.kind(), what).with_exit_of(&error),
        };
        let made = if error.is_temporary() { made.temporary() } else { made };
        made.with_source(error)
    })
}

/// Makes another machine ready, which is put on record first, and connects to its agent. `place` is
/// the node whose place the machine will take; `None` for a further machine, which becomes a new
/// node.
pub(crate) async fn make(
    recipe: Arc<Recipe>,
    cleanup: Cleanup,
    shared: Arc<Shared>,
    launch: Launch,
    layout: Layout,
    purchase: Purchase,
    place: Option<NodeIndex>,
) -> Result<Node> {
    let limit = shared.limits.start + shared.limits.environment;
    let mut make = std::pin::pin!(async {
        cleanup.intend(std::iter::once((launch.id(&shared.pool), launch.machine))).await?;
        let prepared = recipe.prepare(&shared, &cleanup, launch, purchase).await?;
        let mut node = prepared.join(&shared, launch.node, layout).await?;
        if place == Some(NodeIndex(0)) {
            // The port of the present generation was reserved on the machine that was the head
            // before.
            node.port = Some(node.agent.reserve_port(AGENT_ANSWER).await?);
        }
        Ok(node)
    });
    match shared.until_ready(Instant::now(), limit, launch.machine, make.as_mut()).await {
        Ok(made) => made,
        Err(_) => {
            // The reason of the wait is known only until `make` is dropped.
            let error = Error::new(ErrorKind::Timeout, format!("the machine was not ready after {limit:?}"))
                .with_hint("`Limits::start` and `Limits::environment` give more time");
            Err(shared.lock().making.explain(error, Some(launch.machine)))
        }
    }
}

/// Restarts workers, also those that still run. A world is restarted as its next generation.
pub(crate) async fn start(
    world: Arc<World>,
    shared: Arc<Shared>,
    nodes: Vec<Arc<Node>>,
    workers: Workers,
) -> std::result::Result<(), NotStarted> {
    let layout = world.cluster.layout();
    let generation = shared.lock().rendezvous.generation();
    match workers {
        Workers::World => {
            let stopped = stop(&shared, &nodes, layout.all_workers()).await;
            stopped.map_err(|error| NotStarted { node: NodeIndex(0), error })?;
            let ranks: Vec<Rank> = layout.ranks(nodes.len() as u32).collect();
            world.start(&shared, &nodes, Generation(generation.0 + 1), &ranks).await
        }
        Workers::One(rank) => {
            let stopped = stop(&shared, &nodes, vec![layout.worker(rank)]).await;
            stopped.map_err(|error| NotStarted { node: layout.node(rank), error })?;
            world.start(&shared, &nodes, generation, &[rank]).await
        }
    }
}

/// Starts the first workers of a pool. If the connection to an agent is cut meanwhile and the agent
/// can be reached again, all workers are started again, as the next generation, because the answer
/// that says which workers run was lost.
///
/// # Errors
///
/// - Workers do not start for another reason.
/// - The agent cannot be reached again.
/// - Connections are cut for longer than [`Limits::hooks`](crate::spec::Limits::hooks).
pub(crate) async fn start_first(
    world: &Arc<World>,
    provider: &Checked,
    shared: &Arc<Shared>,
    mut nodes: Vec<Arc<Node>>,
) -> Result<Vec<Arc<Node>>> {
    let layout = world.cluster.layout();
    let end = Instant::now() + shared.limits.hooks;
    let ranks: Vec<Rank> = layout.ranks(nodes.len() as u32).collect();
    let mut started = world.start(shared, &nodes, Generation(1), &ranks).await;
    while let Err(NotStarted { error, .. }) = started {
        let may_be_cut = matches!(error.kind(), ErrorKind::NodeLost | ErrorKind::Io) && Instant::now() < end;
        let silent = if may_be_cut { silent(nodes.clone()).await } else { Vec::new() };
        // An agent that has been silent for long does not merely have a cut connection.
        if silent.is_empty() || silent.iter().any(|(.., cause)| cause.kind() != ErrorKind::Io) {
            return Err(error);
        }
        for (index, _, cause) in silent {
            let node = &mut nodes[index.0 as usize];
            *node = Arc::new(reach_first(provider, shared, node, layout, cause).await?);
        }
        // Workers that were ready are stopped, not lost.
        shared.act(|state, _| nodes.iter().for_each(|node| state.scheduler.retire(node.index)));
        started = start(Arc::clone(world), Arc::clone(shared), nodes.clone(), Workers::World).await;
    }
    Ok(nodes)
}

/// Reconnects to an agent while the first workers start; `cause` is how its connection ended.
async fn reach_first(
    provider: &Checked,
    shared: &Arc<Shared>,
    node: &Arc<Node>,
    layout: Layout,
    cause: Error,
) -> Result<Node> {
    tracing::warn!(pool = %shared.pool, node = node.index.0, error = %cause, "the connection to the agent was lost while the workers were started");
    shared.emit(PoolEvent::NodeDisconnected { node: node.index, error: cause.clone() });
    let reached = reach_agent(provider.clone(), Arc::clone(shared), Arc::clone(node), layout).await;
    let reached = reached.map_err(|error| lost_if_silent(node, not_reached(cause, error)))?;
    shared.on_agent_back(&reached);
    shared.emit(PoolEvent::NodeReconnected { node: node.index });
    Ok(reached)
}

/// Stops workers of these nodes at once, without a grace period. A node that cannot be reached
/// does not keep the others from being asked. Returns the first error.
pub(crate) async fn stop(shared: &Shared, nodes: &[Arc<Node>], workers: Vec<u32>) -> Result<()> {
    let generation = shared.lock().rendezvous.generation();
    let deadline = shared.limits.grace + STOP_MARGIN;
    let stops = nodes.iter().map(|node| node.agent.stop(generation, workers.clone(), Duration::ZERO, deadline));
    join_all(stops).await.into_iter().collect()
}

/// The nodes whose agents do not answer, each with the connection that was tried and the error.
pub(crate) async fn silent(nodes: Vec<Arc<Node>>) -> Vec<(NodeIndex, u64, Error)> {
    let checks = nodes.iter().map(|node| async move {
        let error = node.agent.check(AGENT_ANSWER).await.err()?;
        Some((node.index, node.agent.connection, error))
    });
    join_all(checks).await.into_iter().flatten().collect()
}

/// Reconnects to a worker, however many attempts it takes. An open connection is kept for long,
/// because a connection that is given up stays in the worker's queue until the worker looks at it.
async fn reconnect(world: &World, shared: &Arc<Shared>, node: &Node, rank: Rank, generation: Generation) {
    let (mut pause, mut patience) = (RECONNECT_PAUSE, UNANSWERED);
    while let Err(error) = world.reconnect(shared, node, rank, generation, patience).await {
        tracing::debug!(pool = %shared.pool, rank = rank.0, %error, "cannot connect to the worker yet; retrying");
        if error.kind() == ErrorKind::Timeout {
            patience = (patience * 2).min(LONGEST_UNANSWERED);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RECONNECT_PAUSE);
    }
}
