//! Calls and the pools that run them: pending calls, calls over many items, and the status of a
//! pool.
//!
//! A [`ComputePool`] is anything that can run tasks: a provisioned [`Pool`](crate::pool::Pool), a
//! fake for the tests of a service, a proxy.

mod artifact;
mod forward;
mod map;
mod pending;
mod status;

use std::time::Duration;

use async_trait::async_trait;

pub use artifact::Artifact;
pub use map::ComputePoolExt;
pub use pending::{Join, PendingCompute, join_all};
pub use status::{CallsStatus, NodeStatus, PoolPhase, PoolStatus, WaitingFor, WorkerStatus};

use crate::error::Result;
use crate::event::Events;
use crate::files::NodeFiles;
use crate::payload::{Target, Task, TaskHandle};
use crate::spec::Nodes;

/// Runs tasks on a set of nodes.
///
/// Anything that can run tasks may implement this trait: a [`Pool`](crate::pool::Pool), a fake for
/// a service's own tests, a proxy. A reference, a `Box` and an `Arc` of a pool are pools, too. The
/// trait is object-safe; typed calls are methods of [`PendingCompute`] and [`ComputePoolExt`].
#[async_trait]
pub trait ComputePool: Send + Sync {
    /// Submits a task, and waits while the queue is full.
    ///
    /// An implementation returns as soon as it has accepted the task, and not when the task has
    /// run: [`ComputePoolExt::map`] submits one call after the other.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`](crate::error::ErrorKind::NotFound): the pool does not have the
    ///   target.
    /// - [`ErrorKind::Payload`](crate::error::ErrorKind::Payload): the task is larger than a frame
    ///   may be.
    /// - [`ErrorKind::Closed`](crate::error::ErrorKind::Closed): the pool is shutting down.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, the pool has no such task.
    async fn submit(&self, task: Task, target: Target) -> Result<TaskHandle>;

    /// Submits one task for every worker, and returns one handle per rank, in order. In a joined
    /// world the tasks are a gang: they start together.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it completes, the pool has none of these tasks.
    async fn submit_all(&self, task: Task) -> Result<Vec<TaskHandle>>;

    /// The state of the pool at this moment.
    fn status(&self) -> PoolStatus;

    /// How many workers the pool may have; more than it has now if it is elastic. A map keeps that
    /// many busy. Default: the workers of its status.
    fn most_workers(&self) -> usize {
        self.status().workers.len()
    }

    /// A stream of the events that the pool emits from now on.
    fn events(&self) -> Events;

    /// The files on the pool's nodes, which an [`Artifact`] is read from. Default: the pool keeps no
    /// files.
    fn files(&self) -> Option<&dyn NodeFiles> {
        None
    }

    /// Changes the number of nodes, and waits until the change is complete:
    ///
    /// - For more nodes, until the workers of the new nodes take tasks.
    /// - For fewer nodes, until the machines of the nodes that leave are confirmed gone.
    ///
    /// The last nodes leave, never node 0. A node that leaves finishes the tasks that it runs and
    /// the tasks that were submitted to it by name, however long that takes. It takes no new tasks.
    ///
    /// A joined world changes its size as its next generation. Before that, it finishes the gangs
    /// and tasks that it runs and the gangs that were submitted earlier. A gang that is submitted
    /// during the change waits for the new generation, and has one task for each rank of it.
    ///
    /// [`Nodes::fixed`] ends the scaling of an elastic pool, and [`Nodes::elastic`] starts it. A
    /// later call replaces an earlier one that is still under way.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec): the pool or its plugins
    ///   do not allow this size.
    /// - [`ErrorKind::Start`](crate::error::ErrorKind::Start): several machines in a row could not
    ///   be made ready. The pool continues with its present nodes.
    /// - [`ErrorKind::Cancelled`](crate::error::ErrorKind::Cancelled): a later call replaced this
    ///   one.
    /// - [`ErrorKind::Closed`](crate::error::ErrorKind::Closed): the pool is shutting down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the change.
    async fn resize(&self, nodes: Nodes) -> Result<()>;

    /// Ends the pool: waiting tasks fail with
    /// [`ErrorKind::Closed`](crate::error::ErrorKind::Closed), running tasks are interrupted, and
    /// machines are terminated and confirmed gone. A further call waits for the same end.
    ///
    /// The machines are also ended if the pool's driver has panicked or its runtime has ended.
    ///
    /// # Errors
    ///
    /// The deadline passed, or a provider failed, before every machine was confirmed gone. The
    /// error names the machines that are left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not stop the shutdown.
    async fn shutdown(&self, deadline: Duration) -> Result<()>;
}
