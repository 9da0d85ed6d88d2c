//! Starts a pool: from a blueprint to nodes with agents, and to workers that have entered their
//! hooks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{maybe_done, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::late::{Late, beside};
use crate::compute::PoolPhase;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{MachineNumber, NodeIndex};
use crate::pool::blueprint::Blueprint;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::environment::check_all;
use crate::pool::fleet::Fleet;
use crate::pool::fleet::launch::Launch;
use crate::pool::node::generation::Guards;
use crate::pool::node::generation::World;
use crate::pool::node::make::{Node, Prepared, Purchase, Recipe};
use crate::pool::node::purchase::{Patience, Purchases};
use crate::pool::node::repair;
use crate::pool::node::together::Together;
use crate::pool::tasks::shared::Shared;
use crate::provider::Provider;
use crate::scheduler::Scheduler;
use crate::spec::Nodes;

/// A pool whose workers have entered their hooks.
pub(crate) struct Started {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) world: Arc<World>,
    /// How further nodes are made.
    pub(crate) recipe: Arc<Recipe>,
    /// The number of nodes that the pool should have.
    pub(crate) wanted: Nodes,
    /// Machines that are not ready yet.
    pub(crate) late: Vec<Late>,
    /// Machines that could not be made ready.
    pub(crate) failed: Vec<(MachineNumber, Error)>,
    /// How long the start took.
    pub(crate) took: Duration,
}

/// The machines of a pool that starts: those that are prepared, in the order of their nodes'
/// indices, those that are not ready yet, and those that failed.
struct Machines {
    prepared: Vec<Prepared>,
    late: Vec<Late>,
    failed: Vec<(MachineNumber, Error)>,
}

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
        let shortlist = self.shortlist(&shared.account).await?;
        if shortlist.offers().all(|(_, left_out)| left_out.is_some()) {
            return Err(shortlist.exhausted());
        }
        shared.lock().fleet =
            Fleet::new(self.declared.joined, self.cluster.layout(), self.nodes, Vec::new(), std::iter::empty());
        cleanup.arm().await?;
        self.provider.prepare(&self.request(&shared.pool, shared.limits.lease)).await?;
        let purchases = Arc::new(Purchases::new(shortlist, self.owner.clone(), self.labels.clone()));
        let recipe = Arc::new(Recipe {
            provider: self.provider.clone(),
            together: Arc::new(Together::new(Arc::clone(&purchases))),
            purchases,
            cluster: self.cluster.clone(),
            image: self.image.clone(),
            inputs,
            plugins: self.plugins.clone(),
            declared: self.declared.clone(),
        });
        let Machines { prepared, mut late, failed } = self.prepare_nodes(shared, cleanup, &recipe).await?;

        let count = prepared.len() as u32;
        let mut cluster = self.cluster.clone();
        cluster.nodes = count;
        let layout = cluster.layout();
        // From the declared size, so that it does not change when further nodes join.
        let joined = self.declared.joined;
        {
            let mut state = shared.lock();
            state.scheduler = Scheduler::new(count, layout.workers_per_node(), joined, shared.limits);
            state.workers.add(layout.workers(count), shared.limits.max_frame_bytes);
        }
        let apart = prepared.iter().all(|prepared| !prepared.place.on_client_host);
        let connects = prepared.into_iter().zip(0..);
        let connects = connects.map(|(prepared, index)| prepared.join(shared, NodeIndex(index), layout));
        let nodes: Vec<Arc<Node>> =
            beside(&mut late, try_join_all(connects)).await?.into_iter().map(Arc::new).collect();
        if !shared.is_mixed {
            check_all(nodes.iter().map(|node| (node.index, &node.environment)))?;
        }
        {
            let machines = nodes.iter().map(|node| node.machine.number).collect();
            let coming = late.iter().map(|late| late.launch.machine);
            let coming = coming.chain(failed.iter().map(|(machine, _)| *machine));
            let mut state = shared.lock();
            state.fleet = Fleet::new(joined, layout, self.nodes, machines, coming);
            state.fleet.set_apart(apart);
            nodes.iter().for_each(|node| state.nodes.push(node.row()));
        }
        let world = Arc::new(World { cluster, plugins: self.plugins.clone(), _guards: guards });
        let nodes = beside(&mut late, repair::start_first(&world, &self.provider, shared, nodes)).await?;
        shared.enter(PoolPhase::Ready);
        let took = began.elapsed();
        shared.metrics.started(took);
        shared.emit(PoolEvent::PoolReady { nodes: count, workers: layout.workers(count) });
        Ok(Started { nodes, world, recipe, wanted: self.nodes, late, failed, took })
    }

    /// Prepares at least the least number of nodes, in the order of their indices.
    async fn prepare_nodes(&self, shared: &Arc<Shared>, cleanup: &Cleanup, recipe: &Arc<Recipe>) -> Result<Machines> {
        let limits = &shared.limits;
        let wanted = self.nodes.wanted();
        let (began, limit) = (Instant::now(), limits.start + limits.environment);
        let content = began + limits.start / 2;
        let first = |node| recipe.purchases.launch(NodeIndex(node), MachineNumber(node));
        let launches: Vec<Launch> = (0..wanted).map(first).collect();
        cleanup.intend(launches.iter().map(|launch| (launch.id(&shared.pool), launch.machine))).await?;
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
            Late { launch, began, limit, prepared: maybe_done(prepared.boxed()) }
        };
        let mut pending: FuturesUnordered<Late> = launches.into_iter().map(prepare).collect();
        let mut prepared = Vec::new();
        let mut failed: Vec<(MachineNumber, Error)> = Vec::new();
        loop {
            let enough = prepared.len() as u32 >= self.nodes.least();
            let deadline = shared.lock().making.deadline(began, limit, None);
            // A partial pool waits for further nodes until half of its time has passed.
            let until = if enough { content } else { deadline };
            match tokio::time::timeout_at(until, pending.next()).await {
                Ok(Some((_, Ok(node)))) => prepared.push(node),
                Ok(Some((_, Err(error)))) if self.nodes.least() == wanted => return Err(error),
                Ok(Some((launch, Err(error)))) => {
                    tracing::warn!(pool = %shared.pool, error = error.summary(), "a node could not be made ready");
                    failed.push((launch.machine, error));
                }
                Ok(None) => break,
                Err(_) if enough => break,
                Err(_) if shared.lock().making.deadline(began, limit, None) > deadline => {}
                Err(_) => {
                    let ready = prepared.len();
                    let message = format!("{ready} of {wanted} nodes were ready after {limit:?}");
                    let error = Error::new(ErrorKind::Start, message).with_hint("`Limits::start` and `Limits::environment` give more time; `Nodes::partial` starts with fewer nodes");
                    return Err(shared.lock().making.explain(error, None));
                }
            }
        }
        if (prepared.len() as u32) < self.nodes.least() {
            let error = Error::new(
                ErrorKind::Start,
                format!(
                    "only {} of {wanted} nodes could be made ready, and at least {} are needed",
                    prepared.len(),
                    self.nodes.least()
                ),
            );
            return Err(error.caused_by(failed.pop().map(|(_, cause)| cause)));
        }
        prepared.sort_by_key(|prepared| prepared.machine.number);
        Ok(Machines { prepared, late: pending.into_iter().collect(), failed })
    }
}
