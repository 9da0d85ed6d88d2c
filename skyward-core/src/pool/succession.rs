//! Machines that will end: the pool gives them nothing more, and has another one ready for the place of each.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::lifecycle::{Job, Workers};
use super::notices::Notice;
use super::purchase::Patience;
use super::repair;
use super::resize;
use super::serving::{End, Serving};
use super::sizing::Taken;
use crate::error::Result;
use crate::event::{Leaving, PoolEvent};
use crate::ids::{MachineId, MachineNumber, NodeIndex};
use crate::provider::{Checked, MachineReport, Provider, Reason};

impl Serving {
    /// Begins to look at the reports of the machines, where the provider knows of their ends before.
    pub(super) fn watch(&mut self) {
        let provider = self.recipe.provider.clone();
        if !provider.capabilities().preemptible {
            return;
        }
        let machines: Vec<MachineId> =
            self.nodes.iter().filter_map(|place| Some(place.node.as_ref()?.machine.id.clone())).collect();
        self.jobs.begin(Job::Watch, async move { End::Watched(look(provider, machines).await) });
    }

    /// What the provider reports of the machines.
    pub(super) fn on_watched(&mut self, reports: Result<Vec<(MachineId, MachineReport)>>) {
        match reports {
            Ok(reports) => reports.into_iter().for_each(|(machine, report)| self.on_report(&machine, &report)),
            // Nothing is concluded from a provider that cannot be asked.
            Err(error) => tracing::debug!(pool = %self.shared.pool, %error, "the machines could not be looked at"),
        }
        self.watch();
    }

    fn on_report(&mut self, machine: &MachineId, report: &MachineReport) {
        let Some(node) = self.node_on(machine) else { return };
        if report.state.is_over() {
            let error = self.recipe.provider.over(machine, report);
            return self.on_node_lost(node, error);
        }
        let Some(ends_in) = report.ends_in else { return };
        let reason = match report.reason {
            Some(Reason::Preempted) => Leaving::Preempted,
            _ => Leaving::Expired,
        };
        self.on_notice(machine, reason, ends_in, report.words.clone());
    }

    /// A machine will end in so long.
    pub(super) fn on_notice(&mut self, machine: &MachineId, reason: Leaving, ends_in: Duration, words: Option<String>) {
        let now = Instant::now().into_std();
        let Some(at) = now.checked_add(ends_in) else { return };
        let there =
            self.nodes.iter().filter_map(|place| place.node.as_deref()).find(|node| node.machine.id == *machine);
        if let (Leaving::Preempted, Some(node)) = (reason, there) {
            self.recipe.purchases.on_preempted(&node.machine.offer);
        }
        self.notices.add(machine, Notice { reason, at, words }, now);
        self.act_on_notices();
    }

    /// The machine of an agent with this connection will end, as a command beside the agent says.
    pub(super) fn on_agent_notice(&mut self, connection: u64, reason: Leaving, ends_in: Duration, words: String) {
        let there = self.nodes.iter().filter_map(|place| place.node.as_deref());
        let mut all = there.chain(self.growth.ready.values());
        let Some(machine) = all.find(|node| node.agent.connection == connection).map(|node| node.machine.id.clone())
        else {
            return;
        };
        self.on_notice(&machine, reason, ends_in, Some(words).filter(|words| !words.is_empty()));
    }

    /// When a notice is due.
    pub(super) fn next_notice(&self) -> Option<Instant> {
        let machines = self.nodes.iter().filter_map(|place| place.node.as_ref()).map(|node| &node.machine.id);
        self.notices.next_due(machines).map(|(_, due)| Instant::from_std(due))
    }

    /// Acts on the notices that are due.
    pub(super) fn act_on_notices(&mut self) {
        loop {
            let now = Instant::now().into_std();
            let machines = self.nodes.iter().filter_map(|place| place.node.as_ref()).map(|node| &node.machine.id);
            let Some((machine, _)) = self.notices.next_due(machines).filter(|(_, due)| *due <= now) else { return };
            let (Some(node), Some(notice)) = (self.node_on(&machine), self.notices.act(&machine)) else { return };
            self.on_ending(node, &notice);
        }
    }

    fn on_ending(&mut self, node: NodeIndex, notice: &Notice) {
        let now = Instant::now().into_std();
        let ends_in = notice.at.saturating_duration_since(now);
        let lasts = self.shared.account().lasts(now);
        // A machine that ends with the budget has no successor: the pool ends then, too.
        if notice.reason == Leaving::Expired && lasts.is_some_and(|lasts| lasts <= ends_in + self.growth.lead) {
            // It may have been to leave, and stays.
            return self.shared.act(|state, _| state.scheduler.uncordon(node));
        }
        tracing::info!(pool = %self.shared.pool, node = node.0, reason = %notice.reason, ?ends_in, "a machine will end");
        self.shared.emit(PoolEvent::NodeLeaving { node, reason: notice.reason, ends_in: Some(ends_in) });
        if let Some(there) = self.node(node) {
            self.shared.account().on_ending(&there.machine.launch, notice.at);
        }
        self.shared.on_ending(node, notice);
        let shared = Arc::clone(&self.shared);
        self.jobs.begin(Job::Remind, async move {
            shared.remind().await;
            End::Reminded
        });
        let steps = self.growth.sizing.on_ending(node);
        self.size(steps);
    }

    /// Makes a machine ready for the place of another one.
    pub(super) fn succeed(&mut self, node: NodeIndex, machine: MachineNumber) {
        let launch = self.recipe.purchases.launch(node, machine);
        let (recipe, cleanup, shared) = (Arc::clone(&self.recipe), self.cleanup.clone(), Arc::clone(&self.shared));
        let per_node = self.world.cluster.workers_per_node;
        let make = repair::make(recipe, cleanup, shared, launch, per_node, Patience::Fail);
        self.jobs.begin(Job::Add(machine), async move { End::Added(make.await.map(Box::new)) });
    }

    /// A node that was to leave stays: if its machine will end, another one is to take its place after all.
    pub(super) fn on_staying(&mut self, node: NodeIndex) {
        if let Some(machine) = self.node(node).map(|node| node.machine.id.clone())
            && self.notices.is_acted(&machine)
        {
            self.notices.again(&machine, Instant::now().into_std());
        }
        // One that was lost while it was to leave got no other machine.
        if !self.growth.sizing.has_heir(node) {
            self.replace(node);
        }
    }

    /// No machine could be had for the place of one that will end: it is tried again later, if it is there still.
    pub(super) fn on_unheired(&mut self, node: NodeIndex) {
        if let Some(machine) = self.node(node).map(|node| node.machine.id.clone()) {
            self.notices.again(&machine, (Instant::now() + AGAIN).into_std());
        }
    }

    /// Stops the workers of a node that has nothing more to do, and whose place is taken then.
    pub(super) fn vacate(&mut self, node: NodeIndex) {
        self.shared.act(|state, _| state.scheduler.retire(node));
        let Some(there) = self.node(node) else { return self.on_stopped(node, Ok(())) };
        let (shared, generation) = (Arc::clone(&self.shared), self.shared.lock().generation);
        let per_node = self.world.cluster.workers_per_node;
        self.jobs.begin(Job::Stop(node), async move {
            End::Stopped(resize::stop(&shared, &there, generation, per_node).await)
        });
    }

    /// Starts the workers of a node again whose place is not taken after all.
    pub(super) fn revive(&mut self, node: NodeIndex) {
        self.jobs.end(Job::Stop(node));
        for rank in self.lifecycle.ranks_of(node) {
            let steps = self.lifecycle.on_workers_lost(Workers::One(rank));
            self.go(steps);
        }
    }

    /// A machine that is ready takes the place of the one that the node had.
    pub(super) fn take(&mut self, taken: Taken) {
        let (node, ..) = taken;
        if self.seat_heir(taken) {
            let steps = self.lifecycle.on_taken(node);
            self.go(steps);
            self.look_at_agent(node);
        }
    }

    /// Gives the node its new machine, and ends the one before.
    pub(super) fn seat_heir(&mut self, (node, machine, left): Taken) -> bool {
        let Some(mut heir) = self.growth.ready.remove(&machine) else { return false };
        heir.take_place(node);
        self.shared.hand_over(&heir);
        let Some(place) = self.nodes.get_mut(node.0 as usize) else { return false };
        place.machine = machine;
        let before = place.node.replace(Arc::new(heir));
        if let Some(before) = &before {
            self.notices.forget(&before.machine.id);
        }
        self.fresh.insert(node, super::serving::Fresh::Replaced);
        self.note_end(node);
        self.dismiss(left, node, before);
        true
    }

    /// Notes when the machine of a node ends, as far as is known from the start.
    pub(super) fn note_end(&mut self, node: NodeIndex) {
        if let Some(there) = self.node(node)
            && let Some(notice) = there.ends.clone()
        {
            self.notices.add(&there.machine.id, notice, Instant::now().into_std());
        }
    }

    /// Nothing takes the place of a node that is lost.
    pub(super) fn replace(&mut self, node: NodeIndex) {
        let steps = self.lifecycle.on_replace(node);
        self.go(steps);
    }

    fn node_on(&self, machine: &MachineId) -> Option<NodeIndex> {
        let is_on = |place: &super::serving::Place| place.node.as_ref().is_some_and(|node| node.machine.id == *machine);
        self.nodes.iter().position(is_on).map(|index| NodeIndex(index as u32))
    }
}

/// What the provider reports of the machines after a while.
async fn look(provider: Checked, machines: Vec<MachineId>) -> Result<Vec<(MachineId, MachineReport)>> {
    tokio::time::sleep(WATCH).await;
    let reports = provider.inspect(&machines).await?;
    Ok(machines.into_iter().zip(reports).collect())
}

/// How often the machines of a provider are looked at that can take them back.
const WATCH: Duration = Duration::from_secs(30);
/// After which time another machine is tried where none could be had.
const AGAIN: Duration = Duration::from_secs(60);
