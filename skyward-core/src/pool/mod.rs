//! Pools: from a specification to ready workers, and to machines that are gone.

mod account;
mod agent;
mod bring_up;
mod builder;
mod calls;
mod cleanup;
mod driver;
mod elastic;
mod events;
mod handle;
mod held;
mod inbound;
mod jobs;
mod ledger;
mod life;
mod lifecycle;
pub(crate) mod lock;
mod map;
mod market;
mod metrics;
mod node;
mod notices;
mod outbox;
mod output;
mod perform;
mod plan;
mod pulse;
mod purchase;
mod reap;
mod refused;
mod rehearsal;
mod renewal;
mod repair;
mod reports;
mod requests;
mod resize;
mod serving;
mod shared;
mod sizing;
mod status;
mod steps;
mod submit;
mod succession;
mod supervisor;
mod waiting;
mod warning;
mod world;

use std::time::Duration;

use async_trait::async_trait;

pub use builder::PoolBuilder;
pub use handle::Pool;
#[cfg(any(test, fuzzing))]
pub(crate) use ledger::Page as LedgerPage;
pub use map::{ComputePoolExt, Mapped};
pub use plan::{Candidate, PoolPlan};
pub use reap::{Elsewhere, Ended, Left, Reaped, reap, reap_expired};
pub use rehearsal::{Finding, FindingKind, Rehearsal, RehearsalLimits};
pub use status::{CallsStatus, NodeStatus, PoolPhase, PoolStatus, WorkerStatus};
pub use waiting::WaitingFor;

use crate::error::Result;
use crate::event::Events;
use crate::payload::{Target, Task, TaskHandle};
use crate::spec::Nodes;

/// Runs tasks on a set of nodes. Whatever can do that can be one: a [`Pool`], a fake for a service's own tests, a proxy.
///
/// Object-safe; the typed calls are methods of [`PendingCompute`](crate::payload::PendingCompute) and [`ComputePoolExt`].
#[async_trait]
pub trait ComputePool: Send + Sync + 'static {
    /// Takes a task. Waits while the queue is full.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::error::ErrorKind::NotFound) for a target that the pool does not have, [`ErrorKind::Payload`](crate::error::ErrorKind::Payload) for a task larger than a frame may
    /// be, [`ErrorKind::Closed`](crate::error::ErrorKind::Closed) when the pool is shutting down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready leaves no task.
    async fn submit(&self, task: Task, target: Target) -> Result<TaskHandle>;

    /// Takes a task for every worker, one handle per rank in order. In a joined world they are a gang: they start together.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready leaves no task.
    async fn submit_all(&self, task: Task) -> Result<Vec<TaskHandle>>;

    /// How it stands now.
    fn status(&self) -> PoolStatus;

    /// What happens from now on.
    fn events(&self) -> Events;

    /// Changes the number of nodes, and waits until the pool has as many: for more, until their workers take tasks; for fewer, until the machines of those that leave are confirmed gone.
    ///
    /// The last nodes are those that leave, never node 0. They finish what they run and what was submitted for them by name, however long that takes, and take nothing new.
    /// A joined world changes as its next generation, when it has finished the gangs and tasks that it runs and the gangs that were submitted before; a gang that is submitted meanwhile waits until then,
    /// and has one task for each rank that there is then.
    ///
    /// [`Nodes::fixed`] ends the scaling of an elastic pool, [`Nodes::elastic`] begins it. A later call takes the place of an earlier one that is still under way.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec) for a size that the pool or its plugins cannot have; what kept machines from being made ready, after some tries: the pool goes on with those that it has;
    /// [`ErrorKind::Cancelled`](crate::error::ErrorKind::Cancelled) when a later call took its place; [`ErrorKind::Closed`](crate::error::ErrorKind::Closed) when the pool is shutting down.
    ///
    /// # Cancel safety
    ///
    /// The change goes on.
    async fn resize(&self, nodes: Nodes) -> Result<()>;

    /// Ends it: waiting tasks fail with [`ErrorKind::Closed`](crate::error::ErrorKind::Closed), running ones are interrupted, machines are terminated and confirmed gone.
    /// Calling it again waits for the same end.
    ///
    /// # Errors
    ///
    /// When the deadline passes or a provider fails before every machine is confirmed gone; the error names those that are left. That holds also for a pool whose driver has panicked, or whose runtime
    /// has ended: its machines are ended all the same.
    ///
    /// # Cancel safety
    ///
    /// The shutdown goes on.
    async fn shutdown(&self, deadline: Duration) -> Result<()>;
}
