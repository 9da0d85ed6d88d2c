//! Notifies workers of the end of their machines.

use std::sync::Arc;
use std::time::Instant;

use super::after::After;
use super::machine_ends::AnnouncedEnd;
use super::shared::Shared;
use super::state::State;
use super::timing::{ATTEND_PAUSE, LONGEST_ATTEND_PAUSE};
use crate::error::Result;
use crate::ids::{MachineId, NodeIndex, Rank};
use crate::worker::link::Sender;
use crate::worker::message::ToWorker;

impl Shared {
    /// Machines will end: their workers are notified, in a joined world all workers, unless these
    /// know of an end that is as near.
    pub(crate) fn on_ending(&self, machines: &[MachineId]) {
        self.warn(|state| {
            let notices = &mut state.machine_ends.notices;
            machines.iter().filter_map(|machine| notices.announce(machine)).collect()
        });
    }

    /// All machines will end at this time, because of the budget.
    pub(crate) fn on_budget_end(&self, at: Instant) {
        self.warn(|state| {
            state.machine_ends.budget = Some(at);
            state.nodes.iter().map(|(node, _)| node).collect()
        });
    }

    /// Notifies the workers of the nodes that `change` returns; in a joined world all workers, if
    /// the end of the world has changed.
    fn warn(&self, change: impl FnOnce(&mut State) -> Vec<NodeIndex>) {
        let mut after = After::default();
        {
            let mut state = self.lock();
            let mut nodes = change(&mut state);
            if state.scheduler.is_joined() {
                let end = state.nearest_end(NodeIndex(0));
                let is_told = std::mem::replace(&mut state.machine_ends.told, end.clone()) == end;
                nodes = if is_told { Vec::new() } else { state.nodes.iter().map(|(node, _)| node).collect() };
            }
            for (rank, end) in state.warnings(nodes) {
                let AnnouncedEnd { kind, at, words } = end;
                state.push_to_worker(rank, ToWorker::Notice { kind, seconds: left(at), words: &words }, &mut after);
            }
        }
        after.flush.iter().for_each(Sender::flush);
    }

    /// Makes workers that run something look at their connection, for as long as they may not have
    /// read a notice that their machine will end.
    pub(crate) async fn remind(self: Arc<Self>) {
        let mut pause = ATTEND_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_ATTEND_PAUSE);
            let busy: Vec<Rank> = {
                let state = self.lock();
                let warned = state.warnings(state.nodes.iter().map(|(node, _)| node));
                if warned.is_empty() {
                    return;
                }
                let ranks = warned.into_iter().map(|(rank, _)| rank);
                ranks.filter(|rank| state.scheduler.sent(*rank).next().is_some()).collect()
            };
            busy.into_iter().for_each(|rank| self.attend(rank));
        }
    }
}

impl State {
    /// The nearest end that concerns a node; in a joined world the end of any node.
    fn nearest_end(&self, node: NodeIndex) -> Option<AnnouncedEnd> {
        let notices = &self.machine_ends.notices;
        let own = || notices.announced(&self.nodes.get(node)?.machine.id);
        self.machine_ends.nearest(if self.scheduler.is_joined() { notices.nearest_announced() } else { own() })
    }

    /// The workers of these nodes whose machines will end, each with the nearest end.
    fn warnings(&self, nodes: impl IntoIterator<Item = NodeIndex>) -> Vec<(Rank, AnnouncedEnd)> {
        let mut warnings = Vec::new();
        for node in nodes {
            let Some(end) = self.nearest_end(node) else { continue };
            warnings.extend(self.scheduler.layout().ranks_of(node).map(|rank| (rank, end.clone())));
        }
        warnings
    }

    /// Notifies a worker over its new connection.
    pub(crate) fn warn_over(&self, rank: Rank, link: &Sender) -> Result<()> {
        let Some(AnnouncedEnd { kind, at, words }) = self.nearest_end(self.scheduler.node_of(rank)) else {
            return Ok(());
        };
        let (head, body) = ToWorker::Notice { kind, seconds: left(at), words: &words }.encode()?;
        link.push(&head, body)
    }
}

fn left(at: Instant) -> f64 {
    let now = tokio::time::Instant::now().into_std();
    at.saturating_duration_since(now).as_secs_f64().min(crate::worker::message::LONGEST_NOTICE)
}
