//! Owns a pool's life, and is the only place that spawns: brings the pool up, answers what happens to it, and ends all of it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

use super::bring_up::{Blueprint, Node};
use super::cleanup::Cleanup;
use super::shared::{Shared, closed};
use super::status::PoolPhase;
use super::world::World;
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{Generation, NodeIndex, Rank};

/// What the driver is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// A worker of a pool that is no world was lost.
    RestartWorker(Rank),
    /// A worker of a world was lost.
    RestartWorld {
        lost: Rank,
    },
    /// The connection to a worker ended.
    WorkerDisconnected {
        rank: Rank,
        generation: Generation,
        connection: u64,
        error: Option<Error>,
    },
    /// The connection to an agent ended.
    AgentLost {
        node: NodeIndex,
        error: Error,
    },
    Shutdown {
        deadline: Duration,
        done: Option<oneshot::Sender<Result<()>>>,
    },
}

/// A pool's life.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    cleanup: Cleanup,
    nodes: Vec<Node>,
    world: Option<World>,
    waiters: Vec<oneshot::Sender<Result<()>>>,
    deadline: Option<Duration>,
    /// Shows events on the terminal.
    screen: Option<JoinHandle<()>>,
}

/// Spawns onto the runtime of the caller, within the caller's span.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future.in_current_span())
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        commands: mpsc::UnboundedReceiver<Command>,
        cleanup: Cleanup,
        screen: Option<JoinHandle<()>>,
    ) -> Self {
        Self { shared, commands, cleanup, nodes: Vec::new(), world: None, waiters: Vec::new(), deadline: None, screen }
    }

    /// Brings the pool up, tells whether it is ready, runs it, and ends it. Whatever happens, the end is reached.
    pub(crate) async fn run(mut self, blueprint: Blueprint, mut ready: oneshot::Sender<Result<()>>) {
        let shared = Arc::clone(&self.shared);
        let cleanup = self.cleanup.clone();
        let timers = spawn(run_timers(Arc::clone(&shared)));
        let up = tokio::select! {
            up = blueprint.bring_up(&shared, &cleanup) => up,
            // Nobody waits for the pool any more.
            () = ready.closed() => Err(closed()),
        };
        match up {
            Ok((nodes, world)) => {
                self.nodes = nodes;
                self.world = Some(world);
                let delivered = ready.send(Ok(())).is_ok();
                if delivered {
                    self.serve().await;
                }
                self.end(None).await;
            }
            Err(error) => {
                let error = self.end(Some(error)).await;
                if let Some(error) = error {
                    let _ = ready.send(Err(error));
                }
            }
        }
        timers.abort();
    }

    /// Answers what happens until the pool is to end.
    async fn serve(&mut self) {
        while let Some(command) = self.commands.recv().await {
            if let Command::Shutdown { deadline, done } = command {
                self.deadline = Some(deadline);
                self.waiters.extend(done);
                return;
            }
            if let Err(error) = self.on_command(command).await {
                tracing::error!(pool = %self.shared.pool, %error, "the pool cannot go on");
                self.shared.act(|state, _| state.scheduler.fail(error));
            }
        }
    }

    async fn on_command(&mut self, command: Command) -> Result<()> {
        match command {
            Command::RestartWorker(rank) => self.restart(&[rank]).await,
            Command::RestartWorld { lost } => {
                tracing::warn!(pool = %self.shared.pool, rank = lost.0, "a worker of the world was lost: all are started again");
                let ranks: Vec<Rank> = (0..self.shared.lock().workers.len() as u32).map(Rank).collect();
                self.restart(&ranks).await
            }
            Command::WorkerDisconnected { rank, generation, connection, error } => {
                let is_current =
                    self.shared.lock().slot(rank, generation).is_some_and(|slot| slot.connection == connection);
                // A worker that was started again, or connected to again, has another connection by now.
                if is_current {
                    self.on_disconnected(rank, generation, error).await;
                }
                Ok(())
            }
            Command::AgentLost { node, error } => {
                self.shared.emit(PoolEvent::NodeLost { node, error: error.clone() });
                Err(Error::new(ErrorKind::NodeLost, format!("node {node} was lost: its agent is gone"))
                    .with_source(error)
                    .with_hint("the pool takes no more tasks; leave its scope, which ends what is left of it, and start another"))
            }
            Command::Shutdown { .. } => Ok(()),
        }
    }

    /// Starts workers again; all of a world as its next generation.
    async fn restart(&mut self, ranks: &[Rank]) -> Result<()> {
        let Some(world) = &self.world else { return Ok(()) };
        if self.shared.lock().scheduler.failure().is_some() {
            return Ok(());
        }
        let (generation, all) = {
            let state = self.shared.lock();
            (state.generation, ranks.len() == state.workers.len())
        };
        let grace = self.shared.limits.grace;
        if all {
            let stops = self.nodes.iter().map(|node| {
                let workers = (0..world.cluster.workers_per_node).collect();
                node.agent.stop(generation, workers, Duration::ZERO, grace + STOP)
            });
            futures_util::future::try_join_all(stops).await?;
        }
        let next = if all { Generation(generation.0 + 1) } else { generation };
        let mut later = Vec::new();
        let started = tokio::select! {
            started = world.start(&self.shared, &self.nodes, next, ranks) => started,
            // A start can take as long as the hooks may; the end of the pool does not wait for it.
            () = until_end(&mut self.commands, &mut later) => Ok(()),
        };
        later.into_iter().for_each(|command| self.shared.command(command));
        started.map_err(|error| {
            Error::new(error.kind(), format!("the workers could not be started again: {}", error.message()))
                .with_source(error)
        })
    }

    /// A worker's connection ended. If its process is gone its agent tells; if it lives, the client connects again.
    async fn on_disconnected(&mut self, rank: Rank, generation: Generation, error: Option<Error>) {
        let node = self.shared.lock().scheduler.node_of(rank);
        let Some((world, node)) = self.world.as_ref().zip(self.nodes.iter().find(|other| other.index == node)) else {
            return;
        };
        let mut later = Vec::new();
        let connected = tokio::select! {
            _ = self.shared.exited(rank, generation) => Ok(false),
            connected = reconnect(world, &self.shared, node, rank, generation) => connected.map(|()| true),
            // Nor does the end of the pool wait for this.
            () = until_end(&mut self.commands, &mut later) => Ok(false),
        };
        later.into_iter().for_each(|command| self.shared.command(command));
        let Err(failure) = connected else {
            if connected.is_ok_and(|connected| !connected) {
                return;
            }
            tracing::info!(pool = %self.shared.pool, rank = rank.0, ?error, "the connection to the worker was lost, and is there again");
            return;
        };
        tracing::warn!(pool = %self.shared.pool, rank = rank.0, error = %failure, "the worker cannot be reached and is ended");
        let pid = self.shared.lock().slot(rank, generation).and_then(|slot| slot.pid).unwrap_or_default();
        self.shared.kill(rank, WorkerExit::Unreachable);
        if tokio::time::timeout(self.shared.limits.grace, self.shared.exited(rank, generation)).await.is_err() {
            self.shared.on_exited(rank, generation, pid, &WorkerExit::Unreachable);
        }
    }

    /// Ends everything that was started; gives back the error that the pool failed with, if it did.
    async fn end(&mut self, error: Option<Error>) -> Option<Error> {
        let deadline = self.deadline.unwrap_or(self.shared.limits.shutdown);
        self.shared.emit(PoolEvent::Draining);
        self.shared.close_queue();
        self.shared.act(|state, now| {
            state.phase = PoolPhase::Draining;
            let reason = error.clone().unwrap_or_else(|| {
                Error::new(ErrorKind::Closed, "the pool was shut down before the task ended")
                    .with_hint("await the tasks before the scope ends, or give `shutdown` to a pool that has none")
            });
            state.scheduler.drain(now, &reason)
        });
        let nodes = std::mem::take(&mut self.nodes);
        let ended = self.cleanup.end(&self.shared, nodes, deadline).await;
        self.shared.act(|state, now| {
            state.phase = PoolPhase::Closed;
            state.nodes.clear();
            state.agents.clear();
            state.scheduler.drain(now, &closed());
        });
        self.shared.emit(PoolEvent::Closed);
        if let Some(screen) = self.screen.take() {
            // The last lines are to be seen before the caller goes on; a terminal that is stuck is not waited for.
            let _ = tokio::time::timeout(SCREEN, screen).await;
        }
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Shutdown { done: Some(done), .. } = command {
                self.waiters.push(done);
            }
        }
        for waiter in self.waiters.drain(..) {
            let _ = waiter.send(ended.clone());
        }
        if let Err(left) = &ended {
            tracing::error!(pool = %self.shared.pool, error = %left, "not everything could be ended");
        }
        match (error, ended) {
            (Some(error), Err(left)) => Some(error.with_context("cleanup", left)),
            (error, _) => error,
        }
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("pool", &self.shared.pool).finish_non_exhaustive()
    }
}

/// Puts commands aside until one of them ends the pool: its caller wants that, or a node is lost.
async fn until_end(commands: &mut mpsc::UnboundedReceiver<Command>, later: &mut Vec<Command>) {
    loop {
        match commands.recv().await {
            Some(command) => {
                let ends = matches!(command, Command::Shutdown { .. } | Command::AgentLost { .. });
                later.push(command);
                if ends {
                    return;
                }
            }
            None => std::future::pending().await,
        }
    }
}

/// Connects to a worker again, several times if need be.
async fn reconnect(world: &World, shared: &Arc<Shared>, node: &Node, rank: Rank, generation: Generation) -> Result<()> {
    let mut pause = Duration::from_millis(10);
    loop {
        match world.reconnect(shared, node, rank, generation).await {
            Err(_) if pause < RECONNECT => {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            result => return result,
        }
    }
}

/// Fires the scheduler's timers.
async fn run_timers(shared: Arc<Shared>) {
    loop {
        let next = shared.lock().scheduler.next_timeout();
        let next = next.map_or_else(|| Instant::now() + IDLE, Instant::from_std);
        tokio::select! {
            () = tokio::time::sleep_until(next) => shared.act(|state, now| state.scheduler.on_timeout(now)),
            () = shared.earlier.notified() => {}
        }
    }
}

/// What the terminal gets to show the last events.
const SCREEN: Duration = Duration::from_secs(1);
/// How long the driver sleeps when nothing is due.
const IDLE: Duration = Duration::from_secs(3600);
/// The longest pause between two tries to reach a worker whose connection was lost.
const RECONNECT: Duration = Duration::from_secs(5);
/// What an agent gets to end process trees, beside the grace.
const STOP: Duration = Duration::from_secs(10);
