//! A running pool: reacts to commands and to the results of jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::growth::Growth;
use super::jobs::Jobs;
use super::late::connect_late;
use super::start::Started;
use super::timing::{REFUSED_PAUSE, SUCCESSOR_LEAD};
use crate::error::{Error, ErrorKind, Result, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{NodeIndex, Rank};
use crate::layout::Layout;
use crate::pool::command::Command;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::fleet::Fleet;
use crate::pool::fleet::directive::{Job, Repair, Workers};
use crate::pool::fleet::notices::Notices;
use crate::pool::foreign::answer;
use crate::pool::node::generation::{NotStarted, World};
use crate::pool::node::make::{Node, Recipe};
use crate::pool::node::mover::reach_mover;
use crate::pool::node::repair;
use crate::pool::spawn::spawn;
use crate::pool::tasks::files::without_machine;
use crate::pool::tasks::nested::connection::reach_caller;
use crate::pool::tasks::shared::Shared;

/// A running pool, which takes tasks.
pub(crate) struct Serving {
    pub(crate) shared: Arc<Shared>,
    pub(crate) cleanup: Cleanup,
    pub(crate) jobs: Jobs<Self>,
    pub(crate) world: Arc<World>,
    pub(crate) recipe: Arc<Recipe>,
    /// The present nodes. A node is missing while it is lost, and after it has left.
    pub(crate) nodes: BTreeMap<NodeIndex, Arc<Node>>,
    /// Nodes with a new machine whose workers do not all take tasks yet.
    pub(crate) fresh: BTreeMap<NodeIndex, Fresh>,
    pub(crate) growth: Growth,
    /// Why the pool must end, once the fleet has found that.
    pub(crate) failed: Option<Error>,
}

/// Why a node has a new machine whose workers do not all take tasks yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    Replaced,
    Joined,
}

impl Serving {
    pub(crate) fn new(shared: &Arc<Shared>, cleanup: &Cleanup, started: Started) -> Self {
        let Started { nodes, world, recipe, wanted, late, failed, took } = started;
        let lead = took + shared.limits.grace + SUCCESSOR_LEAD;
        shared.lock().machine_ends.notices.set_lead(lead);
        let layout = world.cluster.layout();
        let growth = Growth::new(wanted, layout.workers_per_node(), nodes.len() as u32, shared);
        let mut serving = Self {
            shared: Arc::clone(shared),
            cleanup: cleanup.clone(),
            jobs: Jobs::default(),
            world,
            recipe,
            nodes: nodes.into_iter().map(|node| (node.index, node)).collect(),
            fresh: BTreeMap::new(),
            growth,
            failed: None,
        };
        for late in late {
            let machine = late.launch.machine;
            let add = connect_late(Arc::clone(shared), late, layout);
            serving.jobs.begin(Job::Add(machine), add, move |serving, added| serving.on_added(machine, added));
        }
        for (machine, error) in failed {
            serving.on_add_failed(machine, error);
        }
        serving
    }

    /// Gives up the jobs under way, and returns what must be ended.
    pub(crate) fn leave(self) -> (Vec<Arc<Node>>, Arc<World>) {
        drop(self.jobs);
        (self.nodes.into_values().collect(), self.world)
    }

    pub(crate) fn on_command(&mut self, command: Command) {
        match command {
            Command::Drained(node) => self.on_drained(node),
            Command::WorldIdle => self.on_world_idle(),
            Command::Resize { nodes, done } => self.on_resize(nodes, done),
            Command::WorkerLost(rank, loss) => {
                self.judge(|fleet, returns| fleet.on_worker_lost(rank, loss, returns));
            }
            Command::WorkerDisconnected { rank, generation, connection } => {
                // A worker that was restarted or reconnected has another connection by now.
                let is_current = self.shared.lock().row(rank, generation).is_some_and(|row| row.is_on(connection));
                if is_current && let Some(node) = self.node(self.layout().node(rank)) {
                    let (world, shared) = (Arc::clone(&self.world), Arc::clone(&self.shared));
                    let reach = repair::reach_worker(world, shared, node, rank, generation);
                    self.jobs.begin(Job::ReachWorker(rank), reach, move |serving, reached| {
                        if let Err(error) = reached {
                            serving.on_node_lost(serving.layout().node(rank), error);
                        }
                    });
                }
            }
            Command::CallerDisconnected { rank, generation, connection } => {
                let lacks = self.shared.lock().row(rank, generation).is_some_and(|row| row.calls_lack(connection));
                if lacks && let Some(node) = self.node(self.layout().node(rank)) {
                    let reach = reach_caller(Arc::clone(&self.shared), Arc::clone(&node.remote), rank, generation);
                    self.jobs.begin(Job::ReachCaller(rank), reach, |_, ()| {});
                }
            }
            Command::AgentGone { node, connection } => self.on_agent_gone(node, connection),
            Command::Notice { node, connection, reason, ends_in, words } => {
                self.on_agent_notice(node, connection, reason, ends_in, words);
            }
            Command::ReachMover { node, line, done } => match self.node(node) {
                Some(node) => drop(spawn(reach_mover(Arc::clone(&self.shared), node, line, done))),
                None => answer(done, Err(without_machine(node))),
            },
            // The driver's loop handles the ends of the pool.
            Command::Drain { .. } | Command::Panicked(_) | Command::Shutdown { .. } => {}
        }
        self.settle_size();
    }

    /// Waits for the next job that ends, and handles its result.
    ///
    /// # Cancel safety
    ///
    /// No result is lost.
    pub(crate) async fn next_end(&mut self) {
        let then = self.jobs.next().await;
        then(self);
        self.settle_size();
    }

    /// A node's agent is connected again, or cannot be reached.
    pub(super) fn on_agent_reached(&mut self, index: NodeIndex, reached: Result<Node>) {
        let node = match reached {
            Ok(node) => node,
            Err(error) => return self.on_node_lost(index, error),
        };
        self.shared.on_agent_back(&node);
        self.shared.emit(PoolEvent::NodeReconnected { node: index });
        self.set(node);
        self.decide(|fleet| fleet.on_agent_reached(index));
        self.look_at_agent(index);
    }

    /// A lost node has another machine, or that could not be made ready.
    pub(super) fn on_replaced(&mut self, index: NodeIndex, replaced: Result<Node>) {
        let node = match replaced {
            Ok(node) => node,
            Err(error) if error.kind() == ErrorKind::Budget || error.refusal().is_some() => {
                return self.on_refused(index, error);
            }
            Err(error) => return self.on_node_lost(index, error),
        };
        self.shared.set_node(&node);
        self.set(node);
        self.fresh.entry(index).or_insert(Fresh::Replaced);
        self.decide(|fleet| fleet.on_replaced(index));
        self.look_at_agent(index);
    }

    /// The budget or the provider refuses another machine for a lost node.
    ///
    /// - If other nodes run, they go on. Tasks that name the lost node fail, and so does a `resize`
    ///   that waits for it. The pool asks for the machine again later.
    /// - Otherwise the node counts as lost once more. But a spent budget ends the pool, unless
    ///   machines that are still being paid are the reason.
    fn on_refused(&mut self, index: NodeIndex, error: Error) {
        if self.fleet(|fleet| fleet.has_workers()) {
            self.shared.act(|state, now| state.scheduler.on_node_refused(now, index, &error));
            if self.fresh.remove(&index) == Some(Fresh::Joined) {
                self.growth.refuse(&error);
            }
            self.shared.emit(PoolEvent::NodeFailed { node: index, error });
            let wait = tokio::time::sleep(REFUSED_PAUSE);
            self.jobs.begin(Job::Repair(Repair::Replace(index)), wait, move |serving, ()| {
                serving.decide(|fleet| fleet.replace(index));
            });
        } else if error.kind() != ErrorKind::Budget || error.is_temporary() {
            self.on_node_lost(index, error);
        } else {
            self.shared.account().close(error);
            self.shared.spending.notify_one();
        }
    }

    /// Workers were started, or could not be started: then find out whether their nodes are the
    /// reason.
    pub(super) fn on_started(&mut self, workers: Workers, started: std::result::Result<(), NotStarted>) {
        let Err(NotStarted { node, error }) = started else { return self.report_fresh(workers) };
        tracing::warn!(pool = %self.shared.pool, error = error.summary(), "workers could not be restarted");
        let silent = repair::silent(self.nodes_of(workers));
        self.jobs.begin(Job::Examine(workers), silent, move |serving, silent| {
            serving.on_examined(workers, node, &error, silent);
        });
    }

    /// These agents do not answer. The start of the workers has failed on the node `failed`.
    fn on_examined(
        &mut self,
        workers: Workers,
        failed: NodeIndex,
        error: &Error,
        silent: Vec<(NodeIndex, u64, Error)>,
    ) {
        for (index, connection, error) in silent {
            // An agent that is away is being reconnected already, and may be connected by now.
            if self.fleet(|fleet| fleet.is_up(index)) && self.connection(index) == Some(connection) {
                self.on_node_lost(index, error);
            }
        }
        if self.fleet(|fleet| fleet.are_up(workers)) {
            let rank = match workers {
                Workers::One(rank) => rank,
                Workers::World => self.layout().ranks_of(failed).next().unwrap_or(Rank(0)),
            };
            self.judge(|fleet, returns| fleet.on_start_failed(rank, error, returns));
        } else {
            self.decide(|fleet| fleet.on_workers_lost(workers));
        }
    }

    /// Begins to serve. First handles agents that were lost before the pool was served.
    pub(crate) fn begin_to_serve(&mut self) {
        for index in self.fleet(|fleet| fleet.nodes()) {
            self.look_at_agent(index);
            self.note_end(index);
        }
        self.watch();
        self.settle_size();
    }

    /// Handles the end of an agent's connection, if it has ended and is the agent's present
    /// connection.
    pub(crate) fn on_agent_gone(&mut self, index: NodeIndex, connection: u64) {
        let Some(node) = self.node(index).filter(|node| node.agent.connection == connection) else {
            return self.on_waiting_agent_gone(connection);
        };
        let Some(error) = node.agent.gone() else { return };
        if error.kind() == ErrorKind::Timeout {
            // The agent was silent for its whole lease, so its machine ends itself if it can.
            return self.on_node_lost(index, error.clone());
        }
        self.shared.emit(PoolEvent::NodeDisconnected { node: index, error: error.clone() });
        self.decide(|fleet| fleet.on_agent_away(index));
    }

    /// Gives up a node's machine, or the machine that was to replace it.
    pub(crate) fn on_node_lost(&mut self, index: NodeIndex, error: Error) {
        if self.fleet(|fleet| fleet.machine(index)).is_none() {
            return;
        }
        if let Some(lost) = self.nodes.remove(&index) {
            lost.agent.leave_place();
            self.notices(|notices| notices.forget(&lost.machine.id));
            if error.exit() == Some(&WorkerExit::Preempted) {
                self.recipe.purchases.on_preempted(&lost.machine.offer);
            }
        }
        self.shared.emit(PoolEvent::NodeLost { node: index, error: error.clone() });
        let verdict = self.shared.on_node_lost(index, &error);
        self.act_on(verdict);
    }

    /// Reports nodes that have joined or were replaced, once all of their workers take tasks.
    fn report_fresh(&mut self, workers: Workers) {
        for index in self.fleet(|fleet| fleet.nodes_of(workers)) {
            let ready = {
                let state = self.shared.lock();
                self.layout().ranks_of(index).all(|rank| state.scheduler.is_ready(rank))
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

    /// The pool ends when no task runs: no machine and no worker is replaced any more. Whoever waits
    /// for another size gets the error.
    pub(crate) fn give_up(&mut self, error: &Error) {
        self.growth.give_up(error);
        self.notices(Notices::give_up);
        self.decide(Fleet::end);
    }

    pub(crate) fn set(&mut self, node: Node) {
        let index = node.index;
        if self.fleet(|fleet| fleet.machine(index)).is_some() {
            self.nodes.insert(index, Arc::new(node));
            self.note_end(index);
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        self.world.cluster.layout()
    }

    pub(crate) fn node(&self, index: NodeIndex) -> Option<Arc<Node>> {
        self.nodes.get(&index).cloned()
    }

    pub(crate) fn connection(&self, index: NodeIndex) -> Option<u64> {
        self.node(index).map(|node| node.agent.connection)
    }

    pub(crate) fn nodes_of(&self, workers: Workers) -> Vec<Arc<Node>> {
        self.fleet(|fleet| fleet.nodes_of(workers)).into_iter().filter_map(|index| self.node(index)).collect()
    }
}
