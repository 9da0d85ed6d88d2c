//! Notifies workers of the end of their machines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::after::After;
use super::machine_ends::End;
use super::shared::Shared;
use super::state::State;
use crate::error::Result;
use crate::ids::{MachineId, NodeIndex, Rank};
use crate::worker::link::Sender;
use crate::worker::message::ToWorker;

impl Shared {
    /// A machine will end: its workers are notified, in a joined world all workers.
    pub(crate) fn on_ending(&self, machine: &MachineId) {
        self.warn(|state| state.machine_ends.notices.announce(machine));
    }

    /// All machines will end at this time, because of the budget.
    pub(crate) fn on_budget_end(&self, at: Instant) {
        self.warn(|state| state.machine_ends.budget = Some(at));
    }

    fn warn(&self, change: impl FnOnce(&mut State)) {
        let mut after = After::default();
        {
            let mut state = self.lock();
            change(&mut state);
            for (rank, end) in state.warnings() {
                let End { kind, at, words } = end;
                state.push_to_worker(rank, ToWorker::Notice { kind, seconds: left(at), words: &words }, &mut after);
            }
        }
        after.flush.iter().for_each(Sender::flush);
    }

    /// Makes workers that run something look at their connection, for as long as they may not have
    /// read a notice that their machine will end.
    pub(crate) async fn remind(self: Arc<Self>) {
        let mut pause = SOON;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LATER);
            let busy: Vec<Rank> = {
                let state = self.lock();
                let warned = state.warnings();
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
    fn nearest_end(&self, node: NodeIndex) -> Option<End> {
        let (ends, row) = (&self.machine_ends, self.nodes.get(node.0 as usize));
        if self.scheduler.is_joined() {
            return ends.nearest(ends.notices.all_announced());
        }
        ends.nearest(row.and_then(|row| ends.notices.announced(&row.machine.id)).into_iter())
    }

    /// The workers whose machines will end, each with the nearest end.
    fn warnings(&self) -> Vec<(Rank, End)> {
        let mut warnings = Vec::new();
        // The nearest end of a world is the same for all of its nodes.
        let world = self.scheduler.is_joined().then(|| self.nearest_end(NodeIndex(0)));
        for (node, _) in self.rows() {
            let end = world.clone().unwrap_or_else(|| self.nearest_end(node));
            let Some(end) = end else { continue };
            warnings.extend(self.scheduler.layout().ranks_of(node).map(|rank| (rank, end.clone())));
        }
        warnings
    }

    /// Notifies a worker over its new connection.
    pub(crate) fn warn_over(&self, rank: Rank, link: &Sender) -> Result<()> {
        let Some(End { kind, at, words }) = self.nearest_end(self.scheduler.node_of(rank)) else { return Ok(()) };
        let (head, body) = ToWorker::Notice { kind, seconds: left(at), words: &words }.encode()?;
        link.push(&head, body)
    }
}

fn left(at: Instant) -> f64 {
    let now = tokio::time::Instant::now().into_std();
    at.saturating_duration_since(now).as_secs_f64().min(crate::worker::message::LONGEST_NOTICE)
}

/// The first and the longest pause between two signals to a worker that computes.
const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_secs(1);
