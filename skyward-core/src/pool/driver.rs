//! Owns a pool's life, and is the only place that spawns: brings the pool up, answers what happens to it, and ends all of it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

use super::bring_up::Blueprint;
use super::cleanup::Cleanup;
use super::lifecycle::Workers;
use super::node::Node;
use super::serving::Serving;
use super::shared::{Shared, closed};
use super::status::PoolPhase;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::spec::Nodes;

/// What the driver is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Workers were lost, or could not be started again.
    Restart(Workers),
    /// A node was lost.
    Replace(NodeIndex),
    /// The connection to a worker ended.
    WorkerDisconnected {
        rank: Rank,
        generation: Generation,
        connection: u64,
    },
    /// The connection to an agent ended.
    AgentGone {
        node: NodeIndex,
        connection: u64,
    },
    /// A node's machine is of no use.
    Sick(NodeIndex, Error),
    /// A node that is to leave has nothing more to do.
    Drained(NodeIndex),
    /// A world whose size is to change has nothing more to do.
    WorldIdle,
    /// The pool is to have another size.
    Resize {
        nodes: Nodes,
        done: oneshot::Sender<Result<()>>,
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
        Self { shared, commands, cleanup, waiters: Vec::new(), deadline: None, screen }
    }

    /// Brings the pool up, tells whether it is ready, runs it, and ends it. Whatever happens, the end is reached.
    pub(crate) async fn run(mut self, blueprint: Blueprint, mut ready: oneshot::Sender<Result<()>>) {
        let shared = Arc::clone(&self.shared);
        let cleanup = self.cleanup.clone();
        let timers = spawn(run_timers(Arc::clone(&shared)));
        let up = tokio::select! {
            biased;
            up = blueprint.bring_up(&shared, &cleanup) => up,
            // Nobody waits for the pool any more.
            () = ready.closed() => Err(closed()),
        };
        match up {
            Ok(started) => {
                let mut serving = Serving::new(&shared, &cleanup, started);
                if ready.send(Ok(())).is_ok() {
                    self.serve(&mut serving).await;
                }
                let (nodes, _world) = serving.leave();
                self.end(nodes, None).await;
            }
            Err(error) => {
                let error = self.end(Vec::new(), Some(error)).await;
                if let Some(error) = error {
                    let _ = ready.send(Err(error));
                }
            }
        }
        timers.abort();
    }

    /// Answers what happens until the pool is to end.
    async fn serve(&mut self, serving: &mut Serving) {
        serving.begin_to_serve();
        loop {
            let look = serving.next_look();
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Shutdown { deadline, done }) => {
                        self.deadline = Some(deadline);
                        self.waiters.extend(done);
                        return;
                    }
                    Some(command) => serving.on_command(command),
                    None => return,
                },
                () = serving.next_end() => {}
                () = tokio::time::sleep_until(look) => serving.look(),
            }
        }
    }

    /// Ends everything that was started; gives back the error that the pool failed with, if it did.
    async fn end(&mut self, nodes: Vec<Arc<Node>>, error: Option<Error>) -> Option<Error> {
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
            match command {
                Command::Shutdown { done: Some(done), .. } => self.waiters.push(done),
                Command::Resize { done, .. } => {
                    let _ = done.send(Err(closed()));
                }
                _ => {}
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

/// Fires the scheduler's timers.
async fn run_timers(shared: Arc<Shared>) {
    loop {
        let next = shared.lock().scheduler.next_timeout();
        let next = next.map_or_else(|| Instant::now() + IDLE, Instant::from_std);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(next) => shared.act(|state, now| state.scheduler.on_timeout(now)),
            () = shared.earlier.notified() => {}
        }
    }
}

/// What the terminal gets to show the last events.
const SCREEN: Duration = Duration::from_secs(1);
/// How long the driver sleeps when nothing is due.
pub(super) const IDLE: Duration = Duration::from_secs(3600);
