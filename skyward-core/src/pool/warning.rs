//! What workers are told of the end of their machines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::notices::Notice;
use super::shared::{After, Shared, State};
use crate::error::Result;
use crate::event::Leaving;
use crate::ids::{NodeIndex, Rank};
use crate::worker::link::Sender;
use crate::worker::message::ToWorker;

/// The ends that workers know of, or are to know of.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    nodes: BTreeMap<NodeIndex, Notice>,
    /// When all of the pool ends because of its budget.
    budget: Option<Instant>,
}

impl Warnings {
    /// The node has another machine, or none.
    pub(super) fn forget(&mut self, node: NodeIndex) {
        self.nodes.remove(&node);
    }

    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.budget.is_none()
    }

    /// The nearest end that concerns a node: in a joined world that of any.
    fn of(&self, node: NodeIndex, joined: bool) -> Option<(&'static str, Instant, &str)> {
        let concerns = self.nodes.iter().filter(|(of, _)| joined || **of == node);
        let ends =
            concerns.map(|(_, notice)| (kind(notice.reason), notice.at, notice.words.as_deref().unwrap_or_default()));
        ends.chain(self.budget.map(|at| ("budget", at, ""))).min_by_key(|(_, at, _)| *at)
    }
}

impl Shared {
    /// A node's machine will end: its workers are told, in a joined world all of them.
    pub(crate) fn on_ending(&self, node: NodeIndex, notice: &Notice) {
        self.warn(|state| {
            if let Some(status) = state.nodes.get_mut(node.0 as usize) {
                status.ending = Some(notice.reason);
            }
            state.warnings.nodes.insert(node, notice.clone());
        });
    }

    /// All machines end at this time, because of the budget.
    pub(crate) fn on_budget_end(&self, at: Instant) {
        self.warn(|state| state.warnings.budget = Some(at));
    }

    fn warn(&self, change: impl FnOnce(&mut State)) {
        let mut after = After::default();
        {
            let mut state = self.lock();
            change(&mut state);
            for rank in (0..state.workers.len() as u32).map(Rank) {
                state.warn(rank, &mut after);
            }
        }
        after.flush.iter().for_each(Sender::flush);
    }

    /// Has workers that run something look at their connection, as long as they may not have seen that their machine will end.
    pub(crate) async fn remind(self: Arc<Self>) {
        let mut pause = SOON;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LATER);
            let busy: Vec<Rank> = {
                let state = self.lock();
                if state.warnings.is_empty() {
                    return;
                }
                let ranks = (0..state.workers.len() as u32).map(Rank);
                ranks
                    .filter(|rank| state.warning(*rank).is_some() && state.scheduler.sent(*rank).next().is_some())
                    .collect()
            };
            busy.into_iter().for_each(|rank| self.attend(rank));
        }
    }
}

impl State {
    fn warning(&self, rank: Rank) -> Option<(&'static str, Instant, &str)> {
        self.warnings.of(self.scheduler.node_of(rank), self.scheduler.is_joined())
    }

    /// Tells a worker over its connection.
    fn warn(&mut self, rank: Rank, after: &mut After) {
        let Some((kind, at, words)) = self.warning(rank) else { return };
        let words = words.to_owned();
        let seconds = left(at);
        self.push_to_worker(rank, ToWorker::Notice { kind, seconds, words: &words }, after);
    }

    /// Tells a worker that has a new connection.
    pub(super) fn warn_over(&self, rank: Rank, link: &Sender) -> Result<()> {
        let Some((kind, at, words)) = self.warning(rank) else { return Ok(()) };
        let (head, body) = ToWorker::Notice { kind, seconds: left(at), words }.encode()?;
        link.push(&head, body)
    }
}

/// As the protocol names it.
fn kind(reason: Leaving) -> &'static str {
    match reason {
        Leaving::Preempted => "preempted",
        Leaving::Resized | Leaving::Idle | Leaving::Expired => "expired",
    }
}

fn left(at: Instant) -> f64 {
    let now = tokio::time::Instant::now().into_std();
    at.saturating_duration_since(now).as_secs_f64().min(crate::worker::message::LONGEST_NOTICE)
}

/// The first pause between two signals to a worker that computes, and the longest.
const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_secs(1);
