//! Handles machines that will end: their nodes get no new tasks, and a successor is made ready for
//! each of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::serving::Serving;
use crate::error::Result;
use crate::event::{DrainReason, PoolEvent};
use crate::ids::{MachineId, NodeIndex};
use crate::pool::fleet::clock;
use crate::pool::fleet::notices::{Notice, Notices};
use crate::pool::fleet::step::{Job, Taken};
use crate::provider::{Checked, MachineReport, Provider, Reason};

impl Serving {
    /// Reads or changes the notices. `change` must not lock the state, which is locked already.
    pub(crate) fn notices<T>(&self, change: impl FnOnce(&mut Notices) -> T) -> T {
        change(&mut self.shared.lock().machine_ends.notices)
    }

    /// Begins to query the states of the machines, if the provider reports their ends in advance.
    pub(crate) fn watch(&mut self) {
        let provider = self.recipe.provider.clone();
        if !provider.capabilities().preemptible {
            return;
        }
        let machines: Vec<MachineId> = self.nodes.values().map(|node| node.machine.id.clone()).collect();
        self.jobs.begin(Job::Watch, look(provider, machines), Self::on_watched);
    }

    /// Handles the provider's reports on the machines.
    fn on_watched(&mut self, reports: Result<Vec<(MachineId, MachineReport)>>) {
        match reports {
            Ok(reports) => reports.into_iter().for_each(|(machine, report)| self.on_report(&machine, &report)),
            // Nothing is concluded from a provider that cannot be queried.
            Err(error) => {
                tracing::debug!(pool = %self.shared.pool, %error, "the states of the machines could not be queried")
            }
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
            Some(Reason::Preempted) => DrainReason::Preempted,
            _ => DrainReason::Expired,
        };
        self.on_notice(machine, reason, ends_in, report.words.clone());
    }

    /// A machine will end after `ends_in`.
    pub(crate) fn on_notice(
        &mut self,
        machine: &MachineId,
        reason: DrainReason,
        ends_in: Duration,
        words: Option<String>,
    ) {
        let now = Instant::now().into_std();
        let Some(at) = now.checked_add(ends_in) else { return };
        let there = self.nodes.values().find(|node| node.machine.id == *machine);
        if let (DrainReason::Preempted, Some(node)) = (reason, there) {
            self.recipe.purchases.on_preempted(&node.machine.offer);
        }
        if self.notices(|notices| notices.add(machine, Notice { reason, at, words }, now)) {
            self.shared.on_ending(machine);
        }
        self.act_on_notices();
    }

    /// The watch command beside the agent with this connection reports that its machine will end.
    pub(crate) fn on_agent_notice(&mut self, connection: u64, reason: DrainReason, ends_in: Duration, words: String) {
        let there = self.nodes.values().map(|node| &**node);
        let mut all = there.chain(self.growth.ready.values());
        let Some(machine) = all.find(|node| node.agent.connection == connection).map(|node| node.machine.id.clone())
        else {
            return;
        };
        self.on_notice(&machine, reason, ends_in, Some(words).filter(|words| !words.is_empty()));
    }

    /// When the next notice is due.
    pub(crate) fn next_notice(&self) -> Option<Instant> {
        self.next_due().map(|(_, due)| due)
    }

    /// The machine of a node whose notice is due next, and when that is.
    fn next_due(&self) -> Option<(MachineId, Instant)> {
        let machines = self.nodes.values().map(|node| &node.machine.id);
        let (machine, due) = self.notices(|notices| notices.next_due(machines))?;
        Some((machine, Instant::from_std(due)))
    }

    /// Acts on the notices that are due.
    pub(crate) fn act_on_notices(&mut self) {
        loop {
            let now = Instant::now();
            let Some((machine, _)) = self.next_due().filter(|(_, due)| *due <= now) else { return };
            let Some(node) = self.node_on(&machine) else { return };
            let Some(notice) = self.notices(|notices| notices.act(&machine)) else { return };
            self.on_ending(node, &machine, &notice);
        }
    }

    fn on_ending(&mut self, node: NodeIndex, machine: &MachineId, notice: &Notice) {
        let now = Instant::now().into_std();
        let ends_in = notice.at.saturating_duration_since(now);
        let lasts = self.shared.account().lasts(clock::now());
        let lead = self.notices(|notices| notices.lead());
        // A machine that ends with the budget needs no successor, because the pool ends then too.
        if notice.reason == DrainReason::Expired && lasts.is_some_and(|lasts| lasts <= ends_in + lead) {
            // The node may be cordoned, and must take tasks again.
            return self.shared.act(|state, _| state.scheduler.uncordon(node));
        }
        tracing::info!(pool = %self.shared.pool, node = node.0, reason = %notice.reason, ?ends_in, "a machine will end");
        self.shared.emit(PoolEvent::NodeDraining { node, reason: notice.reason, ends_in: Some(ends_in) });
        self.shared.on_ending(machine);
        let shared = Arc::clone(&self.shared);
        self.jobs.begin(Job::Remind, shared.remind(), |_, ()| {});
        self.decide(|fleet| fleet.on_ending(node));
    }

    /// A node that was to leave stays. If its machine will end, a successor is made ready after
    /// all.
    pub(crate) fn on_staying(&mut self, node: NodeIndex) {
        if let Some(machine) = self.node(node).map(|node| node.machine.id.clone())
            && self.notices(|notices| notices.is_acted(&machine))
        {
            self.notices(|notices| notices.again(&machine, Instant::now().into_std()));
        }
        // A node that was lost while it was draining has no replacement yet.
        if !self.fleet(|fleet| fleet.has_successor(node)) {
            self.decide(|fleet| fleet.replace(node));
        }
    }

    /// No successor could be made ready for a machine that will end. Another one is tried later, if
    /// the machine still exists then.
    pub(crate) fn on_unheired(&mut self, node: NodeIndex) {
        if let Some(machine) = self.node(node).map(|node| node.machine.id.clone()) {
            self.notices(|notices| notices.again(&machine, (Instant::now() + AGAIN).into_std()));
        }
    }

    /// Gives a node to its successor, which is ready.
    pub(crate) fn take(&mut self, taken: Taken) {
        let (node, ..) = taken;
        if self.seat_successor(taken) {
            self.decide(|fleet| fleet.on_taken(node));
            self.look_at_agent(node);
        }
    }

    /// Gives the node its new machine, and ends the machine that it had. Returns whether the new
    /// machine was ready.
    pub(crate) fn seat_successor(&mut self, (node, machine, left): Taken) -> bool {
        let Some(mut successor) = self.growth.ready.remove(&machine) else { return false };
        successor.take_place(node);
        self.shared.hand_over(&successor);
        let before = self.nodes.insert(node, Arc::new(successor));
        if let Some(before) = &before {
            self.notices(|notices| notices.forget(&before.machine.id));
        }
        self.fresh.insert(node, super::serving::Fresh::Replaced);
        self.note_end(node);
        self.dismiss(left, node, before);
        true
    }

    /// Records when the machine of a node ends, if that is known from the start.
    pub(crate) fn note_end(&mut self, node: NodeIndex) {
        if let Some(there) = self.node(node)
            && let Some(notice) = there.ends.clone()
        {
            self.notices(|notices| notices.add(&there.machine.id, notice, Instant::now().into_std()));
        }
    }

    fn node_on(&self, machine: &MachineId) -> Option<NodeIndex> {
        self.nodes.iter().find(|(_, node)| node.machine.id == *machine).map(|(index, _)| *index)
    }
}

/// Waits a while, then queries the provider for the states of the machines.
async fn look(provider: Checked, machines: Vec<MachineId>) -> Result<Vec<(MachineId, MachineReport)>> {
    tokio::time::sleep(WATCH).await;
    let reports = provider.inspect(&machines).await?;
    Ok(machines.into_iter().zip(reports).collect())
}

/// How often to query the states of machines that the provider can take back.
const WATCH: Duration = Duration::from_secs(30);
/// How long to wait before another successor is tried after several could not be made ready.
const AGAIN: Duration = Duration::from_secs(60);
