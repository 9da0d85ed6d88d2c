//! The handle to a provisioned pool.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::ComputePool;
use super::builder::PoolBuilder;
use super::driver::Command;
use super::shared::{Shared, closed};
use super::status::PoolStatus;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Events;
use crate::ids::PoolId;
use crate::payload::{Target, Task, TaskHandle};
use crate::spec::Nodes;

/// A provisioned pool. Clones are handles to the same one; when the last is dropped it ends in the background.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Handle>);

#[derive(Debug)]
struct Handle(Arc<Shared>);

impl Pool {
    /// What a pool is to be: one node of this host, unless it is said.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::new()
    }

    /// The pool's id, as it stands in events, logs and the provider's records.
    pub fn id(&self) -> &PoolId {
        &self.0.0.pool
    }

    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(Arc::new(Handle(shared)))
    }
}

#[async_trait]
impl ComputePool for Pool {
    async fn submit(&self, task: Task, target: Target) -> Result<TaskHandle> {
        self.0.0.submit(task, target).await
    }

    async fn submit_all(&self, task: Task) -> Result<Vec<TaskHandle>> {
        self.0.0.submit_all(task).await
    }

    fn status(&self) -> PoolStatus {
        self.0.0.status()
    }

    fn events(&self) -> Events {
        self.0.0.events()
    }

    async fn resize(&self, nodes: Nodes) -> Result<()> {
        let (done, changed) = oneshot::channel();
        self.0.0.command(Command::Resize { nodes, done });
        // Without the driver there is no pool any more.
        changed.await.unwrap_or_else(|_| Err(closed()))
    }

    async fn shutdown(&self, deadline: Duration) -> Result<()> {
        let (done, ended) = oneshot::channel();
        self.0.0.command(Command::Shutdown { deadline, done: Some(done) });
        match tokio::time::timeout(deadline + MARGIN, ended).await {
            Ok(Ok(result)) => result,
            // The driver is gone, and it goes only when everything has ended.
            Ok(Err(_)) => Ok(()),
            Err(_) => Err(Error::new(ErrorKind::Timeout, format!("the pool had not ended after {deadline:?}"))
                .with_hint("it goes on ending in the background; its nodes end by their lease in any case")),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let deadline = self.0.limits.shutdown;
        self.0.command(Command::Shutdown { deadline, done: None });
    }
}

/// What the last look at the provider may take when the deadline has passed.
const MARGIN: Duration = Duration::from_secs(5);
