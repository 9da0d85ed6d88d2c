//! The handle to a provisioned pool.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::ComputePool;
use super::builder::PoolBuilder;
use super::cleanup::Cleanup;
use super::driver::Command;
use super::shared::Shared;
use super::status::PoolStatus;
use super::supervisor::not_gone;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Events;
use crate::ids::PoolId;
use crate::payload::{Target, Task, TaskHandle};
use crate::spec::{Limits, Nodes};

/// A provisioned pool. Clones are handles to the same one; when the last is dropped it ends in the background.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    cleanup: Cleanup,
}

impl Pool {
    /// What a pool is to be: one node of this host, unless it is said.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    /// The pool's id, as it stands in events, logs and the provider's records.
    pub fn id(&self) -> &PoolId {
        &self.0.shared.pool
    }

    pub(crate) fn new(shared: Arc<Shared>, cleanup: Cleanup) -> Self {
        Self(Arc::new(Handle { shared, cleanup }))
    }

    /// Why the pool takes no tasks any more.
    pub(super) fn refusal(&self) -> Error {
        self.0.shared.refusal()
    }
}

#[async_trait]
impl ComputePool for Pool {
    async fn submit(&self, task: Task, target: Target) -> Result<TaskHandle> {
        self.0.shared.submit(task, target).await
    }

    async fn submit_all(&self, task: Task) -> Result<Vec<TaskHandle>> {
        self.0.shared.submit_all(task).await
    }

    fn status(&self) -> PoolStatus {
        self.0.shared.status()
    }

    fn events(&self) -> Events {
        self.0.shared.events()
    }

    async fn resize(&self, nodes: Nodes) -> Result<()> {
        let (done, changed) = oneshot::channel();
        self.0.shared.command(Command::Resize { nodes, done });
        // A driver that is gone answers nothing.
        changed.await.unwrap_or_else(|_| Err(self.refusal()))
    }

    async fn shutdown(&self, deadline: Duration) -> Result<()> {
        let Handle { shared, cleanup } = &*self.0;
        let deadline = deadline.min(Limits::LONGEST);
        shared.command(Command::Shutdown { deadline });
        match tokio::time::timeout(deadline + MARGIN, shared.end()).await {
            Ok(result) => result,
            Err(_) => {
                let late = Error::new(ErrorKind::Timeout, format!("the pool had not ended after {deadline:?}"));
                Err(not_gone(shared, cleanup, late))
            }
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let deadline = self.shared.limits.shutdown;
        self.shared.command(Command::Shutdown { deadline });
    }
}

/// What the last look at the provider may take when the deadline has passed.
const MARGIN: Duration = Duration::from_secs(5);
