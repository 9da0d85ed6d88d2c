//! A pool that takes tasks: what happens to it, and what is begun because of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::bring_up::Started;
use super::calls::reach_caller;
use super::cleanup::Cleanup;
use super::driver::Command;
use super::jobs::Jobs;
use super::lifecycle::{Job, Lifecycle, Step, Workers};
use super::node::{Node, Recipe};
use super::notices::Notices;
use super::repair;
use super::resize::Growth;
use super::shared::{Shared, closed};
use super::world::{NotStarted, World};
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{MachineId, MachineNumber, NodeIndex, Rank};
use crate::provider::MachineReport;

/// A pool that takes tasks.
pub(super) struct Serving {
    pub(super) shared: Arc<Shared>,
    pub(super) cleanup: Cleanup,
    pub(super) lifecycle: Lifecycle,
    pub(super) jobs: Jobs<End>,
    pub(super) world: Arc<World>,
    pub(super) recipe: Arc<Recipe>,
    pub(super) nodes: Vec<Place>,
    /// Nodes that have a machine whose workers do not all take tasks yet.
    pub(super) fresh: BTreeMap<NodeIndex, Fresh>,
    pub(super) growth: Growth,
    /// Which machines will end.
    pub(super) notices: Notices,
}

/// Why a node has a machine whose workers do not all take tasks yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fresh {
    Replaced,
    Joined,
}

/// A node's place in the pool.
pub(super) struct Place {
    /// The number of the machine that it had last.
    pub(super) machine: MachineNumber,
    /// None while it is lost, or has left.
    pub(super) node: Option<Arc<Node>>,
}

/// What a job ends with.
pub(super) enum End {
    /// A further machine is ready.
    Added(Result<Box<Node>>),
    /// Workers need not be reminded any more.
    Reminded,
    /// What the provider reports of the machines.
    Watched(Result<Vec<(MachineId, MachineReport)>>),
    /// A machine is confirmed gone, or is not.
    Dismissed(Result<()>),
    /// An agent is connected: of the same machine, or of another one.
    Node(Result<Box<Node>>),
    Stopped(Result<()>),
    Started(std::result::Result<(), NotStarted>),
    /// Agents that do not answer; the node on which the start failed, and with what.
    Examined(Vec<(NodeIndex, u64, Error)>, NodeIndex, Error),
    /// The connection of a worker's calls is there again, or the worker is not.
    CallerReached,
    /// A worker is there again, or has ended; or its node is of no use.
    Reached(Result<()>),
}

impl Serving {
    pub(super) fn new(shared: &Arc<Shared>, cleanup: &Cleanup, started: Started) -> Self {
        let Started { nodes, world, recipe, wanted, late, failed, took } = started;
        let lead = took + shared.limits.grace + SPARE;
        let per_node = world.cluster.workers_per_node;
        let joined = shared.lock().scheduler.is_joined();
        let place = |node: Arc<Node>| Place { machine: node.machine.number, node: Some(node) };
        let machines = nodes.iter().map(|node| node.machine.number).collect();
        let coming = late.iter().map(|late| late.launch.machine).chain(failed.iter().map(|(machine, _)| *machine));
        let growth = Growth::new(joined, wanted, per_node, machines, coming, shared, lead);
        let mut serving = Self {
            shared: Arc::clone(shared),
            cleanup: cleanup.clone(),
            lifecycle: Lifecycle::new(nodes.len() as u32, per_node, joined),
            jobs: Jobs::default(),
            world,
            recipe,
            nodes: nodes.into_iter().map(place).collect(),
            fresh: BTreeMap::new(),
            growth,
            notices: Notices::new(lead),
        };
        for late in late {
            let machine = late.launch.machine;
            let add = super::resize::connect_late(Arc::clone(shared), late, per_node);
            serving.jobs.begin(Job::Add(machine), async move { End::Added(add.await.map(Box::new)) });
        }
        for (machine, error) in failed {
            serving.on_add_failed(machine, error);
        }
        serving
    }

    /// Gives up what is under way; what is left is to be ended.
    pub(super) fn leave(self) -> (Vec<Arc<Node>>, Arc<World>) {
        drop(self.jobs);
        (self.nodes.into_iter().filter_map(|place| place.node).collect(), self.world)
    }

    pub(super) fn on_command(&mut self, command: Command) {
        if self.has_failed() {
            if let Command::Resize { done, .. } = command {
                let _ = done.send(Err(self.failure()));
            }
            return;
        }
        match command {
            Command::Sick(node, error) => {
                if self.lifecycle.is_up(node) {
                    self.on_node_lost(node, error);
                }
            }
            Command::Drained(node) => self.on_drained(node),
            Command::WorldIdle => self.on_world_idle(),
            Command::Resize { nodes, done } => self.on_resize(nodes, done),
            Command::Restart(workers) => {
                let steps = self.lifecycle.on_workers_lost(workers);
                self.go(steps);
            }
            // Another machine takes its place as soon as it is ready.
            Command::Replace(node) if self.growth.sizing.has_heir(node) => {}
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
            Command::CallerDisconnected { rank, generation, connection } => {
                let lacks = self.shared.lock().slot(rank, generation).is_some_and(|slot| slot.calls_lack(connection));
                if lacks && let Some(node) = self.node(self.lifecycle.node_of(rank)) {
                    let reach = reach_caller(Arc::clone(&self.shared), node, rank, generation);
                    self.jobs.begin(Job::ReachCaller(rank), async move {
                        reach.await;
                        End::CallerReached
                    });
                }
            }
            Command::AgentGone { node, connection } => self.on_agent_gone(node, connection),
            Command::Notice { connection, reason, ends_in, words } => {
                self.on_agent_notice(connection, reason, ends_in, words);
            }
            Command::Shutdown { .. } => {}
        }
        self.settle_size();
    }

    /// Waits for the next job that ends, and takes note of it.
    ///
    /// # Cancel safety
    ///
    /// No end is lost.
    pub(super) async fn next_end(&mut self) {
        let (job, end) = self.jobs.next().await;
        self.on_end(job, end);
        self.settle_size();
    }

    fn on_end(&mut self, job: Job, end: End) {
        if self.has_failed() {
            return;
        }
        match (job, end) {
            (Job::ReachAgent(index), End::Node(Ok(node))) => {
                let connection = node.agent.connection;
                self.shared.on_agent_back(&node);
                self.shared.emit(PoolEvent::NodeReconnected { node: index });
                self.set(*node);
                let steps = self.lifecycle.on_agent_reached(index);
                self.go(steps);
                self.on_agent_gone(index, connection);
            }
            (Job::Replace(index), End::Node(Ok(node))) => {
                let connection = node.agent.connection;
                self.shared.set_node(&node);
                self.set(*node);
                self.fresh.entry(index).or_insert(Fresh::Replaced);
                let steps = self.lifecycle.on_replaced(index);
                self.go(steps);
                self.on_agent_gone(index, connection);
            }
            (Job::ReachAgent(index) | Job::Replace(index), End::Node(Err(error))) => self.on_node_lost(index, error),
            (Job::Start(workers), End::Started(Ok(()))) => self.tell_fresh(workers),
            (Job::Start(workers), End::Started(Err(NotStarted { node: failed, error }))) => {
                tracing::warn!(pool = %self.shared.pool, %error, "workers could not be started again");
                let silent = repair::silent(self.nodes_of(workers));
                self.jobs.begin(Job::Examine(workers), async move { End::Examined(silent.await, failed, error) });
            }
            (Job::Examine(workers), End::Examined(silent, failed, error)) => {
                for (index, connection, error) in silent {
                    // One that is away is looked for already, and may have been found.
                    if self.lifecycle.is_up(index) && self.connection(index) == Some(connection) {
                        self.on_node_lost(index, error);
                    }
                }
                if self.lifecycle.are_up(workers) {
                    let rank = match workers {
                        Workers::One(rank) => rank,
                        Workers::World => self.lifecycle.ranks_of(failed).next().unwrap_or(Rank(0)),
                    };
                    self.shared.act(|state, _| state.scheduler.on_start_failed(rank, &error));
                } else {
                    let steps = self.lifecycle.on_workers_lost(workers);
                    self.go(steps);
                }
            }
            (Job::Add(machine), End::Added(Ok(node))) => self.on_add_ready(machine, *node),
            (Job::Add(machine), End::Added(Err(error))) => self.on_add_failed(machine, error),
            (Job::Stop(index), End::Stopped(stopped)) => self.on_stopped(index, stopped),
            (Job::Remind, End::Reminded) => {}
            (Job::Watch, End::Watched(reports)) => self.on_watched(reports),
            (Job::Dismiss(machine), End::Dismissed(dismissed)) => self.on_dismissed(machine, dismissed),
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
    pub(super) fn begin_to_serve(&mut self) {
        for index in (0..self.nodes.len() as u32).map(NodeIndex) {
            if let Some(connection) = self.connection(index) {
                self.on_agent_gone(index, connection);
            }
            self.note_end(index);
        }
        self.watch();
        self.settle_size();
    }

    /// The connection to an agent has ended, if it has and is not one of before.
    pub(super) fn on_agent_gone(&mut self, index: NodeIndex, connection: u64) {
        let Some(node) = self.node(index).filter(|node| node.agent.connection == connection) else {
            return self.on_waiting_agent_gone(connection);
        };
        let Some(error) = node.agent.gone() else { return };
        if error.kind() == ErrorKind::Timeout {
            // It was silent for its whole lease: if it can, its machine ends itself.
            return self.on_node_lost(index, error.clone());
        }
        tracing::warn!(pool = %self.shared.pool, node = index.0, %error, "the connection to the agent was lost");
        self.shared.emit(PoolEvent::NodeDisconnected { node: index, error: error.clone() });
        self.shared.lock().waits.away(index);
        let steps = self.lifecycle.on_agent_away(index);
        self.go(steps);
    }

    /// A node's machine is given up, or the one that was to replace it.
    pub(super) fn on_node_lost(&mut self, index: NodeIndex, error: Error) {
        let Some(place) = self.nodes.get_mut(index.0 as usize) else { return };
        tracing::warn!(pool = %self.shared.pool, node = index.0, %error, "a node is lost");
        if let Some(lost) = place.node.take() {
            self.notices.forget(&lost.machine.id);
            if error.exit() == Some(&WorkerExit::Preempted) {
                self.recipe.purchases.on_preempted(&lost.machine.offer);
            }
        }
        let steps = self.lifecycle.on_node_lost(index);
        self.go(steps);
        self.shared.emit(PoolEvent::NodeLost { node: index, error: error.clone() });
        self.shared.on_node_lost(index, &error);
        let steps = self.growth.sizing.on_lost(index);
        self.size(steps);
    }

    pub(super) fn go(&mut self, steps: Vec<Step>) {
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
                let reach = repair::reach_agent(self.recipe.provider.clone(), shared, node, per_node);
                self.jobs.begin(job, async move {
                    // What ended the connection says more than that there is none; why there is none tells an agent that is gone from a machine that cannot be reached.
                    End::Node(reach.await.map(Box::new).map_err(|error| match cause {
                        Some(cause) => repair::not_reached(cause, error),
                        None => error,
                    }))
                });
            }
            Job::Replace(index) => {
                let Some(place) = self.nodes.get(index.0 as usize) else { return };
                let launch = self.recipe.purchases.launch(index, place.machine);
                let (recipe, cleanup) = (Arc::clone(&self.recipe), self.cleanup.clone());
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
            Job::Examine(_)
            | Job::ReachWorker(_)
            | Job::ReachCaller(_)
            | Job::Add(_)
            | Job::Stop(_)
            | Job::Dismiss(_)
            | Job::Watch
            | Job::Remind => {}
        }
    }

    /// Tells the nodes that have come, or whose place is filled again.
    fn tell_fresh(&mut self, workers: Workers) {
        for index in self.lifecycle.nodes_of(workers) {
            let ready = {
                let state = self.shared.lock();
                self.lifecycle.ranks_of(index).all(|rank| state.scheduler.is_ready(rank))
            };
            if ready
                && let Some(node) = self.node(index)
                && let Some(fresh) = self.fresh.remove(&index)
            {
                let (machine, address) = (node.machine.id.clone(), node.place.address.clone());
                self.shared.emit(match fresh {
                    Fresh::Replaced => PoolEvent::NodeReplaced { node: index, machine, address },
                    Fresh::Joined => PoolEvent::NodeJoined { node: index, machine, address },
                });
            }
        }
    }

    /// What the pool has failed with.
    fn failure(&self) -> Error {
        self.shared.lock().scheduler.failure().cloned().unwrap_or_else(closed)
    }

    /// A pool that has failed waits for its end, and nothing is repaired.
    pub(super) fn has_failed(&mut self) -> bool {
        let failure = self.shared.lock().scheduler.failure().cloned();
        if let Some(error) = &failure {
            self.jobs.clear();
            self.growth.give_up(error);
            self.notices.clear();
        }
        failure.is_some()
    }

    pub(super) fn set(&mut self, node: Node) {
        let index = node.index;
        if let Some(place) = self.nodes.get_mut(index.0 as usize) {
            place.node = Some(Arc::new(node));
            self.note_end(index);
        }
    }

    pub(super) fn node(&self, index: NodeIndex) -> Option<Arc<Node>> {
        self.nodes.get(index.0 as usize)?.node.clone()
    }

    pub(super) fn connection(&self, index: NodeIndex) -> Option<u64> {
        self.node(index).map(|node| node.agent.connection)
    }

    fn nodes_of(&self, workers: Workers) -> Vec<Arc<Node>> {
        self.lifecycle.nodes_of(workers).into_iter().filter_map(|index| self.node(index)).collect()
    }
}

/// Beside what a machine takes to be ready, how long before the end of one another is begun.
const SPARE: Duration = Duration::from_secs(30);
