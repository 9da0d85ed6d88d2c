//! The handle to a provisioned pool: `Pool` and its methods.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::command::Command;
use super::custody::cleanup::Cleanup;
use super::driver::supervisor::not_gone;
use super::node_handle::PoolNode;
use super::tasks::shared::Shared;
use crate::compute::ComputePool;
use crate::compute::PoolStatus;
use crate::error::{Error, ErrorKind, RankStacks, Result};
use crate::event::Events;
use crate::files::NodeFiles;
use crate::ids::{NodeIndex, PoolId, Rank};
use crate::payload::{Target, Task, TaskHandle};
use crate::spec::{Limits, Nodes};

/// A provisioned pool. Clones are handles to the same pool; when the last handle is dropped, the
/// pool ends in the background.
///
/// Calls are dispatched to the pool by their own methods:
/// [`run`](crate::compute::PendingCompute::run) on one worker,
/// [`broadcast`](crate::compute::PendingCompute::broadcast) on all workers,
/// [`map`](crate::compute::ComputePoolExt::map) for many calls. Code that also accepts other kinds
/// of pools, such as fakes in tests, uses the trait [`ComputePool`].
#[derive(Debug, Clone)]
pub struct Pool(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    cleanup: Cleanup,
}

impl Pool {
    /// The pool's id, as used in events, logs and the provider's records.
    pub fn id(&self) -> &PoolId {
        &self.0.shared.pool
    }

    /// The current status of the pool.
    pub fn status(&self) -> PoolStatus {
        self.0.shared.status()
    }

    /// A stream of the events that happen from now on.
    pub fn events(&self) -> Events {
        self.0.shared.events()
    }

    /// One node, to copy or follow files of it.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// # async fn example(pool: skyward::pool::Pool) -> skyward::Result<()> {
    /// pool.node(1).fetch("outputs", "results/outputs-1").await
    /// # }
    /// ```
    pub fn node(&self, index: u32) -> PoolNode {
        PoolNode::new(Arc::clone(&self.0.shared), NodeIndex(index))
    }

    /// Where the worker of a rank is now: the Python stacks of all its threads, while a task runs,
    /// between tasks, or while the worker enters its hooks. Nothing is interrupted, and native code
    /// that does not return does not prevent the answer.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::ids::Rank;
    ///
    /// # async fn look(pool: &skyward::pool::Pool) -> skyward::Result<()> {
    /// let stacks = pool.stacks(Rank(0)).await?;
    /// println!("rank 0 is in {}\n{}", stacks.place.unwrap_or_default(), stacks.text);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`] if the pool has no such rank; if the rank has no worker, because it
    ///   is being started, the error is [temporary](Error::is_temporary).
    /// - [`ErrorKind::Timeout`] if the worker has not answered after at most 5 seconds: the process is
    ///   stopped or hangs in the kernel, or its node does not answer.
    /// - [`ErrorKind::Closed`], or the error with which the pool failed, if the pool has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the answer.
    pub async fn stacks(&self, rank: Rank) -> Result<RankStacks> {
        self.0.shared.stacks(rank).await
    }

    /// Changes the number of nodes and waits until the pool has that many: see
    /// [`ComputePool::resize`].
    ///
    /// # Errors
    ///
    /// As [`ComputePool::resize`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel the change.
    pub async fn resize(&self, nodes: impl Into<Nodes>) -> Result<()> {
        let (done, changed) = oneshot::channel();
        self.0.shared.command(Command::Resize { nodes: nodes.into(), done });
        // If the driver is gone, the channel closes without an answer.
        changed.await.unwrap_or_else(|_| Err(self.refusal()))
    }

    /// Waits until the pool fails or its budget is spent, and returns the reason, which is
    /// [`PoolStatus::failure`] from then on. `None`: the pool has ended for no such reason, because
    /// somebody has shut it down.
    ///
    /// A pool that has failed takes no tasks, ends its machines when no task runs, and never recovers:
    /// a service starts another one, or ends.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// # async fn serve(pool: &skyward::pool::Pool) -> skyward::Result<()> { Ok(()) }
    /// # async fn example(pool: skyward::pool::Pool) -> skyward::Result<()> {
    /// tokio::select! {
    ///     served = serve(&pool) => served,
    ///     Some(failure) = pool.failed() => Err(failure),
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again at any time.
    pub async fn failed(&self) -> Option<Error> {
        self.0.shared.failed().await
    }

    /// Lets running tasks finish, and ends the pool: no task begins any more, waiting tasks and every
    /// later submission fail with [`ErrorKind::Closed`], and running tasks continue, with the calls
    /// that they make. When no task runs, and after `deadline` at the latest, the pool ends as
    /// [`shutdown`](Self::shutdown) ends it, within
    /// [`Limits::shutdown`](crate::spec::Limits::shutdown).
    ///
    /// A task whose worker or node is lost meanwhile fails and is not tried again. A pool that has
    /// failed already drains by itself; then this waits for its end.
    ///
    /// # Errors
    ///
    /// As [`shutdown`](Self::shutdown). A running task that was interrupted at the deadline is no
    /// error here: its caller gets [`ErrorKind::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel the drain. A call of [`shutdown`](Self::shutdown) ends it
    /// early.
    pub async fn drain(&self, deadline: Duration) -> Result<()> {
        let deadline = deadline.min(Limits::LONGEST);
        self.0.shared.command(Command::Drain { deadline });
        self.ended_within(deadline + self.0.shared.limits.shutdown).await
    }

    /// Ends the pool within the deadline: see [`ComputePool::shutdown`]. A pool that was passed to
    /// the body of a scope ends with the scope.
    ///
    /// # Errors
    ///
    /// As [`ComputePool::shutdown`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel the shutdown.
    pub async fn shutdown(&self, deadline: Duration) -> Result<()> {
        let deadline = deadline.min(Limits::LONGEST);
        self.0.shared.command(Command::Shutdown { deadline });
        self.ended_within(deadline).await
    }

    /// Waits for the end of a pool that must end within this time.
    async fn ended_within(&self, deadline: Duration) -> Result<()> {
        let Handle { shared, cleanup } = &*self.0;
        match tokio::time::timeout(deadline + LAST_QUERY, shared.end()).await {
            Ok(result) => result,
            Err(_) => {
                let late = Error::new(ErrorKind::Timeout, format!("the pool had not ended after {deadline:?}"));
                Err(not_gone(shared, cleanup, late))
            }
        }
    }

    pub(crate) fn new(shared: Arc<Shared>, cleanup: Cleanup) -> Self {
        Self(Arc::new(Handle { shared, cleanup }))
    }

    /// Ends all tasks with this error, as a pool that ends does.
    #[cfg(all(test, feature = "metrics"))]
    pub(super) fn end_tasks(&self, error: &Error) {
        self.0.shared.act(|state, now| state.scheduler.drain(now, error));
    }

    /// The error with which the pool refuses new tasks.
    pub(crate) fn refusal(&self) -> Error {
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
        self.status()
    }

    fn most_workers(&self) -> usize {
        self.0.shared.most_workers()
    }

    fn events(&self) -> Events {
        self.events()
    }

    fn files(&self) -> Option<&dyn NodeFiles> {
        Some(&*self.0.shared)
    }

    async fn resize(&self, nodes: Nodes) -> Result<()> {
        self.resize(nodes).await
    }

    async fn shutdown(&self, deadline: Duration) -> Result<()> {
        self.shutdown(deadline).await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let deadline = self.shared.limits.shutdown;
        self.shared.command(Command::Shutdown { deadline });
    }
}

/// How long the last query of the provider may take after the deadline has passed.
const LAST_QUERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::payload::{Args, Source};
    use crate::plugin::plugin;
    use crate::testkit::fake_provider::FakeProvider;
    use crate::testkit::fake_worker::Work;
    use crate::testkit::script::{Answer, Rule, Script};

    #[tokio::test(start_paused = true)]
    async fn a_pool_whose_state_a_panic_has_left_half_changed_ends_and_no_broadcast_waits_for_its_world() {
        let endless = Rule::all().answer(|_| Answer::does(Work::UntilKilled));
        let provider = FakeProvider::new(Script::new().rule(endless));
        let builder = Pool::builder().provider(provider.clone()).nodes(2).plugin(plugin("world").joins_world());
        let pool = builder.start().await.unwrap();
        let source = Arc::new(Source::file("a.py", "def f(): pass", "f"));
        let task = Task::new(source, Args::new().encode().unwrap());
        let _gang = pool.submit_all(task.clone()).await.unwrap();
        let resized = pool.clone();
        tokio::spawn(async move { resized.resize(3).await });
        while !pool.0.shared.lock().scheduler.is_held() {
            sleep(Duration::from_millis(10)).await;
        }
        let waits = pool.clone();
        let waits = tokio::spawn(async move { waits.submit_all(task).await });
        sleep(Duration::from_secs(1)).await;
        let shared = Arc::clone(&pool.0.shared);
        // Such as a task that reads the answers of a worker.
        let interrupted = tokio::spawn(async move { shared.act(|_, _| panic!("a defect")) });
        assert!(interrupted.await.unwrap_err().is_panic());
        let error = timeout(Duration::from_secs(600), waits).await.unwrap().unwrap().unwrap_err();
        assert!(error.message().contains("panicked: a defect"), "{error}");
        pool.shutdown(Duration::from_secs(60)).await.unwrap();
        assert!(provider.machines().is_empty());
    }
}
