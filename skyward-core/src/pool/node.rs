//! A machine that is made a node: launched, reached, with its environment, and an agent that listens.

use std::sync::Arc;

use super::agent::Agent;
use super::cleanup::Cleanup;
use super::shared::Shared;
use super::status::NodeStatus;
use super::world::ANSWER;
use crate::bootstrap::{self, Inputs, Plan, Ready, StepEvent};
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{Attempt, LaunchId, NodeIndex};
use crate::plugin::PluginSet;
use crate::provider::{Checked, LaunchRequest, Machine, Offer, Provider};
use crate::remote::Remote;
use crate::spec::{ClusterInfo, Image};

/// What all nodes of a pool are made by.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) provider: Checked,
    pub(crate) offer: Offer,
    pub(crate) cluster: ClusterInfo,
    pub(crate) image: Image,
    pub(crate) inputs: Inputs,
    pub(crate) plugins: PluginSet,
}

/// One machine for a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// The node in the pool, for those who watch.
    pub(crate) node: NodeIndex,
    /// The node by which the provider knows it: of a pool that is content with fewer nodes than it wanted, it can be another.
    pub(crate) as_node: NodeIndex,
    pub(crate) attempt: Attempt,
}

/// A machine on which an agent listens.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) machine: Machine,
    remote: Arc<dyn Remote>,
    ready: Ready,
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

impl Recipe {
    /// Launches a machine that is on record already, makes it ready, and starts its agent.
    pub(crate) async fn prepare(&self, shared: &Arc<Shared>, cleanup: &Cleanup, launch: Launch) -> Result<Prepared> {
        let node = launch.node;
        shared.emit(PoolEvent::NodeLaunching { node });
        let id = launch.id(shared);
        let request =
            LaunchRequest::new(id, shared.pool.clone(), launch.as_node, self.offer.clone(), shared.limits.lease);
        let machine = self.provider.launch(&request).await?;
        cleanup.add(machine.clone()).await?;
        let event = PoolEvent::NodeLaunched { node, machine: machine.id.clone(), address: machine.address.clone() };
        shared.emit(event);
        let remote: Arc<dyn Remote> = Arc::from(self.provider.connect(&machine).await?);
        let setup = self.plugins.bootstrap(&self.cluster);
        let plan = Plan::new(&self.image, &self.inputs, &machine, &setup, &shared.limits);
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

impl Launch {
    /// The first one of a node.
    pub(crate) fn first(node: NodeIndex) -> Self {
        Self { node, as_node: node, attempt: Attempt(1) }
    }

    pub(crate) fn id(&self, shared: &Shared) -> LaunchId {
        LaunchId::of(&shared.pool, self.as_node, self.attempt)
    }
}

impl Prepared {
    /// Connects to the agent.
    pub(crate) async fn connect(self, shared: &Arc<Shared>, index: NodeIndex, workers_per_node: u32) -> Result<Node> {
        let Self { machine, remote, ready } = self;
        let agent = connect(shared, remote.as_ref(), &ready, index, workers_per_node).await?;
        Ok(Node { index, machine, remote, ready, agent })
    }
}

impl Node {
    /// The same node with a new connection to its agent.
    pub(crate) async fn reconnect(&self, shared: &Arc<Shared>, workers_per_node: u32) -> Result<Self> {
        let agent = connect(shared, self.remote.as_ref(), &self.ready, self.index, workers_per_node).await?;
        let (machine, remote, ready) = (self.machine.clone(), Arc::clone(&self.remote), self.ready.clone());
        Ok(Self { index: self.index, machine, remote, ready, agent })
    }

    pub(crate) fn status(&self) -> NodeStatus {
        let (machine, address) = (self.machine.id.clone(), self.machine.address.clone());
        NodeStatus { node: self.index, machine, address, ready: true }
    }
}

async fn connect(
    shared: &Arc<Shared>,
    remote: &dyn Remote,
    ready: &Ready,
    index: NodeIndex,
    workers_per_node: u32,
) -> Result<Agent> {
    let connect = async {
        let stream = remote.open(&ready.agent_socket).await?;
        Agent::connect(shared, index, workers_per_node, stream).await
    };
    tokio::time::timeout(ANSWER, connect)
        .await
        .map_err(|_| Error::new(ErrorKind::Timeout, format!("the agent of node {index} did not answer")))?
}
