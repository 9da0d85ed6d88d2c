//! The metrics of a pool (feature `metrics`); [`table`] defines them. Most metrics are derived from
//! the pool's events, the others are recorded where calls pass.

mod handle;
mod nodes;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use handle::{Counter, Histogram, Label, Level};
use nodes::{Nodes, PHASES, Phase};

use crate::error::{Cause, Error, ErrorKind, WorkerExit};
use crate::event::PoolEvent;
use crate::ids::{Generation, NodeIndex, Rank};
use crate::payload::Outcome;

/// The metrics of one pool. The handles are made once, with the recorder that is installed when the
/// pool starts.
#[derive(Debug)]
pub(crate) struct Metrics {
    provider: String,
    nodes: [Level; PHASES.len()],
    workers_ready: Level,
    queued: Level,
    running: Level,
    calls_waiting: Level,
    calls_running: Level,
    returned: Counter,
    cancelled: Counter,
    failed: [Counter; FAILURES.len()],
    retries: [Counter; Cause::ALL.len()],
    task_seconds: Histogram,
    queue_seconds: Histogram,
    overhead_seconds: Histogram,
    sent_bytes: Counter,
    received_bytes: Counter,
    output_bytes: Counter,
    start_seconds: Histogram,
    replaced: Counter,
    unconfirmed: Counter,
    generations: Counter,
    renewals: Counter,
    silences: Counter,
    seen: Mutex<Seen>,
}

/// State derived from the events so far.
#[derive(Debug, Default)]
struct Seen {
    nodes: Nodes,
    ready: BTreeSet<Rank>,
    generation: Option<Generation>,
    steps: BTreeMap<&'static str, Histogram>,
    lost: BTreeMap<&'static str, Counter>,
    exits: BTreeMap<&'static str, Counter>,
    /// Whether the pool counts as failed.
    failed: bool,
}

impl Metrics {
    /// Whether metrics can be recorded at all.
    pub(crate) const RECORDED: bool = cfg!(feature = "metrics");

    /// The metrics of a pool with this provider.
    pub(crate) fn new(provider: &str) -> Self {
        handle::describe();
        let of = ("provider", provider);
        let counter = |metric| handle::counter(metric, &[of]);
        let histogram = |metric| handle::histogram(metric, &[of]);
        let tasks = |outcome, cause| handle::counter(&table::TASKS, &[of, ("outcome", outcome), ("cause", cause)]);
        let level = |metric| Level::new(metric, &[of]);
        Self {
            nodes: PHASES.map(|phase| Level::new(&table::NODES, &[of, ("phase", phase)])),
            workers_ready: level(&table::WORKERS_READY),
            queued: level(&table::TASKS_QUEUED),
            running: level(&table::TASKS_RUNNING),
            calls_waiting: level(&table::CALLS_WAITING),
            calls_running: level(&table::CALLS_RUNNING),
            returned: tasks("returned", "none"),
            cancelled: tasks("cancelled", "none"),
            failed: FAILURES.map(|cause| tasks("failed", cause)),
            retries: std::array::from_fn(|cause| handle::counter(&table::RETRIES, &[of, ("cause", FAILURES[cause])])),
            task_seconds: histogram(&table::TASK_SECONDS),
            queue_seconds: histogram(&table::QUEUE_SECONDS),
            overhead_seconds: histogram(&table::OVERHEAD_SECONDS),
            sent_bytes: counter(&table::SENT_BYTES),
            received_bytes: counter(&table::RECEIVED_BYTES),
            output_bytes: counter(&table::OUTPUT_BYTES),
            start_seconds: histogram(&table::START_SECONDS),
            replaced: counter(&table::NODES_REPLACED),
            unconfirmed: counter(&table::NODES_UNCONFIRMED),
            generations: counter(&table::GENERATIONS),
            renewals: counter(&table::LEASE_RENEWALS),
            silences: counter(&table::LEASE_SILENCES),
            seen: Mutex::default(),
            provider: provider.to_owned(),
        }
    }

    /// Sets the number of queued and of running tasks.
    pub(crate) fn tasks(&self, queued: usize, running: usize) {
        self.queued.set(queued);
        self.running.set(running);
    }

    /// Sets how many of the queued and of the running tasks are calls that payloads made.
    pub(crate) fn calls(&self, waiting: usize, running: usize) {
        self.calls_waiting.set(waiting);
        self.calls_running.set(running);
    }

    /// Records that a worker began a task that had waited for this long.
    pub(crate) fn began(&self, waited: Duration) {
        self.queue_seconds.record(waited.as_secs_f64());
    }

    /// Records that a worker answered: how many microseconds the payload ran, and the size of its
    /// value in bytes.
    pub(crate) fn answered(&self, micros: u64, bytes: usize) {
        self.task_seconds.record(Duration::from_micros(micros).as_secs_f64());
        self.received(bytes);
    }

    /// Records the end of a try: how long it took since its worker began, and for how much of that
    /// the payload ran.
    pub(crate) fn tried(&self, took: Duration, ran: Duration) {
        self.overhead_seconds.record(took.saturating_sub(ran).as_secs_f64());
    }

    /// Records the outcome of a task that has ended for its caller.
    pub(crate) fn ended(&self, outcome: &Outcome) {
        match outcome {
            Ok(_) => self.returned.increment(1),
            Err(error) if error.kind() == ErrorKind::Cancelled => self.cancelled.increment(1),
            Err(error) => self.failed[failure(error)].increment(1),
        }
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.sent_bytes.increment(bytes as u64);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.received_bytes.increment(bytes as u64);
    }

    /// Records that the pool takes tasks now.
    pub(crate) fn started(&self, took: Duration) {
        self.start_seconds.record(took.as_secs_f64());
    }

    /// Records that a step of making a node ready is done.
    pub(crate) fn step(&self, step: &'static str, took: Duration) {
        let mut seen = self.seen();
        let histogram = seen.steps.entry(step).or_insert_with(|| {
            handle::histogram(&table::STEP_SECONDS, &[("provider", &self.provider), ("step", step)])
        });
        histogram.record(took.as_secs_f64());
    }

    /// Records that an agent has confirmed the renewal of its lease.
    pub(crate) fn lease_renewed(&self) {
        self.renewals.increment(1);
    }

    /// Records that an agent has confirmed nothing for as long as its lease.
    pub(crate) fn lease_silent(&self) {
        self.silences.increment(1);
    }

    /// Updates the metrics by an event of the pool.
    pub(crate) fn on_event(&self, event: &PoolEvent) {
        match event {
            // Events of single calls are emitted only while there is a reader, so they are not
            // counted here.
            PoolEvent::TaskStarted { .. } | PoolEvent::TaskFinished { .. } | PoolEvent::Report(_) => {}
            PoolEvent::Output(output) => self.output_bytes.increment(output.bytes.len() as u64),
            PoolEvent::TaskRetried { error, .. } => {
                if let Some(cause) = Cause::of(error) {
                    self.retries[cause.index()].increment(1);
                }
            }
            PoolEvent::NodeLaunching { node } => self.turn(|nodes| nodes.on_launching(*node)),
            PoolEvent::PoolReady { nodes, .. } => {
                let mut seen = self.seen();
                let up = (0..*nodes).map(|node| (NodeIndex(node), Phase::Up));
                seen.nodes.change(|phases| *phases = up.collect());
                self.record(&seen);
            }
            PoolEvent::NodeLost { node, error } => {
                let cause = loss(error);
                let mut seen = self.seen();
                let lost = seen.lost.entry(cause).or_insert_with(|| self.counter(&table::NODES_LOST, ("cause", cause)));
                lost.increment(1);
                seen.nodes.on_lost(*node);
                self.record(&seen);
            }
            PoolEvent::NodeReplaced { node, machine, .. } => {
                self.replaced.increment(1);
                self.turn(|nodes| nodes.on_up(*node, machine));
            }
            PoolEvent::NodeJoined { node, machine, .. } => self.turn(|nodes| nodes.on_up(*node, machine)),
            PoolEvent::NodeDraining { node, ends_in: None, .. } => {
                self.turn(|nodes| nodes.set(*node, Phase::Ending));
            }
            // A node that the failed machine was to succeed is still up.
            PoolEvent::NodeFailed { node, .. } => self.turn(|nodes| nodes.remove(*node, Phase::Starting)),
            PoolEvent::Resized { nodes, .. } => {
                let mut seen = self.seen();
                seen.nodes.change(|phases| {
                    phases.retain(|node, _| node.0 < *nodes);
                    for node in (0..*nodes).map(NodeIndex) {
                        phases.entry(node).or_insert(Phase::Up);
                    }
                });
                self.record(&seen);
            }
            PoolEvent::NodeUnconfirmed { .. } => self.unconfirmed.increment(1),
            PoolEvent::GenerationStarting { generation, .. } => {
                let mut seen = self.seen();
                if seen.generation.replace(*generation) != Some(*generation) {
                    // A new generation starts all workers; within a generation, single workers are
                    // restarted.
                    self.generations.increment(1);
                    seen.ready.clear();
                }
                self.record(&seen);
            }
            PoolEvent::WorkerReady { rank, .. } => {
                let mut seen = self.seen();
                seen.ready.insert(*rank);
                self.record(&seen);
            }
            PoolEvent::WorkerExited { rank, exit } => {
                let how = end(exit);
                let mut seen = self.seen();
                let exits = seen.exits.entry(how).or_insert_with(|| self.counter(&table::WORKER_EXITS, ("exit", how)));
                exits.increment(1);
                seen.ready.remove(rank);
                self.record(&seen);
            }
            PoolEvent::Failed { .. } => self.pool_failed("failed"),
            PoolEvent::BudgetSpent { .. } => self.pool_failed("budget"),
            PoolEvent::Draining => {
                let mut seen = self.seen();
                seen.nodes.change(|phases| phases.values_mut().for_each(|phase| *phase = Phase::Ending));
                self.record(&seen);
            }
            PoolEvent::NodeGone { node, machine } => self.turn(|nodes| nodes.on_gone(*node, machine)),
            PoolEvent::Closed => {
                let mut seen = self.seen();
                seen.nodes.change(BTreeMap::clear);
                seen.ready.clear();
                self.record(&seen);
            }
            _ => {}
        }
    }

    fn pool_failed(&self, cause: &'static str) {
        if !std::mem::replace(&mut self.seen().failed, true) {
            self.counter(&table::POOLS_FAILED, ("cause", cause)).increment(1);
        }
    }

    fn turn(&self, change: impl FnOnce(&mut Nodes)) {
        let mut seen = self.seen();
        change(&mut seen.nodes);
        self.record(&seen);
    }

    fn record(&self, seen: &Seen) {
        for (count, level) in seen.nodes.counts.iter().zip(&self.nodes) {
            level.set(*count);
        }
        self.workers_ready.set(seen.ready.len());
    }

    fn counter(&self, metric: &table::Metric, label: Label<'_>) -> Counter {
        handle::counter(metric, &[("provider", &self.provider), label])
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The index in [`FAILURES`] of the reason why a task failed.
fn failure(error: &Error) -> usize {
    let other = match error.kind() {
        ErrorKind::Timeout => 0,
        ErrorKind::QueueTimeout => 1,
        ErrorKind::Closed => 2,
        _ => 3,
    };
    Cause::of(error).map_or(Cause::ALL.len() + other, Cause::index)
}

/// The label for the reason why a node was lost.
fn loss(error: &Error) -> &'static str {
    match (error.exit(), error.kind()) {
        (Some(WorkerExit::LeaseEnded), _) => "lease",
        (Some(WorkerExit::Preempted), _) => "preempted",
        (Some(WorkerExit::Expired), _) => "expired",
        (Some(WorkerExit::MachineFailed), _) => "failed",
        (Some(WorkerExit::Unreachable), _) | (None, ErrorKind::Timeout) => "unreachable",
        (Some(WorkerExit::AgentGone), _) | (None, ErrorKind::Io) => "agent",
        _ => "other",
    }
}

/// The label for the way in which a worker ended.
fn end(exit: &WorkerExit) -> &'static str {
    match exit {
        WorkerExit::Code(_) => "code",
        WorkerExit::Signal(_) => "signal",
        WorkerExit::OutOfMemory => "out_of_memory",
        WorkerExit::Killed | WorkerExit::Unreachable => "killed",
        WorkerExit::WorldEnded => "ended",
        WorkerExit::AgentGone
        | WorkerExit::LeaseEnded
        | WorkerExit::Preempted
        | WorkerExit::Expired
        | WorkerExit::MachineFailed
        | WorkerExit::Left => "lost",
    }
}

/// The labels for the reasons why tasks fail: first the causes, by their index.
const FAILURES: [&str; Cause::ALL.len() + 4] = [
    "crash",
    "out_of_memory",
    "node_lost",
    "preempted",
    "peer_lost",
    "stall",
    "raised",
    "timeout",
    "queue_timeout",
    "closed",
    "other",
];

#[cfg(test)]
mod tests;
