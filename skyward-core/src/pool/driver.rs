//! Owns a pool's life, and is the only place that spawns: brings the pool up, answers what happens to it, and ends all of it.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;

use super::bring_up::{Blueprint, Started};
use super::cleanup::Cleanup;
use super::jobs::Jobs;
use super::lifecycle::{Job, Lifecycle, Step, Workers};
use super::node::{Launch, Node, Recipe};
use super::repair;
use super::shared::{Shared, closed};
use super::status::PoolPhase;
use super::world::World;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{Attempt, Generation, NodeIndex, Rank};

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

/// A pool that takes tasks.
struct Serving {
    shared: Arc<Shared>,
    cleanup: Cleanup,
    lifecycle: Lifecycle,
    jobs: Jobs<End>,
    world: Arc<World>,
    recipe: Arc<Recipe>,
    nodes: Vec<Place>,
    /// Nodes that have another machine whose workers do not all take tasks yet.
    replaced: BTreeSet<NodeIndex>,
}

/// A node's place in the pool.
struct Place {
    /// The machine that it had last.
    launch: Launch,
    /// None while it is lost.
    node: Option<Arc<Node>>,
}

/// What a job ends with.
enum End {
    /// An agent is connected: of the same machine, or of another one.
    Node(Result<Box<Node>>),
    Stopped(Result<()>),
    Started(Result<()>),
    /// Agents that do not answer, and what the start failed with.
    Examined(Vec<(NodeIndex, u64, Error)>, Error),
    /// A worker is there again, or has ended; or its node is of no use.
    Reached(Result<()>),
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
        serving.look_at_agents();
        loop {
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
                (job, end) = serving.jobs.next() => serving.on_end(job, end),
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

impl Serving {
    fn new(shared: &Arc<Shared>, cleanup: &Cleanup, started: Started) -> Self {
        let Started { nodes, world, recipe } = started;
        let per_node = world.cluster.workers_per_node;
        let joined = shared.lock().scheduler.is_joined();
        let place = |node: Arc<Node>| {
            let launch = Launch { node: node.index, as_node: node.machine.node, attempt: Attempt(1) };
            Place { launch, node: Some(node) }
        };
        Self {
            shared: Arc::clone(shared),
            cleanup: cleanup.clone(),
            lifecycle: Lifecycle::new(nodes.len() as u32, per_node, joined),
            jobs: Jobs::default(),
            world,
            recipe,
            nodes: nodes.into_iter().map(place).collect(),
            replaced: BTreeSet::new(),
        }
    }

    /// Gives up what is under way; what is left is to be ended.
    fn leave(self) -> (Vec<Arc<Node>>, Arc<World>) {
        drop(self.jobs);
        (self.nodes.into_iter().filter_map(|place| place.node).collect(), self.world)
    }

    fn on_command(&mut self, command: Command) {
        if self.has_failed() {
            return;
        }
        match command {
            Command::Restart(workers) => {
                let steps = self.lifecycle.on_workers_lost(workers);
                self.go(steps);
            }
            Command::Replace(node) => {
                let steps = self.lifecycle.on_replace(node);
                self.go(steps);
            }
            Command::WorkerDisconnected { rank, generation, connection } => {
                // A worker that was started again, or connected to again, has another connection by now.
                let is_current = self.shared.lock().slot(rank, generation).is_some_and(|slot| slot.is_on(connection));
                if is_current && let Some(node) = self.node(self.lifecycle.node_of(rank)) {
                    let (world, shared) = (Arc::clone(&self.world), Arc::clone(&self.shared));
                    let reach = repair::reach_worker(world, shared, node, rank, generation);
                    self.jobs.begin(Job::ReachWorker(rank), async move { End::Reached(reach.await) });
                }
            }
            Command::AgentGone { node, connection } => self.on_agent_gone(node, connection),
            Command::Shutdown { .. } => {}
        }
    }

    fn on_end(&mut self, job: Job, end: End) {
        if self.has_failed() {
            return;
        }
        match (job, end) {
            (Job::ReachAgent(index), End::Node(Ok(node))) => {
                let connection = node.agent.connection;
                self.shared.on_agent_back(&node);
                self.set(*node);
                let steps = self.lifecycle.on_agent_reached(index);
                self.go(steps);
                self.on_agent_gone(index, connection);
            }
            (Job::Replace(index), End::Node(Ok(node))) => {
                let connection = node.agent.connection;
                self.shared.set_node(&node);
                self.set(*node);
                self.replaced.insert(index);
                let steps = self.lifecycle.on_replaced(index);
                self.go(steps);
                self.on_agent_gone(index, connection);
            }
            (Job::ReachAgent(index) | Job::Replace(index), End::Node(Err(error))) => self.on_node_lost(index, error),
            (Job::Start(workers), End::Started(Ok(()))) => self.tell_replaced(workers),
            (Job::Start(workers), End::Started(Err(error))) => {
                tracing::warn!(pool = %self.shared.pool, %error, "workers could not be started again");
                let silent = repair::silent(self.nodes_of(workers));
                self.jobs.begin(Job::Examine(workers), async move { End::Examined(silent.await, error) });
            }
            (Job::Examine(workers), End::Examined(silent, error)) => {
                for (index, connection, error) in silent {
                    // One that is away is looked for already, and may have been found.
                    if self.lifecycle.is_up(index) && self.connection(index) == Some(connection) {
                        self.on_node_lost(index, error);
                    }
                }
                if self.lifecycle.are_up(workers) {
                    let rank = if let Workers::One(rank) = workers { rank } else { Rank(0) };
                    self.shared.act(|state, _| state.scheduler.on_start_failed(rank, &error));
                } else {
                    let steps = self.lifecycle.on_workers_lost(workers);
                    self.go(steps);
                }
            }
            (Job::StopWorld, End::Stopped(Err(error))) => {
                // They are stopped again before they are started.
                tracing::warn!(pool = %self.shared.pool, %error, "the workers of a world that has ended could not be stopped");
            }
            (Job::ReachWorker(rank), End::Reached(Err(error))) => {
                self.on_node_lost(self.lifecycle.node_of(rank), error);
            }
            _ => {}
        }
    }

    /// An agent may have been lost before there was anybody to be told.
    fn look_at_agents(&mut self) {
        for index in (0..self.nodes.len() as u32).map(NodeIndex) {
            if let Some(connection) = self.connection(index) {
                self.on_agent_gone(index, connection);
            }
        }
    }

    /// The connection to an agent has ended, if it has and is not one of before.
    fn on_agent_gone(&mut self, index: NodeIndex, connection: u64) {
        let Some(node) = self.node(index).filter(|node| node.agent.connection == connection) else { return };
        let Some(error) = node.agent.gone() else { return };
        if error.kind() == ErrorKind::Timeout {
            // It was silent for its whole lease: if it can, its machine ends itself.
            return self.on_node_lost(index, error.clone());
        }
        tracing::warn!(pool = %self.shared.pool, node = index.0, %error, "the connection to the agent was lost");
        let steps = self.lifecycle.on_agent_away(index);
        self.go(steps);
    }

    /// A node's machine is given up, or the one that was to replace it.
    fn on_node_lost(&mut self, index: NodeIndex, error: Error) {
        let Some(place) = self.nodes.get_mut(index.0 as usize) else { return };
        tracing::warn!(pool = %self.shared.pool, node = index.0, %error, "a node is lost");
        place.node = None;
        self.replaced.remove(&index);
        let steps = self.lifecycle.on_node_lost(index);
        self.go(steps);
        self.shared.emit(PoolEvent::NodeLost { node: index, error: error.clone() });
        self.shared.on_node_lost(index, &error);
    }

    fn go(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Begin(job) => self.begin(job),
                Step::End(job) => self.jobs.end(job),
            }
        }
    }

    fn begin(&mut self, job: Job) {
        let (shared, world) = (Arc::clone(&self.shared), Arc::clone(&self.world));
        let per_node = world.cluster.workers_per_node;
        match job {
            Job::ReachAgent(index) => {
                let Some(node) = self.node(index) else { return };
                let cause = node.agent.gone().cloned();
                let reach = repair::reach_agent(shared, node, per_node);
                self.jobs.begin(job, async move {
                    // What ended the connection says more than that there is none.
                    End::Node(reach.await.map(Box::new).map_err(|error| cause.unwrap_or(error)))
                });
            }
            Job::Replace(index) => {
                let Some(place) = self.nodes.get_mut(index.0 as usize) else { return };
                place.launch.attempt.0 += 1;
                let (recipe, cleanup, launch) = (Arc::clone(&self.recipe), self.cleanup.clone(), place.launch);
                let replace = repair::replace(recipe, cleanup, shared, launch, per_node);
                self.jobs.begin(job, async move { End::Node(replace.await.map(Box::new)) });
            }
            Job::StopWorld => {
                let nodes = self.nodes_of(Workers::World);
                self.jobs.begin(job, async move {
                    End::Stopped(repair::stop(&shared, &nodes, (0..per_node).collect()).await)
                });
            }
            Job::Start(workers) => {
                let start = repair::start(world, shared, self.nodes_of(workers), workers);
                self.jobs.begin(job, async move { End::Started(start.await) });
            }
            // These begin with what they are about.
            Job::Examine(_) | Job::ReachWorker(_) => {}
        }
    }

    /// Tells the nodes whose place is filled again.
    fn tell_replaced(&mut self, workers: Workers) {
        for index in self.lifecycle.nodes_of(workers) {
            let ready = {
                let state = self.shared.lock();
                self.lifecycle.ranks_of(index).all(|rank| state.scheduler.is_ready(rank))
            };
            if ready
                && self.replaced.remove(&index)
                && let Some(node) = self.node(index)
            {
                let (machine, address) = (node.machine.id.clone(), node.machine.address.clone());
                self.shared.emit(PoolEvent::NodeReplaced { node: index, machine, address });
            }
        }
    }

    /// A pool that has failed waits for its end, and nothing is repaired.
    fn has_failed(&mut self) -> bool {
        let failed = self.shared.lock().scheduler.failure().is_some();
        if failed {
            self.jobs.clear();
        }
        failed
    }

    fn set(&mut self, node: Node) {
        if let Some(place) = self.nodes.get_mut(node.index.0 as usize) {
            place.node = Some(Arc::new(node));
        }
    }

    fn node(&self, index: NodeIndex) -> Option<Arc<Node>> {
        self.nodes.get(index.0 as usize)?.node.clone()
    }

    fn connection(&self, index: NodeIndex) -> Option<u64> {
        self.node(index).map(|node| node.agent.connection)
    }

    fn nodes_of(&self, workers: Workers) -> Vec<Arc<Node>> {
        self.lifecycle.nodes_of(workers).into_iter().filter_map(|index| self.node(index)).collect()
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
const IDLE: Duration = Duration::from_secs(3600);
