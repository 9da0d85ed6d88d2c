//! The size of a pool that serves: machines join and leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::bring_up::Late;
use super::cleanup::Cleanup;
use super::driver::IDLE;
use super::elastic::{Elastic, Load};
use super::lifecycle::Job;
use super::node::Node;
use super::purchase::Patience;
use super::repair;
use super::serving::{End, Fresh, Place, Serving};
use super::shared::Shared;
use super::sizing::{SizeStep, Sizing};
use super::waiting::Ending;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Leaving, PoolEvent};
use crate::ids::{Generation, MachineNumber, NodeIndex};
use crate::spec::Nodes;

/// What is known of the nodes that come and leave.
pub(super) struct Growth {
    pub(super) sizing: Sizing,
    elastic: Option<Elastic>,
    /// When an elastic pool is looked at.
    look_at: Instant,
    /// Further machines that are ready, and have no place yet.
    pub(super) ready: BTreeMap<MachineNumber, Node>,
    /// Who waits for the size, and for how many nodes at least.
    waiter: Option<(u32, oneshot::Sender<Result<()>>)>,
    /// Why the last machine could not be had.
    error: Option<Error>,
    /// The number of nodes that was told last.
    told: u32,
    /// How long a further machine takes, by what the first ones took.
    pub(super) lead: Duration,
}

impl Growth {
    pub(super) fn new(
        joined: bool,
        nodes: Nodes,
        workers_per_node: u32,
        machines: Vec<MachineNumber>,
        coming: impl Iterator<Item = MachineNumber>,
        shared: &Shared,
        lead: Duration,
    ) -> Self {
        let told = machines.len() as u32;
        Self {
            sizing: Sizing::new(joined, nodes.wanted(), machines, coming),
            elastic: elastic(nodes, workers_per_node, shared),
            look_at: Instant::now(),
            ready: BTreeMap::new(),
            waiter: None,
            error: None,
            told,
            lead,
        }
    }

    /// The pool has failed, and its size does not change any more.
    pub(super) fn give_up(&mut self, error: &Error) {
        self.elastic = None;
        if let Some((_, done)) = self.waiter.take() {
            let _ = done.send(Err(error.clone()));
        }
    }
}

impl Serving {
    pub(super) fn on_resize(&mut self, nodes: Nodes, done: oneshot::Sender<Result<()>>) {
        if let Err(error) = nodes.validate().and_then(|()| self.recipe.check_size(nodes)) {
            let _ = done.send(Err(error));
            return;
        }
        if let Some((_, before)) = self.growth.waiter.replace((nodes.least(), done)) {
            let _ = before.send(Err(Error::new(ErrorKind::Cancelled, "another size was asked for meanwhile")));
        }
        let per_node = self.world.cluster.workers_per_node;
        self.growth.error = None;
        self.growth.elastic = elastic(nodes, per_node, &self.shared);
        self.growth.look_at = Instant::now();
        self.shared.account().set_most(nodes.most());
        let target = match nodes {
            Nodes::Elastic { min, max } => self.growth.sizing.members().clamp(min, max),
            nodes => nodes.wanted(),
        };
        let steps = self.growth.sizing.set_target(target);
        self.size(steps);
    }

    /// When an elastic pool is to be looked at.
    pub(super) fn next_look(&self) -> Instant {
        let look = self.growth.elastic.as_ref().map(|_| self.growth.look_at);
        look.into_iter().chain(self.next_notice()).min().unwrap_or_else(|| Instant::now() + IDLE)
    }

    /// Looks whether an elastic pool is to grow or to shrink, and whether machines are to be replaced before they end.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        if self.has_failed() {
            return;
        }
        self.act_on_notices();
        if now < self.growth.look_at {
            return;
        }
        let (nodes, coming) = (self.growth.sizing.members(), self.growth.sizing.coming());
        let Some(elastic) = &mut self.growth.elastic else { return };
        self.growth.look_at = Instant::from_std(elastic.next_look(now.into_std()));
        let load = {
            let state = self.shared.lock();
            let idle = |node| state.scheduler.idle_since(NodeIndex(node));
            let idle = (0..nodes).rev().map_while(idle).collect();
            Load { waiting: state.scheduler.backlog(), nodes, coming, idle }
        };
        if let Some(wanted) = elastic.look(now.into_std(), &load) {
            tracing::info!(pool = %self.shared.pool, nodes, coming, wanted, waiting = load.waiting, "the pool's size changes");
            let steps = self.growth.sizing.set_target(wanted);
            self.size(steps);
            self.settle_size();
        }
    }

    pub(super) fn on_add_ready(&mut self, machine: MachineNumber, node: Node) {
        if let Some(error) = node.agent.gone().cloned() {
            return self.on_add_failed(machine, error);
        }
        if let Some(elastic) = &mut self.growth.elastic {
            elastic.on_joined();
        }
        self.growth.ready.insert(machine, node);
        let steps = self.growth.sizing.on_ready(machine);
        self.size(steps);
    }

    pub(super) fn on_add_failed(&mut self, machine: MachineNumber, error: Error) {
        tracing::warn!(pool = %self.shared.pool, node = machine.0, %error, "a further machine could not be made ready");
        self.shared.emit(PoolEvent::NodeFailed { node: NodeIndex(machine.0), error: error.clone() });
        if let Some(node) = self.growth.sizing.inherits(machine) {
            let steps = self.growth.sizing.on_failed(machine);
            self.size(steps);
            if !self.growth.sizing.has_heir(node) {
                self.on_unheired(node);
            }
            return;
        }
        self.growth.error = Some(error);
        let steps = self.growth.sizing.on_failed(machine);
        if self.growth.sizing.has_given_up()
            && let Some(elastic) = &mut self.growth.elastic
        {
            elastic.on_failed(Instant::now().into_std());
        }
        self.size(steps);
    }

    /// A machine that is ready and has no place yet is lost.
    pub(super) fn on_waiting_agent_gone(&mut self, connection: u64) {
        let waiting = self.growth.ready.iter().find(|(_, node)| node.agent.connection == connection);
        if let Some((machine, error)) = waiting.and_then(|(machine, node)| Some((*machine, node.agent.gone()?.clone())))
        {
            self.on_add_failed(machine, error);
        }
    }

    pub(super) fn on_drained(&mut self, node: NodeIndex) {
        if self.shared.lock().scheduler.is_drained(node) {
            let steps = self.growth.sizing.on_drained(node);
            self.size(steps);
        }
    }

    pub(super) fn on_stopped(&mut self, node: NodeIndex, stopped: Result<()>) {
        if let Err(error) = stopped {
            tracing::warn!(pool = %self.shared.pool, node = node.0, %error, "the workers of a node that leaves could not be stopped; they end with its machine");
        }
        let steps = self.growth.sizing.on_stopped(node);
        self.size(steps);
    }

    pub(super) fn on_world_idle(&mut self) {
        if self.shared.lock().scheduler.is_world_idle() {
            let steps = self.growth.sizing.on_world_idle();
            self.size(steps);
        }
    }

    pub(super) fn on_dismissed(&mut self, machine: MachineNumber, dismissed: Result<()>) {
        if let Err(error) = &dismissed {
            tracing::error!(pool = %self.shared.pool, node = machine.0, %error, "a machine that was given back is not confirmed gone");
            self.shared.emit(PoolEvent::NodeLeft { node: NodeIndex(machine.0), error: error.clone() });
        }
        self.growth.sizing.on_dismissed(machine, dismissed.is_ok());
    }

    /// Tells whoever waits for the size that the pool has it.
    pub(super) fn settle_size(&mut self) {
        // A world that had nothing more to do before this has waited for it.
        self.on_world_idle();
        if !self.growth.sizing.is_settled() {
            return;
        }
        let nodes = self.growth.sizing.members();
        let workers = nodes * self.world.cluster.workers_per_node;
        let joins = self.fresh.values().any(|fresh| *fresh == Fresh::Joined);
        if joins || nodes != self.growth.told && !self.is_world_ready() {
            return;
        }
        if std::mem::replace(&mut self.growth.told, nodes) != nodes {
            self.shared.emit(PoolEvent::Resized { nodes, workers });
        }
        if let Some((least, done)) = self.growth.waiter.take() {
            let enough = nodes >= least || self.growth.elastic.is_some() && self.growth.error.is_none();
            let failed = || {
                let what = format!("the pool has {nodes} nodes, and further machines could not be made ready");
                let error = Error::new(ErrorKind::Start, what);
                self.growth.error.clone().map_or(error.clone(), |cause| error.with_source(cause))
            };
            let _ = done.send(if enough { Ok(()) } else { Err(failed()) });
        }
    }

    /// Whether a joined world takes tasks; other pools have none.
    fn is_world_ready(&self) -> bool {
        let state = self.shared.lock();
        !state.scheduler.is_joined()
            || (0..state.scheduler.active_workers()).all(|rank| state.scheduler.is_ready(crate::ids::Rank(rank)))
    }

    pub(super) fn size(&mut self, steps: Vec<SizeStep>) {
        for step in steps {
            self.size_one(step);
        }
    }

    fn size_one(&mut self, step: SizeStep) {
        let per_node = self.world.cluster.workers_per_node;
        match step {
            SizeStep::Launch { machine } => {
                let launch = self.recipe.purchases.launch(NodeIndex(machine.0), machine);
                let (recipe, cleanup, shared) =
                    (Arc::clone(&self.recipe), self.cleanup.clone(), Arc::clone(&self.shared));
                let add = repair::make(recipe, cleanup, shared, launch, per_node, Patience::Fail);
                self.jobs.begin(Job::Add(machine), async move { End::Added(add.await.map(Box::new)) });
            }
            SizeStep::Forget { machine } => {
                self.jobs.end(Job::Add(machine));
                let node = self.growth.ready.remove(&machine).map(Arc::new);
                self.dismiss(machine, NodeIndex(machine.0), node);
            }
            SizeStep::Join { node, machine } => {
                let Some(mut joined) = self.growth.ready.remove(&machine) else { return };
                joined.take_place(node);
                self.shared.add_node(&joined);
                self.seat(joined);
                let steps = self.lifecycle.on_added(node);
                self.go(steps);
                self.look_at_agent(node);
            }
            SizeStep::Leave { node } => {
                let reason = if self.growth.elastic.is_some() { Leaving::Idle } else { Leaving::Resized };
                self.shared.emit(PoolEvent::NodeLeaving { node, reason, ends_in: None });
                self.shared.act(|state, _| {
                    state.scheduler.leave(node);
                    state.set_leaving(node, true);
                });
            }
            SizeStep::Stay { node } => {
                self.shared.act(|state, _| {
                    state.scheduler.stay(node);
                    state.set_leaving(node, false);
                });
                self.on_staying(node);
            }
            SizeStep::Stop { node } => {
                let steps = self.lifecycle.on_drained(node);
                self.go(steps);
                self.shared.act(|state, _| state.scheduler.retire(node));
                self.fresh.remove(&node);
                let Some(leaving) = self.node(node) else { return self.on_stopped(node, Ok(())) };
                let (shared, generation) = (Arc::clone(&self.shared), self.shared.lock().generation);
                self.jobs.begin(Job::Stop(node), async move {
                    End::Stopped(stop(&shared, &leaving, generation, per_node).await)
                });
            }
            SizeStep::Remove { node, machine, rows } => {
                let left = self.nodes.get_mut(node.0 as usize).and_then(|place| place.node.take());
                self.shared.remove_node(node, rows);
                self.nodes.truncate(rows as usize);
                self.lifecycle.on_removed(rows);
                self.dismiss(machine, node, left);
            }
            SizeStep::Cordon { node } => self.shared.act(|state, _| state.scheduler.cordon(node)),
            SizeStep::Uncordon { node } => self.shared.act(|state, _| state.scheduler.uncordon(node)),
            SizeStep::Succeed { node, machine } => self.succeed(node, machine),
            SizeStep::Vacate { node } => self.vacate(node),
            SizeStep::Take { node, machine, left } => self.take((node, machine, left)),
            SizeStep::Revive { node } => self.revive(node),
            SizeStep::Replace { node } => self.replace(node),
            SizeStep::Hold => self.shared.act(|state, _| state.scheduler.hold()),
            SizeStep::Release => self.shared.act(|state, _| state.scheduler.release_world()),
            SizeStep::Reshape { stay, left, join, taken } => {
                let leaving: Vec<_> = self.nodes.drain(stay as usize..).map(|place| place.node).collect();
                for (at, (machine, node)) in left.into_iter().zip(leaving).enumerate() {
                    let index = NodeIndex(stay + at as u32);
                    self.fresh.remove(&index);
                    self.dismiss(machine, index, node);
                }
                let mut joined = Vec::new();
                for (index, machine) in (stay..).map(NodeIndex).zip(join) {
                    let Some(mut node) = self.growth.ready.remove(&machine) else { continue };
                    node.take_place(index);
                    joined.push(node);
                }
                let indices: Vec<NodeIndex> = joined.iter().map(|node| node.index).collect();
                self.shared.reshape(stay, &joined);
                joined.into_iter().for_each(|node| self.seat(node));
                let taken: Vec<_> =
                    taken.into_iter().filter(|taken| self.seat_heir(*taken)).map(|(node, ..)| node).collect();
                let steps = self.lifecycle.on_reshaped(stay, self.nodes.len() as u32, &taken);
                self.go(steps);
                indices.into_iter().chain(taken).for_each(|node| self.look_at_agent(node));
            }
        }
    }

    /// Gives a node that has joined its place.
    fn seat(&mut self, node: Node) {
        let index = node.index;
        let machine = node.machine.number;
        let place = Place { machine, node: Some(Arc::new(node)) };
        match self.nodes.get_mut(index.0 as usize) {
            Some(vacant) => *vacant = place,
            None => self.nodes.push(place),
        }
        self.fresh.insert(index, Fresh::Joined);
        self.note_end(index);
    }

    pub(super) fn look_at_agent(&mut self, node: NodeIndex) {
        if let Some(connection) = self.connection(node) {
            self.on_agent_gone(node, connection);
        }
    }

    /// Ends a machine that is not wanted any more.
    pub(super) fn dismiss(&mut self, machine: MachineNumber, node: NodeIndex, there: Option<Arc<Node>>) {
        let (shared, cleanup) = (Arc::clone(&self.shared), self.cleanup.clone());
        let (generation, per_node) = (shared.lock().generation, self.world.cluster.workers_per_node);
        self.jobs.begin(Job::Dismiss(machine), async move {
            let _ending = Ending::begin(&shared, machine);
            End::Dismissed(dismiss(&shared, &cleanup, machine, node, there, generation, per_node).await)
        });
    }
}

/// A machine that was asked for when the pool started, and is not ready yet.
pub(super) async fn connect_late(shared: Arc<Shared>, late: Late, workers_per_node: u32) -> Result<Node> {
    let (began, limit, machine) = (late.began, late.limit, late.launch.machine);
    let mut late = std::pin::pin!(late);
    let Ok((launch, prepared)) = shared.until_ready(began, limit, machine, late.as_mut()).await else {
        let error = Error::new(ErrorKind::Timeout, "it was not ready in time")
            .with_hint("`Limits::start` and `Limits::environment` give more time");
        return Err(shared.lock().waits.explain(error, Some(machine)));
    };
    prepared?.join(&shared, launch.node, workers_per_node).await
}

fn elastic(nodes: Nodes, workers_per_node: u32, shared: &Shared) -> Option<Elastic> {
    match nodes {
        Nodes::Elastic { min, max } => Some(Elastic::new(min, max, workers_per_node, &shared.limits)),
        _ => None,
    }
}

/// Stops the workers of a node that leaves, and waits until what they wrote has arrived.
pub(super) async fn stop(shared: &Shared, node: &Node, generation: Generation, per_node: u32) -> Result<()> {
    let grace = shared.limits.grace;
    node.agent.stop(generation, (0..per_node).collect(), grace, grace + STOP).await?;
    let _ = tokio::time::timeout(OUTPUT, shared.output_ended()).await;
    Ok(())
}

/// Ends what runs on a machine that has left, then the machine.
async fn dismiss(
    shared: &Arc<Shared>,
    cleanup: &Cleanup,
    machine: MachineNumber,
    node: NodeIndex,
    there: Option<Arc<Node>>,
    generation: Generation,
    per_node: u32,
) -> Result<()> {
    if let Some(there) = there {
        let grace = shared.limits.grace;
        let orderly = async {
            there.agent.stop(generation, (0..per_node).collect(), grace, grace + STOP).await?;
            there.agent.shutdown(Duration::ZERO, grace + STOP).await
        };
        if let Err(error) = orderly.await {
            tracing::debug!(pool = %shared.pool, node = node.0, %error, "what runs there ends with its machine");
        }
    }
    let end = Instant::now() + shared.limits.shutdown;
    let gone = |gone: &crate::provider::Machine| {
        shared.emit(PoolEvent::NodeGone { node, machine: gone.id.clone() });
    };
    cleanup.retire(machine, end, gone).await
}

/// What an agent gets to end process trees, beside the grace.
const STOP: Duration = Duration::from_secs(10);
/// How long the last output of a node that leaves is waited for.
const OUTPUT: Duration = Duration::from_secs(5);
