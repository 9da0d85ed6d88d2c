//! Handles machines that will end: their nodes get no new tasks, and a successor is made ready for
//! each of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::serving::Serving;
use super::timing::{SUCCESSOR_PAUSE, WATCH_PAUSE};
use crate::error::Result;
use crate::event::{DrainReason, PoolEvent};
use crate::ids::{MachineId, NodeIndex};
use crate::pool::fleet::directive::{Job, Taken};
use crate::pool::fleet::notices::{Due, Notice, Notices};
use crate::pool::node::make::Node;
use crate::provider::{Checked, MachineReport, Provider, Reason, clock};

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
        let machines = self.nodes.iter().map(|(node, there)| (*node, there.machine.id.clone())).collect();
        self.jobs.begin(Job::Watch, look(provider, machines), Self::on_watched);
    }

    /// Handles the provider's reports on the machines.
    fn on_watched(&mut self, reports: Result<Vec<(NodeIndex, MachineId, MachineReport)>>) {
        match reports {
            Ok(reports) => {
                let changed =
                    reports.into_iter().filter(|(node, machine, report)| self.on_report(*node, machine, report));
                let changed: Vec<MachineId> = changed.map(|(_, machine, _)| machine).collect();
                self.shared.on_ending(&changed);
            }
            // Nothing is concluded from a provider that cannot be queried.
            Err(error) => {
                tracing::debug!(pool = %self.shared.pool, %error, "the states of the machines could not be queried")
            }
        }
        self.watch();
    }

    /// Handles the report on the machine that a node had when the provider was queried. Returns
    /// whether its workers are notified of another end than the reported one.
    fn on_report(&mut self, node: NodeIndex, machine: &MachineId, report: &MachineReport) -> bool {
        let Some(there) = self.node(node).filter(|there| there.machine.id == *machine) else { return false };
        if report.state.is_over() {
            let error = self.recipe.provider.over(machine, report);
            self.on_node_lost(node, error);
            return false;
        }
        let Some(ends_in) = report.ends_in else { return false };
        let reason = match report.reason {
            Some(Reason::Preempted) => DrainReason::Preempted,
            _ => DrainReason::Expired,
        };
        notice_in(ends_in, reason, report.words.clone()).is_some_and(|notice| self.on_notice(&there, notice))
    }

    /// The machine of a node will end. The driver acts on that when it looks at the notices, so
    /// that it acts at once on all notices that come at the same time. Returns whether the workers
    /// are notified of another end.
    fn on_notice(&mut self, node: &Node, notice: Notice) -> bool {
        if notice.reason == DrainReason::Preempted {
            self.recipe.purchases.on_preempted(&node.machine.offer);
        }
        let now = Instant::now().into_std();
        self.notices(|notices| notices.add(node.index, &node.machine.id, notice, now))
    }

    /// The watch command beside the agent with this connection reports that its machine will end.
    /// The agent may not have known yet of which node.
    pub(crate) fn on_agent_notice(
        &mut self,
        node: NodeIndex,
        connection: u64,
        reason: DrainReason,
        ends_in: Duration,
        words: String,
    ) {
        let words = Some(words).filter(|words| !words.is_empty());
        let Some(notice) = notice_in(ends_in, reason, words) else { return };
        let is_meant = |there: &&Arc<Node>| there.agent.connection == connection;
        let there = self.nodes.get(&node).filter(is_meant).or_else(|| self.nodes.values().find(is_meant)).cloned();
        if let Some(there) = there {
            if self.on_notice(&there, notice) {
                self.shared.on_ending(std::slice::from_ref(&there.machine.id));
            }
            return;
        }
        // A machine without a place keeps the notice until it has one.
        let mut waiting = self.growth.ready.values_mut();
        if let Some(waiting) = waiting.find(|waiting| waiting.agent.connection == connection)
            && waiting.ends.as_ref().is_none_or(|known| notice.replaces(known))
        {
            waiting.ends = Some(notice);
        }
    }

    /// When the next notice is due.
    pub(crate) fn next_notice(&self) -> Option<Instant> {
        self.notices(|notices| notices.next_due()).map(Instant::from_std)
    }

    /// Acts on the notices that are due, on all of them at once: the work for a machine does not
    /// depend on how many others end at the same time.
    pub(crate) fn act_on_notices(&mut self) {
        let now = Instant::now().into_std();
        let (due, lead) = self.notices(|notices| (notices.take_due(now), notices.lead()));
        if due.is_empty() {
            return;
        }
        let lasts = self.shared.account().lasts(clock::now());
        let (mut nodes, mut machines) = (Vec::new(), Vec::new());
        for Due { node, machine, notice } in due {
            let ends_in = notice.at.saturating_duration_since(now);
            // A machine that ends with the budget needs no successor, because the pool ends then
            // too.
            if notice.reason == DrainReason::Expired && lasts.is_some_and(|lasts| lasts <= ends_in + lead) {
                continue;
            }
            tracing::info!(pool = %self.shared.pool, node = node.0, reason = %notice.reason, ?ends_in, "a machine will end");
            self.shared.emit(PoolEvent::NodeDraining { node, reason: notice.reason, ends_in: Some(ends_in) });
            nodes.push(node);
            machines.push(machine);
        }
        if nodes.is_empty() {
            return;
        }
        self.shared.on_ending(&machines);
        let shared = Arc::clone(&self.shared);
        self.jobs.begin(Job::Remind, shared.remind(), |_, ()| {});
        self.decide(|fleet| fleet.on_ending(&nodes));
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
    pub(crate) fn on_no_successor(&mut self, node: NodeIndex) {
        if let Some(machine) = self.node(node).map(|node| node.machine.id.clone()) {
            self.notices(|notices| notices.again(&machine, (Instant::now() + SUCCESSOR_PAUSE).into_std()));
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
            self.notices(|notices| notices.add(node, &there.machine.id, notice, Instant::now().into_std()));
        }
    }
}

/// Waits a while, then queries the provider for the states of the machines.
async fn look(
    provider: Checked,
    machines: Vec<(NodeIndex, MachineId)>,
) -> Result<Vec<(NodeIndex, MachineId, MachineReport)>> {
    tokio::time::sleep(WATCH_PAUSE).await;
    let ids: Vec<MachineId> = machines.iter().map(|(_, machine)| machine.clone()).collect();
    let reports = provider.inspect(&ids).await?;
    let provider = &provider;
    let explained = machines.into_iter().zip(reports).map(|((node, machine), report)| async move {
        let report = provider.explained(&machine, report).await;
        (node, machine, report)
    });
    Ok(join_all(explained).await)
}

/// The notice of an end after this time; `None` if that is further away than a clock can count.
fn notice_in(ends_in: Duration, reason: DrainReason, words: Option<String>) -> Option<Notice> {
    let at = Instant::now().into_std().checked_add(ends_in)?;
    Some(Notice { reason, at, words })
}
