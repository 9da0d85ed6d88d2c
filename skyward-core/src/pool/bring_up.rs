//! From a blueprint to nodes with agents, and to workers that have entered their hooks.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::account::Account;
use super::cleanup::Cleanup;
use super::driver;
use super::market::Market;
use super::node::{Declared, Launch, Node, Prepared, Recipe};
use super::purchase::{Patience, Purchase, Purchases};
use super::repair;
use super::shared::{Shared, WorkerSlot};
use super::status::PoolPhase;
use super::world::World;
use crate::bootstrap::Inputs;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{Generation, MachineNumber, NodeIndex};
use crate::plugin::PluginSet;
use crate::provider::{Checked, Labels, PoolRequest, Provider, Requirements};
use crate::scheduler::Scheduler;
use crate::spec::{Accelerator, ClusterInfo, Image, Nodes};

/// A pool that has been checked and not started.
#[derive(Debug)]
pub(crate) struct Blueprint {
    pub(crate) provider: Checked,
    pub(crate) nodes: Nodes,
    pub(crate) requirements: Requirements,
    pub(crate) cluster: ClusterInfo,
    pub(crate) image: Image,
    pub(crate) plugins: PluginSet,
    pub(crate) declared: Declared,
    pub(crate) labels: Labels,
    pub(crate) owner: String,
}

/// A pool whose workers have entered their hooks.
pub(crate) struct Started {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) world: Arc<World>,
    /// How further nodes are made.
    pub(crate) recipe: Arc<Recipe>,
    /// How many nodes it is to have.
    pub(crate) wanted: Nodes,
    /// Machines that are not ready yet.
    pub(crate) late: Vec<Late>,
    /// Machines that could not be made ready.
    pub(crate) failed: Vec<(MachineNumber, Error)>,
    /// How long all of it took.
    pub(crate) took: Duration,
}

/// A machine that is being made ready; the pool may start without it.
pub(crate) struct Late {
    pub(crate) launch: Launch,
    /// Since when, and for how long without the time for which it is queued.
    pub(crate) began: Instant,
    pub(crate) limit: Duration,
    pub(crate) prepared: BoxFuture<'static, Result<Prepared>>,
}

/// Nodes in the order of their indices, and what is not one yet.
struct Machines {
    prepared: Vec<Prepared>,
    late: Vec<Late>,
    failed: Vec<(MachineNumber, Error)>,
}

impl Future for Late {
    type Output = (Launch, Result<Prepared>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.prepared.poll_unpin(context).map(|prepared| (self.launch, prepared))
    }
}

/// What plugins hold for the life of the pool.
pub(crate) type Guards = Vec<Box<dyn Any + Send + Sync>>;

impl Blueprint {
    /// Launches the machines, makes them ready, and starts the first generation of workers.
    pub(crate) async fn bring_up(&self, shared: &Arc<Shared>, cleanup: &Cleanup) -> Result<Started> {
        let began = Instant::now();
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
        let inputs = self.read_inputs(shared.limits.start).await?;
        let market = self.market(&shared.account).await?;
        if market.offers().all(|(_, left_out)| left_out.is_some()) {
            return Err(market.exhausted());
        }
        cleanup.arm().await?;
        self.provider.prepare(&self.request(shared)).await?;
        let recipe = Arc::new(Recipe {
            provider: self.provider.clone(),
            purchases: Purchases::new(market, self.labels.clone()),
            cluster: self.cluster.clone(),
            image: self.image.clone(),
            inputs,
            plugins: self.plugins.clone(),
            declared: self.declared.clone(),
        });
        let Machines { prepared, late, failed } = self.prepare_nodes(shared, cleanup, &recipe).await?;

        let count = prepared.len() as u32;
        let mut cluster = self.cluster.clone();
        cluster.nodes = count;
        let per_node = cluster.workers_per_node;
        // By what it is to be, so that it stays so when the rest has come.
        let joined = self.declared.joined;
        {
            let mut state = shared.lock();
            state.scheduler = Scheduler::new(count, per_node, joined, shared.limits);
            state.scheduler.set_apart(prepared.iter().all(|prepared| !prepared.place.on_client_host));
            state.workers_per_node = per_node;
            let slot = || WorkerSlot::new(Generation(0), shared.limits.max_frame);
            state.workers = (0..count * per_node).map(|_| slot()).collect();
        }
        let connects = prepared.into_iter().zip(0..);
        let connects = connects.map(|(prepared, index)| prepared.join(shared, NodeIndex(index), per_node));
        let nodes: Vec<Arc<Node>> = try_join_all(connects).await?.into_iter().map(Arc::new).collect();
        {
            let mut state = shared.lock();
            state.agents = nodes.iter().map(|node| Some(node.agent.sender())).collect();
            state.nodes = nodes.iter().map(|node| node.status()).collect();
        }
        let world = Arc::new(World { cluster, plugins: self.plugins.clone(), _guards: guards });
        let nodes = repair::start_first(&world, &self.provider, shared, nodes).await?;
        shared.enter(PoolPhase::Ready);
        let took = began.elapsed();
        shared.metrics.started(took);
        shared.emit(PoolEvent::PoolReady { nodes: count, workers: count * per_node });
        Ok(Started { nodes, world, recipe, wanted: self.nodes, late, failed, took })
    }

    /// The offers that meet the requirements, at least one; left out are those that the plugins cannot serve and that the budget does not cover.
    pub(crate) async fn market(&self, account: &Mutex<Account>) -> Result<Market> {
        let requirements = Requirements { same_place: self.declared.joined, ..self.requirements.clone() };
        let offers = self.provider.candidates(&requirements).await?;
        let mut market = Market::new(self.provider.name(), offers, requirements.same_place);
        market.exclude(ErrorKind::Plugins, |offer| {
            let wanted = self.cluster.accelerator.as_ref()?;
            let offered = offer.accelerator.clone().map(|offered| Accelerator { count: wanted.count, ..offered });
            self.plugins
                .check(&self.cluster.clone().with_accelerator(offered))
                .err()
                .map(|error| error.message().to_owned())
        });
        {
            let account = account.lock().unwrap_or_else(PoisonError::into_inner);
            market.exclude(ErrorKind::Budget, |offer| account.objection(offer, self.nodes.least()));
        }
        Ok(market)
    }

    fn request(&self, shared: &Shared) -> PoolRequest {
        let mut request = PoolRequest::new(shared.pool.clone(), shared.limits.lease);
        request.owner = self.owner.clone();
        request.nodes = self.nodes;
        request.joined = self.declared.joined;
        request.wanted = Requirements { same_place: self.declared.joined, ..self.requirements.clone() };
        request.labels = self.labels.clone();
        request
    }

    /// Reads the client's files that the image names, on a thread on which nobody else waits.
    pub(super) async fn read_inputs(&self, deadline: Duration) -> Result<Inputs> {
        if Inputs::are_none(&self.image) {
            return Ok(Inputs::default());
        }
        let image = self.image.clone();
        let read = driver::spawn_blocking(move || Inputs::read(&image));
        match tokio::time::timeout(deadline, read).await {
            Ok(Ok(inputs)) => inputs,
            Ok(Err(error)) => {
                Err(Error::new(ErrorKind::Start, "the image's files could not be read").with_source(error))
            }
            Err(_) => {
                Err(Error::new(ErrorKind::Timeout, format!("the image's files were not read within {deadline:?}"))
                    .with_hint(
                        "is one of them on a network file system that does not answer? `Limits::start` gives more time",
                    ))
            }
        }
    }

    /// As many nodes as there are to be, in the order of their indices.
    async fn prepare_nodes(&self, shared: &Arc<Shared>, cleanup: &Cleanup, recipe: &Arc<Recipe>) -> Result<Machines> {
        let limits = &shared.limits;
        let wanted = self.nodes.wanted();
        let (began, limit) = (Instant::now(), limits.start + limits.environment);
        let content = began + limits.start / 2;
        let first = |node| recipe.purchases.launch(NodeIndex(node), MachineNumber(node));
        let launches: Vec<Launch> = (0..wanted).map(first).collect();
        cleanup.intend(launches.iter().map(|launch| (launch.id(shared), launch.machine))).await?;
        let mut bought = Vec::new();
        if self.declared.joined
            && wanted > 1
            && self.nodes.least() == wanted
            && recipe.purchases.are_together(&self.provider)
        {
            let buy = recipe.purchases.buy_all(shared, cleanup, &self.provider, launches.clone());
            bought = tokio::time::timeout(limits.start, buy).await.map_err(|_| {
                let what = format!("the machines of the world could not be bought within {:?}", limits.start);
                Error::new(ErrorKind::Timeout, what).with_hint("`Limits::start` gives more time")
            })??;
        }
        let mut bought = bought.into_iter();
        let prepare = |launch: Launch| {
            let purchase = bought.next().map_or(Purchase::With(Patience::Fail), Purchase::Made);
            let (recipe, shared, cleanup) = (Arc::clone(recipe), Arc::clone(shared), cleanup.clone());
            let prepared = async move { recipe.prepare(&shared, &cleanup, launch, purchase).await };
            Late { launch, began, limit, prepared: prepared.boxed() }
        };
        let mut pending: FuturesUnordered<Late> = launches.into_iter().map(prepare).collect();
        let mut prepared = Vec::new();
        let mut failed: Vec<(MachineNumber, Error)> = Vec::new();
        loop {
            let enough = prepared.len() as u32 >= self.nodes.least();
            let deadline = shared.lock().waits.deadline(began, limit, None);
            // A pool that is content with fewer nodes waits for the rest until half of its time has passed.
            let until = if enough { content } else { deadline };
            match tokio::time::timeout_at(until, pending.next()).await {
                Ok(Some((_, Ok(node)))) => prepared.push(node),
                Ok(Some((_, Err(error)))) if self.nodes.least() == wanted => return Err(error),
                Ok(Some((launch, Err(error)))) => {
                    tracing::warn!(pool = %shared.pool, %error, "a node could not be made ready");
                    failed.push((launch.machine, error));
                }
                Ok(None) => break,
                Err(_) if enough => break,
                Err(_) if shared.lock().waits.deadline(began, limit, None) > deadline => {}
                Err(_) => {
                    let ready = prepared.len();
                    let message = format!("{ready} of {wanted} nodes were ready after {limit:?}");
                    let error = Error::new(ErrorKind::Start, message).with_hint("`Limits::start` and `Limits::environment` give more time; `Nodes::partial` is content with fewer nodes");
                    return Err(shared.lock().waits.explain(error, None));
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
            return Err(match failed.pop() {
                Some((_, cause)) => error.with_source(cause),
                None => error,
            });
        }
        prepared.sort_by_key(|prepared| prepared.machine.number);
        Ok(Machines { prepared, late: pending.into_iter().collect(), failed })
    }
}
