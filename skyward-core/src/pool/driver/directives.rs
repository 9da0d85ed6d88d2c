//! Carries out the directives that the fleet returns, in order.

use std::sync::Arc;

use super::serving::Serving;
use crate::ids::{MachineNumber, NodeIndex};
use crate::pool::fleet::directive::{Directive, Job, Repair, Workers};
use crate::pool::fleet::{Fleet, Verdict};
use crate::pool::node::make::Purchase;
use crate::pool::node::purchase::Patience;
use crate::pool::node::repair;
use crate::scheduler::Returns;

impl Serving {
    /// Reads the fleet. `read` must not lock the state, which is locked already.
    pub(crate) fn fleet<T>(&self, read: impl FnOnce(&Fleet) -> T) -> T {
        read(&self.shared.lock().fleet)
    }

    /// Lets the fleet decide on an event. The scheduler follows at once, and the directives that
    /// the fleet returns are carried out. If a directive leads to an event, the directives of that
    /// event come before the next directive.
    pub(crate) fn decide(&mut self, event: impl FnOnce(&mut Fleet) -> Vec<Directive>) {
        self.judge(|fleet, _| Verdict::Repair(event(fleet)));
    }

    /// Lets the fleet decide on a loss, as [`decide`](Self::decide). Losses count that no returned
    /// task has come between.
    pub(crate) fn judge(&mut self, loss: impl FnOnce(&mut Fleet, &Returns) -> Verdict) {
        let verdict = self.shared.act(|state, _| {
            let verdict = loss(&mut state.fleet, state.scheduler.returns());
            state.scheduler.follow(state.fleet.eligible());
            verdict
        });
        self.act_on(verdict);
    }

    /// Does what follows from a loss.
    pub(super) fn act_on(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Repair(directives) => directives.into_iter().for_each(|directive| self.carry_out(directive)),
            Verdict::Sick(node, error) => self.on_node_lost(node, error),
            Verdict::Failed(directives, error) => {
                directives.into_iter().for_each(|directive| self.carry_out(directive));
                self.failed.get_or_insert(error);
            }
        }
    }

    fn carry_out(&mut self, directive: Directive) {
        match directive {
            Directive::Begin(repair) => self.begin(repair),
            Directive::End(job) => self.jobs.end(job),
            Directive::Launch { machine } => self.make_ready(None, machine),
            Directive::Forget { node, machine } => self.forget(node, machine),
            Directive::Join { node, machine } => self.join(node, machine),
            Directive::Leave { node } => self.report_leaving(node),
            Directive::Stay { node } => self.on_staying(node),
            Directive::Stop { node } => self.retire(node),
            Directive::Remove { node, machine, rows } => self.remove(node, machine, rows),
            Directive::Succeed { node, machine } => self.make_ready(Some(node), machine),
            Directive::Vacate { node } => self.vacate(node),
            Directive::Take { node, machine, left } => self.take((node, machine, left)),
            Directive::Reshape { stay, left, join, taken } => self.reshape(stay, left, join, taken),
        }
    }

    /// Makes a machine ready for the place of this node; without a node, a further machine, which
    /// is named by its own number until it becomes a node.
    fn make_ready(&mut self, place: Option<NodeIndex>, machine: MachineNumber) {
        let node = place.unwrap_or(NodeIndex(machine.0));
        let launch = self.recipe.purchases.launch(node, machine);
        let (recipe, cleanup, shared) = (Arc::clone(&self.recipe), self.cleanup.clone(), Arc::clone(&self.shared));
        let layout = self.layout();
        let make = repair::make(recipe, cleanup, shared, launch, layout, Purchase::With(Patience::Fail), place);
        self.jobs.begin(Job::Add(machine), make, move |serving, made| serving.on_added(machine, made));
    }

    fn begin(&mut self, repair: Repair) {
        let (shared, world) = (Arc::clone(&self.shared), Arc::clone(&self.world));
        let (job, layout) = (Job::Repair(repair), world.cluster.layout());
        match repair {
            Repair::ReachAgent(index) => {
                let Some(node) = self.node(index) else { return };
                let cause = node.agent.gone().cloned();
                let reach = repair::reach_agent(self.recipe.provider.clone(), shared, node, layout);
                self.jobs.begin(job, reach, move |serving, reached| {
                    // Why the connection ended says more than that there is no connection. But why
                    // reconnecting failed distinguishes an agent that is gone from a machine that
                    // cannot be reached.
                    let reached = reached.map_err(|error| match cause {
                        Some(cause) => repair::not_reached(cause, error),
                        None => error,
                    });
                    serving.on_agent_reached(index, reached);
                });
            }
            Repair::Replace(index) => {
                let Some(machine) = self.fleet(|fleet| fleet.machine(index)) else { return };
                let launch = self.recipe.purchases.launch(index, machine);
                let (recipe, cleanup) = (Arc::clone(&self.recipe), self.cleanup.clone());
                let replace = repair::replace(recipe, cleanup, shared, launch, layout);
                self.jobs.begin(job, replace, move |serving, replaced| serving.on_replaced(index, replaced));
            }
            Repair::StopWorld => {
                let nodes = self.nodes_of(Workers::World);
                let stop = async move { repair::stop(&shared, &nodes, layout.all_workers()).await };
                self.jobs.begin(job, stop, |serving, stopped| {
                    if let Err(error) = stopped {
                        // The workers are stopped again before they are started.
                        tracing::warn!(pool = %serving.shared.pool, error = error.summary(), "the workers of a world that has ended could not be stopped");
                    }
                });
            }
            Repair::Start(workers) => {
                let start = repair::start(world, shared, self.nodes_of(workers), workers);
                self.jobs.begin(job, start, move |serving, started| serving.on_started(workers, started));
            }
        }
    }
}
