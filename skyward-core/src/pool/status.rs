//! How a pool stands.

use super::waiting::WaitingFor;
use crate::event::Leaving;
use crate::ids::{Generation, MachineId, NodeIndex, PoolId, Rank, TaskId};
use crate::spec::Spent;

/// A pool's state at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PoolStatus {
    /// The pool.
    pub pool: PoolId,
    /// Where it is in its life.
    pub phase: PoolPhase,
    /// The life of its world.
    pub generation: Generation,
    /// Its nodes that are there.
    pub nodes: Vec<NodeStatus>,
    /// Its workers, by rank.
    pub workers: Vec<WorkerStatus>,
    /// Tasks that wait for a worker, among them the calls that payloads make of it.
    pub queued: usize,
    /// Workers that run a task: one that Rust has submitted, or a call. A worker that helps with
    /// calls while its task waits for them counts once.
    pub running: usize,
    /// The calls that payloads make, at all depths.
    pub calls: CallsStatus,
    /// What its machines have cost.
    pub spent: Spent,
    /// What it waits for; nothing, when all that it is to have takes tasks.
    pub waiting_for: Vec<WaitingFor>,
}

/// Where a pool is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolPhase {
    /// Machines are launched and made ready.
    Starting,
    /// It takes tasks.
    Ready,
    /// It ends what it started.
    Draining,
    /// It has ended. What could not be confirmed gone is the error of [`shutdown`](super::ComputePool::shutdown).
    Closed,
}

/// A node at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Which node.
    pub node: NodeIndex,
    /// Its machine.
    pub machine: MachineId,
    /// The address at which the other nodes reach it.
    pub address: String,
    /// Whether its machine is there. Where it is lost, machine and address are those of the lost one until another takes its place.
    pub ready: bool,
    /// Whether it is to leave the pool, and finishes what it has.
    pub leaving: bool,
    /// Why its machine will end, where that is known: another one is on its way to its place.
    pub ending: Option<Leaving>,
}

/// The calls of a pool's payloads at one moment. All are 0 where no payload calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallsStatus {
    /// Calls that no worker has begun. [`PoolStatus::queued`] counts them too.
    pub waiting: usize,
    /// Calls that workers run, on a worker of their own or within the wait of a caller.
    pub running: usize,
    /// Calls that workers have within the wait of a caller: all of [`WorkerStatus::helps`]. A
    /// cancelled one is among them until it has ended.
    pub helped: usize,
}

/// A worker at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// Which worker.
    pub rank: Rank,
    /// The node it is on.
    pub node: NodeIndex,
    /// Whether it has entered its hooks and takes tasks.
    pub ready: bool,
    /// Its process id on the node, when it is there.
    pub pid: Option<u32>,
    /// The task that it runs, which may be a call.
    pub task: Option<TaskId>,
    /// The calls that it helps with while that task waits for them: first those of its main thread,
    /// each within the one before it, then those on other threads.
    pub helps: Vec<TaskId>,
}

impl PoolStatus {
    /// The status of a pool without nodes; for pools of your own.
    pub fn new(pool: PoolId, phase: PoolPhase) -> Self {
        Self {
            pool,
            phase,
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
