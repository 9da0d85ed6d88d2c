//! The status of a pool.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::event::{DrainReason, count};
use crate::ids::{Generation, MachineId, MachineNumber, NodeIndex, PoolId, Rank, TaskId};
use crate::spec::Spent;

/// A pool's state at one moment.
///
/// `Display` describes it in a line, and `{:#}` also says what the pool waits for. By serde, it is
/// written, and never read back.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PoolStatus {
    /// The pool's id.
    pub pool: PoolId,
    /// The phase of the pool's life.
    pub phase: PoolPhase,
    /// Why the pool ends, or has ended, although nobody has shut it down: it has failed, or its
    /// budget is spent.
    pub failure: Option<Error>,
    /// The present generation of the pool's world.
    pub generation: Generation,
    /// The nodes of the pool. A machine that has not become a node yet is not among them.
    pub nodes: Vec<NodeStatus>,
    /// The workers of the pool, by rank.
    pub workers: Vec<WorkerStatus>,
    /// Tasks that wait for a worker, including the calls that payloads make.
    pub queued: usize,
    /// Workers that run a task: a task that Rust has submitted, or a call. A worker that helps with
    /// calls while its task waits for them counts once.
    pub running: usize,
    /// The calls that payloads make, at all depths.
    pub calls: CallsStatus,
    /// What the pool's machines have cost.
    pub spent: Spent,
    /// What the pool waits for. Empty if all workers that the pool should have take tasks.
    pub waiting_for: Vec<WaitingFor>,
}

/// The phase of a pool's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PoolPhase {
    /// The pool launches machines and makes them ready.
    Starting,
    /// The pool takes tasks.
    Ready,
    /// The pool ends what it started.
    Draining,
    /// The pool has failed: it takes no tasks, and ends what it started when no task runs.
    /// [`PoolStatus::failure`] has the reason.
    Failed,
    /// The pool has ended. The error of [`shutdown`](super::ComputePool::shutdown) names the
    /// machines that could not be confirmed gone.
    Closed,
}

impl PoolPhase {
    /// Whether the pool ends what it started, and has not ended yet.
    pub(crate) fn is_ending(self) -> bool {
        matches!(self, Self::Draining | Self::Failed)
    }
}

/// A node at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's index.
    pub node: NodeIndex,
    /// The id of the node's machine.
    pub machine: MachineId,
    /// The address at which the other nodes reach it.
    pub address: String,
    /// Whether the node has its machine. While a lost machine is being replaced, this is `false`,
    /// and `machine` and `address` are those of the lost machine.
    pub ready: bool,
    /// Whether the node is being drained because it leaves the pool: it finishes its tasks and
    /// takes no new ones.
    pub draining: bool,
    /// Why the machine will end, if that is known. A successor is then on its way.
    pub ending: Option<DrainReason>,
}

/// The calls that a pool's payloads make, at one moment. All numbers are 0 if no payload makes
/// calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CallsStatus {
    /// Calls that no worker has begun. [`PoolStatus::queued`] counts them too.
    pub waiting: usize,
    /// Calls that workers run, on a worker of their own or within the wait of a caller.
    pub running: usize,
    /// Calls that workers run within the wait of a caller: the calls in [`WorkerStatus::helps`] of
    /// all workers. A cancelled call counts until it has ended.
    pub helped: usize,
}

/// A worker at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The worker's rank.
    pub rank: Rank,
    /// The node that the worker runs on.
    pub node: NodeIndex,
    /// Whether the worker has entered its hooks and takes tasks.
    pub ready: bool,
    /// The worker's process id on the node, if the process is there.
    pub pid: Option<u32>,
    /// The task that the worker runs, which may be a call.
    pub task: Option<TaskId>,
    /// The calls that the worker helps with while its task waits for them: first the calls on its
    /// main thread, each nested in the one before, then the calls on other threads.
    pub helps: Vec<TaskId>,
}

impl PoolStatus {
    /// The status of a pool without nodes, for your own implementations of
    /// [`ComputePool`](super::ComputePool).
    pub fn new(pool: PoolId, phase: PoolPhase) -> Self {
        Self {
            pool,
            phase,
            failure: None,
            generation: Generation(0),
            nodes: Vec::new(),
            workers: Vec::new(),
            queued: 0,
            running: 0,
            calls: CallsStatus::default(),
            spent: Spent::default(),
            waiting_for: Vec::new(),
        }
    }
}

impl fmt::Display for PoolPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Failed => "failed",
            Self::Closed => "closed",
        })
    }
}

impl fmt::Display for PoolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, phase, nodes, workers, queued, running, .. } = self;
        let ready = workers.iter().filter(|worker| worker.ready).count();
        write!(
            f,
            "pool {pool} is {phase}: {}, {ready} of {} ready, {running} tasks run, {queued} wait, ${:.2} spent",
            count(nodes.len() as u32, "node"),
            count(workers.len() as u32, "worker"),
            self.spent.usd,
        )?;
        if let Some(failure) = &self.failure {
            write!(f, "; {}", failure.summary())?;
        }
        if f.alternate() {
            self.waiting_for.iter().try_for_each(|waiting| write!(f, "\n  {waiting}"))?;
        }
        Ok(())
    }
}

/// Something that a pool waits for. `Display` describes it in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "for", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaitingFor {
    /// A machine is being launched, or was launched and does not run yet.
    Machine {
        /// The node that the machine will be. For a machine that joins a pool that is ready
        /// already, its machine number.
        node: NodeIndex,
        /// What the provider reports of the machine: its state, and the provider's own words.
        /// `None` before the launch.
        report: Option<String>,
    },
    /// A machine runs and is being made ready: the pool connects to it, builds its environment, and
    /// starts its agent.
    Environment {
        /// As in [`Machine`](Self::Machine).
        node: NodeIndex,
        /// The present step: `connect`, or a step as
        /// [`PoolEvent::BootstrapStep`](crate::event::PoolEvent::BootstrapStep) names it.
        step: &'static str,
    },
    /// Workers of a node are being started, and enter their hooks.
    Hooks {
        /// The node.
        node: NodeIndex,
        /// How many workers do not take tasks yet.
        workers: u32,
    },
    /// A node is lost, and its machine is being replaced.
    Replacement {
        /// The node.
        node: NodeIndex,
        /// Why the node was lost.
        cause: String,
    },
    /// The connection to a node was lost, and the pool reconnects.
    Connection {
        /// The node.
        node: NodeIndex,
    },
    /// A node is draining: it finishes its tasks, if it has any, and leaves the pool.
    Tasks {
        /// The node.
        node: NodeIndex,
    },
    /// The joined world changes its size, and finishes its running tasks first.
    World,
    /// A machine that the pool does not need any more is being terminated.
    End {
        /// The machine.
        machine: MachineNumber,
    },
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
            Self::Tasks { node } => write!(f, "node {node} is draining: it finishes its tasks"),
            Self::World => f.write_str("the pool is resizing and waits for running tasks to finish"),
            Self::End { machine } => write!(f, "machine {machine}, which is not needed any more, is being terminated"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_status_is_a_line_and_a_record() {
        let mut status = PoolStatus::new(PoolId::new("p-1"), PoolPhase::Failed);
        status.failure = Some(Error::new(ErrorKind::Failed, "node 1 was lost 4 times"));
        status.waiting_for = vec![WaitingFor::Connection { node: NodeIndex(0) }, WaitingFor::World];
        let line = "pool p-1 is failed: 0 nodes, 0 of 0 workers ready, 0 tasks run, 0 wait, $0.00 spent; node 1 was lost 4 times";
        assert_eq!(status.to_string(), line);
        let lines = format!("{status:#}");
        assert!(lines.ends_with("\n  the pool is resizing and waits for running tasks to finish"), "{lines}");
        let record = serde_json::to_value(&status).unwrap();
        assert_eq!(record["phase"], "failed");
        assert_eq!(record["failure"]["kind"], "failed");
        assert_eq!(record["waiting_for"][0], serde_json::json!({"for": "connection", "node": 0}));
    }
}
