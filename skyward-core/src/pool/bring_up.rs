//! From a blueprint to nodes with agents, and to workers that have entered their hooks.

use std::any::Any;
use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::agent::Agent;
use super::cleanup::Cleanup;
use super::shared::{Shared, WorkerSlot};
use super::status::{NodeStatus, PoolPhase};
use super::world::World;
use crate::bootstrap::{self, Inputs, Plan, Ready, StepEvent};
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{Attempt, Generation, LaunchId, NodeIndex, Rank};
use crate::plugin::PluginSet;
use crate::provider::{Checked, LaunchRequest, Machine, Offer, Provider, Requirements};
use crate::remote::Remote;
use crate::scheduler::Scheduler;
use crate::spec::{ClusterInfo, Image, Nodes};

/// A pool that has been checked and not started.
#[derive(Debug)]
pub(crate) struct Blueprint {
    pub(crate) provider: Checked,
    pub(crate) nodes: Nodes,
    pub(crate) requirements: Requirements,
    pub(crate) cluster: ClusterInfo,
    pub(crate) image: Image,
    pub(crate) plugins: PluginSet,
}

/// A machine with a running agent.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) index: NodeIndex,
    pub(crate) machine: Machine,
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) ready: Ready,
    pub(crate) agent: Agent,
}

/// A machine on which an agent listens.
struct Prepared {
    machine: Machine,
    remote: Arc<dyn Remote>,
    ready: Ready,
}

/// What plugins hold for the life of the pool.
pub(crate) type Guards = Vec<Box<dyn Any + Send + Sync>>;

impl Blueprint {
    /// Launches the machines, makes them ready, and starts the first generation of workers.
    pub(crate) async fn bring_up(&self, shared: &Arc<Shared>, cleanup: &Cleanup) -> Result<(Vec<Node>, World)> {
        let mut guards = Guards::new();
        for plugin in self.plugins.iter() {
            let guard = tokio::time::timeout(shared.limits.start, plugin.around_pool(&self.cluster)).await;
            guards.extend(guard.map_err(|_| {
                let name = plugin.name();
                Error::new(
                    ErrorKind::Timeout,
                    format!("`around_pool` of plugin `{name}` took longer than {:?}", shared.limits.start),
                )
            })??);
        }
        let inputs = Inputs::read(&self.image)?;
        let offer = self.provider.choose(&self.requirements).await?;
        cleanup.arm().await?;
        self.provider.prepare(&shared.pool).await?;
        let prepared = self.prepare_nodes(shared, cleanup, &offer, &inputs).await?;

        let count = prepared.len() as u32;
        let mut cluster = self.cluster.clone();
        cluster.nodes = count;
        let per_node = cluster.workers_per_node;
        let joined = self.plugins.joins_world(&cluster);
        {
            let mut state = shared.lock();
            state.scheduler = Scheduler::new(count, per_node, joined, shared.limits);
            state.workers_per_node = per_node;
            let slot = || WorkerSlot::new(Generation(0), shared.limits.max_frame);
            state.workers = (0..count * per_node).map(|_| slot()).collect();
        }
        let nodes = prepared.into_iter().enumerate().map(|(index, prepared)| async move {
            let index = NodeIndex(index as u32);
            let stream = prepared.remote.open(&prepared.ready.agent_socket).await?;
            let agent = Agent::connect(shared, index, per_node, stream);
            let agent = tokio::time::timeout(super::world::ANSWER, agent)
                .await
                .map_err(|_| Error::new(ErrorKind::Timeout, format!("the agent of node {index} did not answer")))??;
            Ok::<_, Error>(Node {
                index,
                machine: prepared.machine,
                remote: prepared.remote,
                ready: prepared.ready,
                agent,
            })
        });
        let nodes = try_join_all(nodes).await?;
        {
            let mut state = shared.lock();
            state.agents = nodes.iter().map(|node| Some(node.agent.sender())).collect();
            let status = |node: &Node| NodeStatus {
                node: node.index,
                machine: node.machine.id.clone(),
                address: node.machine.address.clone(),
            };
            state.nodes = nodes.iter().map(status).collect();
        }
        let world = World { cluster, plugins: self.plugins.clone(), _guards: guards };
        let ranks: Vec<Rank> = (0..count * per_node).map(Rank).collect();
        world.start(shared, &nodes, Generation(1), &ranks).await?;
        shared.lock().phase = PoolPhase::Ready;
        shared.emit(PoolEvent::PoolReady { nodes: count, workers: count * per_node });
        Ok((nodes, world))
    }

    /// As many nodes as there are to be, in the order of their indices.
    async fn prepare_nodes(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        offer: &Offer,
        inputs: &Inputs,
    ) -> Result<Vec<Prepared>> {
        let limits = &shared.limits;
        let wanted = self.nodes.wanted();
        let content = Instant::now() + limits.start / 2;
        let deadline = Instant::now() + limits.start + limits.environment;
        cleanup.intend((0..wanted).map(|node| launch_of(shared, NodeIndex(node)))).await?;
        let mut pending: FuturesUnordered<_> =
            (0..wanted).map(|node| self.prepare_node(shared, cleanup, offer, inputs, NodeIndex(node))).collect();
        let mut prepared = Vec::new();
        let mut failure = None;
        loop {
            let enough = prepared.len() as u32 >= self.nodes.least();
            // A pool that is content with fewer nodes waits for the rest until half of its time has passed.
            let until = if enough { content } else { deadline };
            match tokio::time::timeout_at(until, pending.next()).await {
                Ok(Some(Ok(node))) => prepared.push(node),
                Ok(Some(Err(error))) if self.nodes.least() == wanted => return Err(error),
                Ok(Some(Err(error))) => {
                    tracing::warn!(pool = %shared.pool, %error, "a node could not be made ready");
                    failure = Some(error);
                }
                Ok(None) => break,
                Err(_) if enough => break,
                Err(_) => {
                    return Err(Error::new(
                        ErrorKind::Start,
                        format!("{} of {wanted} nodes were ready after {:?}", prepared.len(), limits.start + limits.environment),
                    )
                    .with_hint("`Limits::start` and `Limits::environment` give more time; `Nodes::partial` is content with fewer nodes"));
                }
            }
        }
        if (prepared.len() as u32) < self.nodes.least() {
            let error = Error::new(
                ErrorKind::Start,
                format!(
                    "{} of {wanted} nodes could be made ready, and {} is the least",
                    prepared.len(),
                    self.nodes.least()
                ),
            );
            return Err(match failure {
                Some(cause) => error.with_source(cause),
                None => error,
            });
        }
        prepared.sort_by_key(|prepared| prepared.machine.node);
        Ok(prepared)
    }

    async fn prepare_node(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        offer: &Offer,
        inputs: &Inputs,
        node: NodeIndex,
    ) -> Result<Prepared> {
        shared.emit(PoolEvent::NodeLaunching { node });
        let (launch, _) = launch_of(shared, node);
        let request = LaunchRequest::new(launch, shared.pool.clone(), node, offer.clone(), shared.limits.lease);
        let machine = self.provider.launch(&request).await?;
        cleanup.add(machine.clone()).await?;
        let event = PoolEvent::NodeLaunched { node, machine: machine.id.clone(), address: machine.address.clone() };
        shared.emit(event);
        let remote: Arc<dyn Remote> = Arc::from(self.provider.connect(&machine).await?);
        let setup = self.plugins.bootstrap(&self.cluster);
        let plan = Plan::new(&self.image, inputs, &machine, &setup, &shared.limits);
        let on_event = |event: StepEvent| match event {
            StepEvent::Started { step } => shared.emit(PoolEvent::BootstrapStep { node, step }),
            // The agent's first line is for this program.
            StepEvent::Line { step: "agent", .. } => {}
            StepEvent::Line { step, line } => shared.emit(PoolEvent::BootstrapLine { node, step, line }),
            StepEvent::Finished { step, took } => {
                tracing::debug!(pool = %shared.pool, node = node.0, step, ?took, "step finished")
            }
        };
        let ready = bootstrap::run(remote.as_ref(), &plan, &on_event)
            .await
            .map_err(|error| error.with_context("node", node))?;
        Ok(Prepared { machine, remote, ready })
    }
}

/// The intent to launch a node.
fn launch_of(shared: &Shared, node: NodeIndex) -> (LaunchId, NodeIndex) {
    (LaunchId::of(&shared.pool, node, Attempt(1)), node)
}
