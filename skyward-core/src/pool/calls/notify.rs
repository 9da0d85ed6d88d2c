//! Notifies workers of the end of their machines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::after::After;
use super::shared::Shared;
use super::state::State;
use crate::error::Result;
use crate::ids::{MachineId, Rank};
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
            for rank in (0..state.workers.len() as u32).map(Rank) {
                state.warn(rank, &mut after);
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
                let ranks = (0..state.workers.len() as u32).map(Rank);
                let warned: Vec<Rank> = ranks.filter(|rank| state.warning(*rank).is_some()).collect();
                if warned.is_empty() {
                    return;
                }
                warned.into_iter().filter(|rank| state.scheduler.sent(*rank).next().is_some()).collect()
            };
            busy.into_iter().for_each(|rank| self.attend(rank));
        }
    }
}

impl State {
    fn warning(&self, rank: Rank) -> Option<(&'static str, Instant, &str)> {
        self.nearest_end(self.scheduler.node_of(rank))
    }

    /// Notifies a worker over its connection.
    fn warn(&mut self, rank: Rank, after: &mut After) {
        let Some((kind, at, words)) = self.warning(rank) else { return };
        let words = words.to_owned();
        let seconds = left(at);
        self.push_to_worker(rank, ToWorker::Notice { kind, seconds, words: &words }, after);
    }

    /// Notifies a worker over its new connection.
    pub(crate) fn warn_over(&self, rank: Rank, link: &Sender) -> Result<()> {
        let Some((kind, at, words)) = self.warning(rank) else { return Ok(()) };
        let (head, body) = ToWorker::Notice { kind, seconds: left(at), words }.encode()?;
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
