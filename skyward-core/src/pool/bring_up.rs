//! From a blueprint to nodes with agents, and to workers that have entered their hooks.

use std::any::Any;
use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::cleanup::Cleanup;
use super::node::{Launch, Node, Prepared, Recipe};
use super::shared::{Shared, WorkerSlot};
use super::status::PoolPhase;
use super::world::World;
use crate::bootstrap::Inputs;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::plugin::PluginSet;
use crate::provider::{Checked, Provider, Requirements};
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

/// A pool whose workers have entered their hooks.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) world: Arc<World>,
    /// How further nodes are made.
    pub(crate) recipe: Arc<Recipe>,
}

/// What plugins hold for the life of the pool.
pub(crate) type Guards = Vec<Box<dyn Any + Send + Sync>>;

impl Blueprint {
    /// Launches the machines, makes them ready, and starts the first generation of workers.
    pub(crate) async fn bring_up(&self, shared: &Arc<Shared>, cleanup: &Cleanup) -> Result<Started> {
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
        let recipe = Recipe {
            provider: self.provider.clone(),
            offer,
            cluster: self.cluster.clone(),
            image: self.image.clone(),
            inputs,
            plugins: self.plugins.clone(),
        };
        let prepared = self.prepare_nodes(shared, cleanup, &recipe).await?;

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
        let connects = prepared.into_iter().zip(0..);
        let connects = connects.map(|(prepared, index)| prepared.connect(shared, NodeIndex(index), per_node));
        let nodes: Vec<Arc<Node>> = try_join_all(connects).await?.into_iter().map(Arc::new).collect();
        {
            let mut state = shared.lock();
            state.agents = nodes.iter().map(|node| Some(node.agent.sender())).collect();
            state.nodes = nodes.iter().map(|node| node.status()).collect();
        }
        let world = World { cluster, plugins: self.plugins.clone(), _guards: guards };
        let ranks: Vec<Rank> = (0..count * per_node).map(Rank).collect();
        world.start(shared, &nodes, Generation(1), &ranks).await?;
        shared.lock().phase = PoolPhase::Ready;
        shared.emit(PoolEvent::PoolReady { nodes: count, workers: count * per_node });
        Ok(Started { nodes, world: Arc::new(world), recipe: Arc::new(recipe) })
    }

    /// As many nodes as there are to be, in the order of their indices.
    async fn prepare_nodes(&self, shared: &Arc<Shared>, cleanup: &Cleanup, recipe: &Recipe) -> Result<Vec<Prepared>> {
        let limits = &shared.limits;
        let wanted = self.nodes.wanted();
        let content = Instant::now() + limits.start / 2;
        let deadline = Instant::now() + limits.start + limits.environment;
        let launches = (0..wanted).map(|node| Launch::first(NodeIndex(node)));
        cleanup.intend(launches.clone().map(|launch| (launch.id(shared), launch.as_node))).await?;
        let mut pending: FuturesUnordered<_> = launches.map(|launch| recipe.prepare(shared, cleanup, launch)).collect();
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
}
