//! Makes a machine a node: launches and reaches it, prepares its environment, and starts its agent.

use std::sync::Arc;

use tokio::time::Instant;

use super::agent::Agent;
use super::lease::renew;
use super::progress::Steps;
use super::purchase::{Bought, Patience, Purchases};
use super::timing::{AGENT_ANSWER, AGENT_START_PAUSES};
use super::together::{Replacing, Together};
use crate::bootstrap::{self, Inputs, Plan, Ready, StepEvent};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{DrainReason, PoolEvent};
use crate::ids::{LaunchId, NodeIndex};
use crate::layout::Layout;
use crate::plugin::PluginSet;
use crate::pool::blueprint::decorated::Decorated;
use crate::pool::blueprint::{Declared, check_workers};
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::environment::Environment;
use crate::pool::fleet::launch::Launch;
use crate::pool::fleet::notices::Notice;
use crate::pool::tasks::node_rows::NodeRow;
use crate::pool::tasks::shared::Shared;
use crate::pool::tasks::waiting_for::MakingMachine;
use crate::provider::{Arriving, Checked, Machine, Place, Provider};
use crate::remote::Remote;
use crate::spec::{ClusterInfo, Image, Nodes};

/// Everything that is needed to make the nodes of a pool.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) provider: Checked,
    pub(crate) purchases: Arc<Purchases>,
    pub(crate) together: Arc<Together>,
    pub(crate) cluster: ClusterInfo,
    pub(crate) image: Image,
    pub(crate) inputs: Inputs,
    pub(crate) plugins: PluginSet,
    pub(crate) declared: Declared,
}

/// How a launch gets its machine.
#[derive(Debug)]
pub(crate) enum Purchase {
    /// The machine was bought already.
    Made(Bought),
    /// The machine is bought now.
    With(Patience),
    /// The machine is bought together with those of the other lost nodes of its world.
    Together(Replacing),
}

/// A machine with a running agent that is not a node of the pool yet.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) machine: Machine,
    pub(crate) place: Place,
    remote: Arc<dyn Remote>,
    ready: Ready,
    /// The agent has the node index that the machine was launched for.
    agent: Agent,
    ends: Option<Notice>,
}

/// A node of the pool: a machine with a running agent.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) index: NodeIndex,
    pub(crate) machine: Arc<Machine>,
    pub(crate) place: Arc<Place>,
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) ready: Ready,
    pub(crate) agent: Agent,
    /// What is installed; nodes with the same environment share it.
    pub(crate) environment: Environment,
    /// When the machine ends by itself, as far as was known when the node was made.
    pub(crate) ends: Option<Notice>,
    /// On the head: the port at which the workers of the generation meet.
    pub(crate) port: Option<u16>,
}

impl Recipe {
    /// Checks that the pool can have another size without a change of its image or its world.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] or [`ErrorKind::Plugins`], with a hint on what to do.
    pub(crate) fn check_size(&self, nodes: Nodes) -> Result<()> {
        check_workers(nodes, self.cluster.workers_per_node)?;
        let mut cluster = self.cluster.clone().elastic(nodes.is_elastic());
        cluster.nodes = nodes.wanted();
        self.plugins.check(&cluster)?;
        // A world that shrinks to one node stays a world; a pool that is no world cannot become
        // one.
        let joins =
            Decorated::joined(self.declared.decorated.as_ref(), &self.plugins, &cluster)? && !self.declared.joined;
        let same = !joins && self.plugins.transform(self.declared.image.clone(), &cluster)? == self.image;
        if same {
            return Ok(());
        }
        let size = if nodes.is_elastic() { "an elastic size".to_owned() } else { format!("{} nodes", cluster.nodes) };
        Err(Error::new(
            ErrorKind::InvalidSpec,
            format!("the plugins need another environment or world for {size} than for the pool's first size"),
        )
        .with_hint("start another pool of the size you need"))
    }

    /// How the machine of a lost node is bought. A world cannot go on with some of its machines, so
    /// a provider that launches all or none does so for its replacements too.
    pub(crate) fn replacement(&self, node: NodeIndex) -> Purchase {
        match self.declared.joined && self.provider.capabilities().gangs {
            true => Purchase::Together(Replacing::begin(&self.together, node)),
            false => Purchase::With(Patience::Wait),
        }
    }

    /// Launches a machine that is already on record, makes it ready, and starts its agent.
    pub(crate) async fn prepare(
        &self,
        shared: &Arc<Shared>,
        cleanup: &Cleanup,
        launch: Launch,
        purchase: Purchase,
    ) -> Result<Prepared> {
        let node = launch.node;
        let steps = Steps::new(shared, launch);
        let making = MakingMachine::begin(shared, launch);
        shared.emit(PoolEvent::NodeLaunching { node });
        let limits = &shared.limits;
        let provider = self.provider.reporting(making.trouble());
        let Bought { machine, ends } = match purchase {
            Purchase::Made(bought) => bought,
            Purchase::Together(replacing) => {
                let buy = replacing.buy(shared, cleanup, &provider, launch, || making.trouble());
                steps.time("launch", buy).await?
            }
            Purchase::With(patience) => {
                let on_wait = making.trouble();
                let buy = self.purchases.buy(shared, cleanup, &provider, launch, patience, &on_wait);
                steps.time("launch", buy).await?
            }
        };
        steps.on_machine(&machine.id);
        let wait = Arriving { queue: limits.machine_wait, pause: limits.lease / 4 };
        let there = provider.until_there(&machine.id, wait, |report| making.on_report(&machine.id, report));
        let (place, ends_in) = steps.time("wait", there).await?;
        // The earlier of the two times: a provider may end a machine earlier than the budget does.
        let reported = ends_in.and_then(|ends_in| Instant::now().checked_add(ends_in));
        let ends = ends.into_iter().chain(reported).min();
        let ends = ends.map(|at| Notice { reason: DrainReason::Expired, at: at.into_std(), words: None });
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
            // Connect at once, whatever the other nodes still need: from now on this connection
            // renews the lease.
            let agent =
                connect_first(shared, remote.as_ref(), &ready, &machine.launch, node, self.cluster.layout()).await?;
            Ok((ready, watching(agent, &place)?))
        };
        // Without a keeper, nothing checks the lease until there is an agent.
        let lease = provider.capabilities().keeper.then_some(limits.lease);
        let is_paid = || shared.is_paid();
        let made = tokio::select! {
            biased;
            made = make => made,
            never = renew(remote.as_ref(), &machine.id, &place.folder, lease, &is_paid) => match never {},
        };
        let (ready, agent) = made.map_err(|error: Error| {
            steps.on_failure();
            error.with_context("node", node)
        })?;
        Ok(Prepared { machine, place, remote, ready, agent, ends })
    }
}

impl Prepared {
    /// Makes the machine a node of the pool, if it has the environment of the other nodes.
    pub(crate) async fn join(self, shared: &Arc<Shared>, index: NodeIndex, layout: Layout) -> Result<Node> {
        let Self { machine, place, remote, ready, agent, ends } = self;
        let agent = match agent.gone() {
            None => agent,
            Some(_) => {
                watching(connect_first(shared, remote.as_ref(), &ready, &machine.launch, index, layout).await?, &place)?
            }
        };
        let environment = shared.admit_machine(index, agent.environment.clone())?;
        agent.take_place(index);
        let (machine, place) = (Arc::new(machine), Arc::new(place));
        Ok(Node { index, machine, place, remote, ready, agent, environment, ends, port: None })
    }
}

impl Node {
    /// The same node with a new connection to its agent.
    pub(crate) async fn reconnect(&self, shared: &Arc<Shared>, layout: Layout) -> Result<Self> {
        let agent =
            connect(shared, self.remote.as_ref(), &self.ready, &self.machine.launch, self.index, layout).await?;
        let agent = watching(agent, &self.place)?;
        let (machine, place) = (Arc::clone(&self.machine), Arc::clone(&self.place));
        let (remote, ready, ends) = (Arc::clone(&self.remote), self.ready.clone(), self.ends.clone());
        let environment = self.environment.clone();
        Ok(Self { index: self.index, machine, place, remote, ready, agent, environment, ends, port: self.port })
    }

    /// Gives a machine that joins a running pool its place.
    pub(crate) fn take_place(&mut self, index: NodeIndex) {
        self.index = index;
        self.agent.take_place(index);
    }

    /// The row of a node whose agent is connected.
    pub(crate) fn row(&self) -> NodeRow {
        let (machine, place) = (Arc::clone(&self.machine), Arc::clone(&self.place));
        NodeRow { machine, place, agent: Some(self.agent.sender()), environment: Some(self.environment.clone()) }
    }
}

/// Makes the agent run the watch command of the machine's place, if there is one.
fn watching(agent: Agent, place: &Place) -> Result<Agent> {
    match &place.watch {
        Some(command) if !command.is_empty() => agent.watch(command).map(|()| agent),
        _ => Ok(agent),
    }
}

/// Connects to an agent that runs. A connection that is cut before the agent answers is opened
/// again, a few times.
async fn connect_first(
    shared: &Arc<Shared>,
    remote: &dyn Remote,
    ready: &Ready,
    launch: &LaunchId,
    index: NodeIndex,
    layout: Layout,
) -> Result<Agent> {
    for pause in AGENT_START_PAUSES {
        match connect(shared, remote, ready, launch, index, layout).await {
            Err(error) if error.kind() == ErrorKind::Io => {
                tracing::debug!(pool = %shared.pool, node = index.0, %error, "cannot connect to the agent yet; retrying");
                tokio::time::sleep(pause).await;
            }
            connected => return connected,
        }
    }
    connect(shared, remote, ready, launch, index, layout).await
}

async fn connect(
    shared: &Arc<Shared>,
    remote: &dyn Remote,
    ready: &Ready,
    launch: &LaunchId,
    index: NodeIndex,
    layout: Layout,
) -> Result<Agent> {
    // Opening it has a deadline of its own.
    let stream = remote.open(&ready.agent_socket).await?;
    tokio::time::timeout(AGENT_ANSWER, Agent::connect(shared, launch, index, layout, stream))
        .await
        .map_err(|_| Error::new(ErrorKind::Timeout, format!("the agent of node {index} did not answer")))?
}
