//! The size of a running pool: its target number of nodes, and the machines that come and leave on
//! the way.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::growth::elastic;
use super::serving::{Fresh, Serving};
use super::timing::IDLE;
use crate::error::{Error, ErrorKind, Result};
use crate::event::PoolEvent;
use crate::ids::{MachineNumber, NodeIndex};
use crate::pool::fleet::Fleet;
use crate::pool::fleet::autoscale::Load;
use crate::pool::fleet::directive::Job;
use crate::pool::foreign::answer;
use crate::pool::node::make::Node;
use crate::pool::node::repair;
use crate::spec::Nodes;

impl Serving {
    pub(crate) fn on_resize(&mut self, nodes: Nodes, done: oneshot::Sender<Result<()>>) {
        let failure = self.shared.lock().scheduler.failure().cloned();
        if let Some(error) = failure {
            return answer(done, Err(error));
        }
        if let Err(error) = nodes.validate().and_then(|()| self.recipe.check_size(nodes)) {
            return answer(done, Err(error));
        }
        if let Some((_, before)) = self.growth.waiter.replace((nodes.least(), done)) {
            answer(before, Err(Error::new(ErrorKind::Cancelled, "a later call of `resize` replaced this one")));
        }
        let per_node = self.world.cluster.workers_per_node;
        self.growth.error = None;
        self.growth.elastic = elastic(nodes, per_node, &self.shared);
        self.growth.look_at = Instant::now();
        self.shared.on_most(nodes.most());
        let members = self.fleet(|fleet| fleet.members());
        let target = nodes.bounds().map_or(nodes.wanted(), |(min, max)| members.clamp(min, max));
        self.decide(|fleet| fleet.set_target(target));
    }

    /// When to look at the load and at the notices again.
    pub(crate) fn next_look(&self) -> Instant {
        let look = self.growth.elastic.as_ref().map(|_| self.growth.look_at);
        look.into_iter().chain(self.next_notice()).min().unwrap_or_else(|| Instant::now() + IDLE)
    }

    /// Checks whether an elastic pool should grow or shrink, and whether machines should be
    /// replaced before they end.
    pub(crate) fn look(&mut self) {
        let now = Instant::now();
        self.act_on_notices();
        if now < self.growth.look_at {
            return;
        }
        let (nodes, coming) = self.fleet(|fleet| (fleet.members(), fleet.coming()));
        let Some(elastic) = &mut self.growth.elastic else { return };
        self.growth.look_at = Instant::from_std(elastic.next_look(now.into_std()));
        let load = {
            let state = self.shared.lock();
            let idle = |node| state.scheduler.idle_since(NodeIndex(node));
            let idle = (0..nodes).rev().map_while(idle).collect();
            Load { waiting: state.scheduler.backlog(), nodes, coming, idle }
        };
        if let Some(wanted) = elastic.look(now.into_std(), &load) {
            tracing::info!(pool = %self.shared.pool, nodes, coming, wanted, waiting = load.waiting, "the size of the elastic pool changes");
            self.decide(|fleet| fleet.set_target(wanted));
            self.settle_size();
        }
    }

    /// A further machine is ready, or could not be made ready.
    pub(crate) fn on_added(&mut self, machine: MachineNumber, added: Result<Node>) {
        match added {
            Ok(node) => self.on_add_ready(machine, node),
            Err(error) => self.on_add_failed(machine, error),
        }
    }

    fn on_add_ready(&mut self, machine: MachineNumber, node: Node) {
        if let Some(error) = node.agent.gone().cloned() {
            return self.on_add_failed(machine, error);
        }
        if let Some(elastic) = &mut self.growth.elastic {
            elastic.on_joined();
        }
        self.growth.ready.insert(machine, node);
        self.decide(|fleet| fleet.on_ready(machine));
    }

    pub(crate) fn on_add_failed(&mut self, machine: MachineNumber, error: Error) {
        let succeeds = self.fleet(|fleet| fleet.succeeds(machine));
        let node = succeeds.unwrap_or(NodeIndex(machine.0));
        self.shared.emit(PoolEvent::NodeFailed { node, error: error.clone() });
        if let Some(node) = succeeds {
            self.decide(|fleet| fleet.on_failed(machine));
            if !self.fleet(|fleet| fleet.has_successor(node)) {
                self.on_no_successor(node);
            }
            return;
        }
        self.growth.error = Some(error);
        self.decide(|fleet| fleet.on_failed(machine));
        if self.fleet(Fleet::has_given_up)
            && let Some(elastic) = &mut self.growth.elastic
        {
            elastic.on_failed(Instant::now().into_std());
        }
    }

    /// The connection to the agent of a ready machine that has no place yet has ended: the pool
    /// reconnects, and gives up the machine if that fails.
    pub(crate) fn on_waiting_agent_gone(&mut self, connection: u64) {
        let waiting = self.growth.ready.iter().find(|(_, node)| node.agent.connection == connection);
        let Some((machine, cause)) = waiting.and_then(|(machine, node)| Some((*machine, node.agent.gone()?.clone())))
        else {
            return;
        };
        // A machine whose agent was silent for its whole lease ends itself if it can.
        let node = Some(&cause).filter(|cause| cause.kind() != ErrorKind::Timeout);
        let Some(node) = node.and_then(|_| self.growth.ready.remove(&machine)) else {
            return self.on_add_failed(machine, cause);
        };
        tracing::warn!(pool = %self.shared.pool, machine = machine.0, error = %cause, "the connection to a waiting machine was lost");
        let (shared, layout) = (Arc::clone(&self.shared), self.layout());
        let reach = repair::reach_agent(self.recipe.provider.clone(), shared, Arc::new(node), layout);
        self.jobs.begin(Job::Add(machine), reach, move |serving, reached| {
            serving.on_added(machine, reached.map_err(|error| repair::not_reached(cause, error)));
        });
        self.decide(|fleet| fleet.on_cut(machine));
    }

    pub(crate) fn on_drained(&mut self, node: NodeIndex) {
        if self.shared.lock().scheduler.is_drained(node) {
            self.decide(|fleet| fleet.on_drained(node));
        }
    }

    pub(crate) fn on_stopped(&mut self, node: NodeIndex, stopped: Result<()>) {
        if let Err(error) = stopped {
            tracing::warn!(pool = %self.shared.pool, node = node.0, error = error.summary(), "the workers of a node that leaves could not be stopped; they end with its machine");
        }
        self.decide(|fleet| fleet.on_stopped(node));
    }

    pub(crate) fn on_world_idle(&mut self) {
        if self.shared.lock().scheduler.is_world_idle() {
            self.decide(|fleet| fleet.on_world_idle());
        }
    }

    pub(crate) fn on_dismissed(&mut self, machine: MachineNumber, dismissed: Result<()>) {
        if let Err(error) = &dismissed {
            tracing::error!(pool = %self.shared.pool, node = machine.0, error = error.summary(), "a released machine is not confirmed gone");
        }
        self.decide(|fleet| {
            fleet.on_dismissed(machine, dismissed.is_ok());
            Vec::new()
        });
    }

    /// Reports the new size, also to the caller that waits for it, once the pool has that size.
    pub(crate) fn settle_size(&mut self) {
        // A world that was idle before this call is waiting for it.
        self.on_world_idle();
        if !self.fleet(|fleet| fleet.is_settled()) {
            return;
        }
        let nodes = self.fleet(|fleet| fleet.members());
        let workers = self.layout().workers(nodes);
        let joins = self.fresh.values().any(|fresh| *fresh == Fresh::Joined);
        if joins || nodes != self.growth.reported && !self.is_world_ready() {
            return;
        }
        if std::mem::replace(&mut self.growth.reported, nodes) != nodes {
            self.shared.emit(PoolEvent::Resized { nodes, workers });
        }
        if let Some((least, done)) = self.growth.waiter.take() {
            let enough = nodes >= least || self.growth.elastic.is_some() && self.growth.error.is_none();
            let failed = || {
                let what = format!("the pool has {nodes} nodes, and further machines could not be made ready");
                Error::new(ErrorKind::Start, what).caused_by(self.growth.error.clone())
            };
            answer(done, if enough { Ok(()) } else { Err(failed()) });
        }
    }

    /// Whether a joined world takes tasks; true for a pool without a world.
    fn is_world_ready(&self) -> bool {
        let state = self.shared.lock();
        !state.scheduler.is_joined()
            || (0..state.scheduler.active_workers()).all(|rank| state.scheduler.is_ready(crate::ids::Rank(rank)))
    }
}
