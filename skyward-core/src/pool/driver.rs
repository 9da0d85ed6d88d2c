//! Owns a pool's life, and is the only place that spawns: brings the pool up, answers what happens to it, and ends all of it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tracing::Instrument;

use super::bring_up::Blueprint;
use super::cleanup::Cleanup;
use super::lifecycle::Workers;
use super::node::Node;
use super::pulse::watch_runtime;
use super::serving::Serving;
use super::shared::{Shared, closed};
use super::status::PoolPhase;
use crate::error::{Error, ErrorKind, Result};
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
    },
}

/// A pool's life.
pub(crate) struct Driver {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    cleanup: Cleanup,
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

/// Runs on a thread what waits for the system, within the caller's span.
pub(super) fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work))
}

impl Driver {
    pub(crate) fn new(
        shared: Arc<Shared>,
        commands: mpsc::UnboundedReceiver<Command>,
        cleanup: Cleanup,
        screen: Option<JoinHandle<()>>,
    ) -> Self {
        Self { shared, commands, cleanup, deadline: None, screen }
    }

    /// Brings the pool up, tells whether it is ready, runs it, and ends it. Whatever happens, the end is reached.
    pub(crate) async fn run(mut self, blueprint: Blueprint, mut ready: oneshot::Sender<Result<()>>) {
        let shared = Arc::clone(&self.shared);
        let cleanup = self.cleanup.clone();
        // They end with the driver, however that ends.
        let mut timers = JoinSet::new();
        timers.spawn(run_timers(Arc::clone(&shared)).in_current_span());
        timers.spawn(watch_runtime(Arc::clone(&shared)).in_current_span());
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
    }

    /// Answers what happens until the pool is to end.
    async fn serve(&mut self, serving: &mut Serving) {
        serving.begin_to_serve();
        loop {
            let look = serving.next_look();
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Shutdown { deadline }) => {
                        self.deadline = Some(deadline);
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
        self.shared.enter(PoolPhase::Draining);
        self.shared.close_queue();
        let reason = error.clone().unwrap_or_else(|| {
            Error::new(ErrorKind::Closed, "the pool was shut down before the task ended")
                .with_hint("await the tasks before the scope ends, or give `shutdown` to a pool that has none")
        });
        self.shared.act_in_slices(|state, now| state.scheduler.drain(now, &reason)).await;
        let ended = self.cleanup.end(&self.shared, nodes, deadline).await;
        self.shared.act(|state, now| {
            state.scheduler.drain(now, &closed());
            state.held.release_all();
        });
        self.shared.enter(PoolPhase::Closed);
        if let Some(screen) = self.screen.take() {
            // The last lines are to be seen before the caller goes on; a terminal that is stuck is not waited for.
            let _ = tokio::time::timeout(SCREEN, screen).await;
        }
        self.shared.conclude(ended.clone());
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
        let next = next_timeout(&shared).unwrap_or_else(|| Instant::now() + IDLE);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(next) => {
                shared.act_in_slices(|state, now| state.scheduler.on_timeout(now)).await;
                if next_timeout(&shared).is_some_and(|next| next <= Instant::now()) {
                    tokio::task::yield_now().await;
                }
            }
            () = shared.earlier.notified() => {}
        }
    }
}

fn next_timeout(shared: &Shared) -> Option<Instant> {
    shared.lock().next_timeout().map(Instant::from_std)
}

/// What the terminal gets to show the last events.
const SCREEN: Duration = Duration::from_secs(1);
/// How long the driver sleeps when nothing is due.
pub(super) const IDLE: Duration = Duration::from_secs(3600);
