//! What a pool waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::node::Launch;
use super::shared::{Shared, State};
use crate::error::Error;
use crate::event::PoolEvent;
use crate::ids::{MachineId, MachineNumber, NodeIndex};
use crate::provider::{MachineReport, MachineState};

/// Something that a pool waits for; it displays as a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitingFor {
    /// A machine is being launched, or was launched and is not there yet.
    Machine {
        /// The node that it is to be; of one that comes to a pool that serves, its machine number.
        node: NodeIndex,
        /// What the provider reports of the machine: its state, and the provider's own words. None before it was launched.
        report: Option<String>,
    },
    /// A machine is there, and made ready: reached, its environment built, its agent started.
    Environment {
        /// As in [`Machine`](Self::Machine).
        node: NodeIndex,
        /// What is done: `connect`, or a step as [`PoolEvent::BootstrapStep`](crate::event::PoolEvent::BootstrapStep) names it.
        step: &'static str,
    },
    /// Workers of a node are being started, and enter their hooks.
    Hooks {
        /// Which node.
        node: NodeIndex,
        /// How many do not take tasks yet.
        workers: u32,
    },
    /// A node is lost, and gets another machine.
    Replacement {
        /// Which node.
        node: NodeIndex,
        /// Why it was lost.
        cause: String,
    },
    /// The connection to a node was lost, and is tried again.
    Connection {
        /// Which node.
        node: NodeIndex,
    },
    /// A node is to leave, and finishes what it has, if it has anything.
    Tasks {
        /// Which node.
        node: NodeIndex,
    },
    /// A joined world is to have another size, and finishes what it has.
    World,
    /// A machine of a node that has left is being ended.
    End {
        /// The number by which the provider knows it.
        node: NodeIndex,
    },
}

/// What is under way beside what the tables of the pool show.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    making: BTreeMap<MachineNumber, Made>,
    lost: BTreeMap<NodeIndex, String>,
    away: BTreeSet<NodeIndex>,
    ending: BTreeSet<MachineNumber>,
}

/// What is done to make a machine ready.
#[derive(Debug)]
struct Made {
    /// The node for those who watch.
    node: NodeIndex,
    step: Option<&'static str>,
    /// What the provider reported of the machine last, as long as it was not there.
    report: Option<String>,
    /// For how long it was queued, and since when it is.
    queued: (Duration, Option<Instant>),
    /// What the step failed with the last time; it is tried again.
    trouble: Option<Error>,
}

/// A machine is being made ready for as long as this lives.
#[derive(Debug)]
pub(crate) struct Making {
    shared: Arc<Shared>,
    launch: Launch,
}

/// A machine is being ended for as long as this lives.
#[derive(Debug)]
pub(crate) struct Ending {
    shared: Arc<Shared>,
    machine: MachineNumber,
}

impl Waits {
    pub(crate) fn lost(&mut self, node: NodeIndex, cause: &str) {
        self.away.remove(&node);
        self.lost.insert(node, cause.to_owned());
    }

    pub(crate) fn away(&mut self, node: NodeIndex) {
        self.away.insert(node);
    }

    /// Adds to the error of machines that were not ready in time what each of them waited for, and what that failed with the last time; `only` names one of them.
    pub(crate) fn explain(&self, error: Error, only: Option<MachineNumber>) -> Error {
        let late = self.made(only);
        let mut told: Vec<String> = late.iter().take(MOST_LATE).map(|made| made.to_string()).collect();
        if late.len() > MOST_LATE {
            told.push(format!("and {} more", late.len() - MOST_LATE));
        }
        let error = if told.is_empty() { error } else { error.with_context("waited for", told.join("; ")) };
        match late.iter().find_map(|made| made.trouble.clone()) {
            Some(cause) => error.with_source(cause),
            None => error,
        }
    }

    /// The node has a machine whose agent is connected, or has left.
    pub(crate) fn over(&mut self, node: NodeIndex) {
        self.away.remove(&node);
        self.lost.remove(&node);
    }
}

impl Made {
    fn new(node: NodeIndex, step: Option<&'static str>) -> Self {
        Self { node, step, report: None, queued: (Duration::ZERO, None), trouble: None }
    }

    /// For how long the machine was queued.
    fn queued(&self, now: Instant) -> Duration {
        let (before, since) = self.queued;
        before + since.map_or(Duration::ZERO, |since| now - since)
    }

    fn waiting_for(&self) -> WaitingFor {
        match self.step {
            None => WaitingFor::Machine { node: self.node, report: self.report.clone() },
            Some(step) => WaitingFor::Environment { node: self.node, step },
        }
    }
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.trouble {
            Some(trouble) => write!(f, "{}, which fails with: {}", self.waiting_for(), trouble.message()),
            None => self.waiting_for().fmt(f),
        }
    }
}

impl Making {
    pub(crate) fn begin(shared: &Arc<Shared>, launch: Launch) -> Self {
        shared.lock().waits.making.insert(launch.machine, Made::new(launch.node, None));
        Self { shared: Arc::clone(shared), launch }
    }

    pub(crate) fn step(&self, step: &'static str) {
        let mut made = Made::new(self.launch.node, Some(step));
        let mut state = self.shared.lock();
        if let Some(before) = state.waits.making.get(&self.launch.machine) {
            made.queued = (before.queued(Instant::now()), None);
        }
        state.waits.making.insert(self.launch.machine, made);
    }

    /// Notes what the provider reports of the machine, which is not there yet; emits it where it is news.
    pub(crate) fn on_report(&self, machine: &MachineId, report: &MachineReport) {
        let (now, text, node) = (Instant::now(), report.to_string(), self.launch.node);
        let is_news = {
            let mut state = self.shared.lock();
            let Some(made) = state.waits.making.get_mut(&self.launch.machine) else { return };
            made.queued = match report.state {
                MachineState::Queued => (made.queued.0, Some(made.queued.1.unwrap_or(now))),
                // Nothing is concluded from what is not known.
                MachineState::Unknown => made.queued,
                _ => (made.queued(now), None),
            };
            let waits = matches!(report.state, MachineState::Queued | MachineState::Starting);
            let before = std::mem::replace(&mut made.report, waits.then(|| text.clone()));
            waits && before.as_ref() != Some(&text)
        };
        if is_news {
            self.shared.emit(PoolEvent::NodeWaiting { node, machine: machine.clone(), report: text });
        }
    }

    /// Notes what the present step fails with, while it is tried again.
    pub(crate) fn trouble(&self) -> impl Fn(&Error) + Send + Sync + 'static {
        let (shared, machine) = (Arc::clone(&self.shared), self.launch.machine);
        move |error| {
            if let Some(made) = shared.lock().waits.making.get_mut(&machine) {
                made.trouble = Some(error.clone());
            }
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.shared.lock().waits.making.remove(&self.launch.machine);
    }
}

impl Shared {
    /// Waits until a machine is ready, for so long since then; the time for which it is queued does not count.
    ///
    /// # Cancel safety
    ///
    /// As `ready`.
    pub(super) async fn until_ready<F: Future + Unpin>(
        &self,
        began: Instant,
        limit: Duration,
        machine: MachineNumber,
        mut ready: F,
    ) -> std::result::Result<F::Output, Elapsed> {
        loop {
            let deadline = self.lock().waits.deadline(began, limit, Some(machine));
            let late = match timeout_at(deadline, &mut ready).await {
                Ok(ready) => return Ok(ready),
                Err(late) => late,
            };
            if self.lock().waits.deadline(began, limit, Some(machine)) <= deadline {
                return Err(late);
            }
        }
    }
}

impl Waits {
    /// The machines that are made ready, or the one that `only` names.
    fn made(&self, only: Option<MachineNumber>) -> Vec<&Made> {
        let meant = self.making.iter().filter(|(machine, _)| only.is_none_or(|only| only == **machine));
        meant.map(|(_, made)| made).collect()
    }

    /// When a wait that began then and may take so long is over: the time for which a machine is queued does not count, which has a limit of its own. `only` names a machine.
    pub(crate) fn deadline(&self, began: Instant, limit: Duration, only: Option<MachineNumber>) -> Instant {
        let now = Instant::now();
        let made = self.made(only);
        let queued = made.iter().map(|made| made.queued(now)).max().unwrap_or_default();
        let deadline = began + limit + queued;
        // One that is queued now will have been queued for longer.
        if made.iter().any(|made| made.queued.1.is_some()) { deadline.max(now + AGAIN) } else { deadline }
    }
}

impl Ending {
    pub(crate) fn begin(shared: &Arc<Shared>, machine: MachineNumber) -> Self {
        shared.lock().waits.ending.insert(machine);
        Self { shared: Arc::clone(shared), machine }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.lock().waits.ending.remove(&self.machine);
    }
}

impl State {
    /// What the pool waits for, the machines first.
    pub(super) fn waiting_for(&self) -> Vec<WaitingFor> {
        let waits = &self.waits;
        let mut all: Vec<WaitingFor> = waits.making.values().map(Made::waiting_for).collect();
        for (index, status) in self.nodes.iter().enumerate() {
            let node = status.node;
            // One that was lost before it was told to leave gets a machine for what it still has to do.
            let lost = waits.lost.get(&node);
            if status.leaving && (lost.is_none() || self.scheduler.is_drained(node)) {
                // One that has left, while another one behind it has not, is nothing to wait for.
                let leaves = status.ready || lost.is_some();
                all.extend(leaves.then_some(WaitingFor::Tasks { node }));
                continue;
            }
            if let Some(cause) = lost {
                all.push(WaitingFor::Replacement { node, cause: cause.clone() });
                continue;
            }
            if waits.away.contains(&node) {
                all.push(WaitingFor::Connection { node });
            }
            let first = index as u32 * self.workers_per_node;
            let ranks = (first..first + self.workers_per_node).map(crate::ids::Rank);
            let workers = ranks.filter(|rank| !self.scheduler.is_ready(*rank)).count() as u32;
            if workers > 0 {
                all.push(WaitingFor::Hooks { node, workers });
            }
        }
        all.extend(self.scheduler.is_held().then_some(WaitingFor::World));
        all.extend(waits.ending.iter().map(|machine| WaitingFor::End { node: NodeIndex(machine.0) }));
        all
    }
}

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine { node, report: None } => write!(f, "a machine for node {node} is being launched"),
            Self::Machine { node, report: Some(report) } => write!(f, "the machine for node {node} is {report}"),
            Self::Environment { node, step } => write!(f, "the machine of node {node} is being made ready: {step}"),
            Self::Hooks { node, workers: 1 } => {
                write!(f, "1 worker of node {node} is being started and enters its hooks")
            }
            Self::Hooks { node, workers } => {
                write!(f, "{workers} workers of node {node} are being started and enter their hooks")
            }
            Self::Replacement { node, cause } => write!(f, "node {node} is lost and being replaced: {cause}"),
            Self::Connection { node } => write!(f, "the connection to node {node} is being resumed"),
            Self::Tasks { node } => write!(f, "node {node} is to leave and finishes what it has"),
            Self::World => f.write_str("the pool is resizing and waits for running tasks to finish"),
            Self::End { node } => write!(f, "the machine of node {node}, which has left, is being ended"),
        }
    }
}

/// After this time it is looked again whether a machine is still queued.
const AGAIN: Duration = Duration::from_secs(1);
/// How many machines an error names that were not ready in time.
const MOST_LATE: usize = 8;
