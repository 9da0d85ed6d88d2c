//! A machine that is made a node: launched, reached, with its environment, and an agent that listens.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::agent::Agent;
use super::builder::Decorated;
use super::builder::check_workers;
use super::cleanup::Cleanup;
use super::notices::Notice;
use super::purchase::{Bought, Purchase, Purchases};
use super::renewal::renew;
use super::shared::Shared;
use super::status::NodeStatus;
use super::steps::Steps;
use super::waiting::Making;
use super::world::ANSWER;
use crate::bootstrap::{self, Inputs, Plan, Ready, StepEvent};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Leaving, PoolEvent};
use crate::ids::{Attempt, LaunchId, MachineNumber, NodeIndex};
use crate::plugin::PluginSet;
use crate::provider::{Arriving, Checked, Machine, Place, Provider};
use crate::remote::Remote;
use crate::spec::{ClusterInfo, Image, Nodes};

/// What all nodes of a pool are made by.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) provider: Checked,
    pub(crate) purchases: Purchases,
    pub(crate) cluster: ClusterInfo,
    pub(crate) image: Image,
    pub(crate) inputs: Inputs,
    pub(crate) plugins: PluginSet,
    pub(crate) declared: Declared,
}

/// What a pool was asked for, by which it is known what sizes it can have.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    /// Before the plugins added to it.
    pub(crate) image: Image,
    /// Whether all workers are one world.
    pub(crate) joined: bool,
    /// The world that a payload joins by its decorator.
    pub(crate) decorated: Option<Decorated>,
}

/// One machine for a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    /// The node in the pool, for those who watch.
    pub(crate) node: NodeIndex,
    /// What the provider is told: of a pool that is content with fewer nodes than it wanted, it can be another number than the node's.
    pub(crate) machine: MachineNumber,
    pub(crate) attempt: Attempt,
}

/// A machine with a running agent, which is no node of the pool yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) machine: Machine,
    pub(crate) place: Place,
    remote: Arc<dyn Remote>,
    ready: Ready,
    /// Its index is the one that the machine was launched for.
    agent: Agent,
    ends: Option<Notice>,
}

/// A machine with a running agent.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) index: NodeIndex,
    pub(crate) machine: Machine,
    pub(crate) place: Place,
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) ready: Ready,
    pub(crate) agent: Agent,
    /// When its machine ends by itself, as far as was known when it was made.
    pub(crate) ends: Option<Notice>,
    /// Of the head: where workers meet that are started in this generation.
    pub(crate) port: Option<u16>,
}

impl Recipe {
    /// Whether the pool, made as it was, can come to have another size.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] or [`ErrorKind::Plugins`], with what to do.
    pub(crate) fn check_size(&self, nodes: Nodes) -> Result<()> {
        check_workers(nodes, self.cluster.workers_per_node)?;
        let mut cluster = self.cluster.clone().with_elastic(nodes.is_elastic());
        cluster.nodes = nodes.wanted();
        self.plugins.check(&cluster)?;
        // A world of one node is one still.
        let joins =
            Decorated::joined(self.declared.decorated.as_ref(), &self.plugins, &cluster)? && !self.declared.joined;
        let same = !joins && self.plugins.transform(self.declared.image.clone(), &cluster)? == self.image;
        if same {
            return Ok(());
        }
        let size = if nodes.is_elastic() { "an elastic size".to_owned() } else { format!("{} nodes", cluster.nodes) };
        Err(Error::new(
            ErrorKind::InvalidSpec,
            format!("the pool's plugins prepare {size} in another way than the size with which it was started"),
        )
        .with_hint("start another pool of the size you need"))
    }

    /// Launches a machine that is on record already, makes it ready, and starts its agent.
    pub(crate) async fn prepare(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        launch: Launch,
        purchase: Purchase,
    ) -> Result<Prepared> {
        let node = launch.node;
        let steps = Steps::new(shared, launch);
        let making = Making::begin(shared, launch);
        shared.emit(PoolEvent::NodeLaunching { node });
        let limits = &shared.limits;
        let provider = self.provider.reporting(making.trouble());
        let on_wait = making.trouble();
        let Bought { machine, ends } = match purchase {
            Purchase::Made(bought) => bought,
            Purchase::With(patience) => {
                let buy = self.purchases.buy(shared, cleanup, &provider, launch, (patience, &on_wait));
                steps.time("launch", buy).await?
            }
        };
        steps.on_machine(&machine.id);
        let wait = Arriving { queue: limits.machine_wait, pause: limits.lease / 4 };
        let there = provider.until_there(&machine.id, wait, |report| making.on_report(&machine.id, report));
        let (place, ends_in) = steps.time("wait", there).await?;
        // The nearer of the two: a provider may end a machine earlier than the budget does.
        let reported = ends_in.and_then(|ends_in| Instant::now().checked_add(ends_in));
        let ends = ends.into_iter().chain(reported).min();
        let ends = ends.map(|at| Notice { reason: Leaving::Expired, at: at.into_std(), words: None });
        let event = PoolEvent::NodeLaunched { node, machine: machine.id.clone(), address: place.address.clone() };
        shared.emit(event);
        making.step("connect");
        let remote: Arc<dyn Remote> = Arc::from(steps.time("connect", provider.connect(&machine, &place)).await?);
        let setup = self.plugins.bootstrap(&self.cluster);
        let plan = Plan::new(&self.image, &self.inputs, &place, &setup, &shared.limits);
        let on_event = |event: StepEvent| {
            if let StepEvent::Started { step } = event {
                making.step(step);
            }
            steps.on_event(event);
        };
        let make = async {
            let ready = bootstrap::run(remote.as_ref(), &plan, &on_event).await?;
            // At once, whatever the other nodes still need: from now on this connection renews the lease.
            let agent = connect_first(shared, remote.as_ref(), &ready, node, self.cluster.workers_per_node).await?;
            Ok((ready, watching(agent, &place)?))
        };
        // Without a keeper nothing looks at the lease until there is an agent.
        let lease = provider.capabilities().keeper.then_some(limits.lease);
        let made = tokio::select! {
            biased;
            made = make => made,
            never = renew(remote.as_ref(), &machine.id, &place.folder, lease) => match never {},
        };
        let (ready, agent) = made.map_err(|error: Error| {
            steps.on_failure();
            error.with_context("node", node)
        })?;
        Ok(Prepared { machine, place, remote, ready, agent, ends })
    }
}

impl Launch {
    pub(crate) fn id(&self, shared: &Shared) -> LaunchId {
        LaunchId::of(&shared.pool, self.machine, self.attempt)
    }
}

impl Prepared {
    /// Becomes a node of the pool.
    pub(crate) async fn join(self, shared: &Arc<Shared>, index: NodeIndex, workers_per_node: u32) -> Result<Node> {
        let Self { machine, place, remote, ready, agent, ends } = self;
        let agent = match agent.gone() {
            None => agent,
            Some(_) => {
                watching(connect_first(shared, remote.as_ref(), &ready, index, workers_per_node).await?, &place)?
            }
        };
        agent.take_place(index);
        Ok(Node { index, machine, place, remote, ready, agent, ends, port: None })
    }
}

impl Node {
    /// The same node with a new connection to its agent.
    pub(crate) async fn reconnect(&self, shared: &Arc<Shared>, workers_per_node: u32) -> Result<Self> {
        let agent = connect(shared, self.remote.as_ref(), &self.ready, self.index, workers_per_node).await?;
        let agent = watching(agent, &self.place)?;
        let (machine, place, ready) = (self.machine.clone(), self.place.clone(), self.ready.clone());
        let (remote, ends) = (Arc::clone(&self.remote), self.ends.clone());
        Ok(Self { index: self.index, machine, place, remote, ready, agent, ends, port: self.port })
    }

    /// A machine that came to a pool that serves gets its place there.
    pub(crate) fn take_place(&mut self, index: NodeIndex) {
        self.index = index;
        self.agent.take_place(index);
    }

    pub(crate) fn status(&self) -> NodeStatus {
        let (machine, address) = (self.machine.id.clone(), self.place.address.clone());
        NodeStatus { node: self.index, machine, address, ready: true, leaving: false, ending: None }
    }
}

/// The agent, which runs the command that the machine's place names.
fn watching(agent: Agent, place: &Place) -> Result<Agent> {
    match &place.watch {
        Some(command) if !command.is_empty() => agent.watch(command).map(|()| agent),
        _ => Ok(agent),
    }
}

/// Connects to an agent that runs: a connection that is cut before the agent answers is opened again, a few times.
async fn connect_first(
    shared: &Arc<Shared>,
    remote: &dyn Remote,
    ready: &Ready,
    index: NodeIndex,
    workers_per_node: u32,
) -> Result<Agent> {
    for pause in AGAIN {
        match connect(shared, remote, ready, index, workers_per_node).await {
            Err(error) if error.kind() == ErrorKind::Io => {
                tracing::debug!(pool = %shared.pool, node = index.0, %error, "the agent is not reached yet");
                tokio::time::sleep(pause).await;
            }
            connected => return connected,
        }
    }
    connect(shared, remote, ready, index, workers_per_node).await
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

/// The pauses between tries to connect to an agent that was just started.
const AGAIN: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1)];
