//! Starts the pool of a builder: for the time of a scope, or until it is shut down.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::PoolBuilder;
use crate::error::Result;
use crate::event::Events;
use crate::ids::PoolId;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::driver::run::Driver;
use crate::pool::driver::supervisor::Supervisor;
use crate::pool::fleet::account::Account;
use crate::pool::handle::Pool;
use crate::pool::metrics::Metrics;
use crate::pool::spawn::spawn;
use crate::pool::tasks::life::closed;
use crate::pool::tasks::shared::{Settings, Shared};
use crate::provider::{Provider, keeper};
use crate::spec::Secrets;

impl PoolBuilder {
    /// Starts the pool, passes it to `body`, and ends the pool, also when `body` fails, panics or
    /// is dropped. When this method returns without an error, the machines are gone.
    ///
    /// `body` is an async closure:
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// # use skyward::{compute::PendingCompute, pool::Pool};
    /// # async fn example(train: impl Fn(u32) -> PendingCompute<f64>) -> skyward::Result<()> {
    /// let losses = Pool::builder().nodes(2).scope(async |pool| train(5).broadcast(pool).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A closure that returns an async block does not compile, because its future cannot borrow the
    /// pool. The compiler reports an error about lifetimes, or that an implementation of
    /// `AsyncFnOnce` is not general enough:
    ///
    /// ```compile_fail
    /// # use skyward_core as skyward;
    /// # use skyward::{compute::PendingCompute, pool::Pool};
    /// # async fn example(train: impl Fn(u32) -> PendingCompute<f64>) -> skyward::Result<()> {
    /// let losses = Pool::builder().nodes(2).scope(|pool| async move { train(5).broadcast(pool).await }).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - The reason why the pool could not be started.
    /// - The error of `body`. If machines are not confirmed gone either, the error has the reason
    ///   as context.
    /// - After `body` succeeded: the reason why the machines are not confirmed gone.
    ///
    /// # Panics
    ///
    /// Only if `body` panics. The panic continues after the pool has been shut down.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the pool ends in the background. If the process ends too, the
    /// leases of the nodes end the machines.
    pub async fn scope<T, F>(self, body: F) -> Result<T>
    where
        F: AsyncFnOnce(&Pool) -> Result<T>,
    {
        let deadline = self.limits.shutdown;
        let pool = self.start().await?;
        let result = AssertUnwindSafe(body(&pool)).catch_unwind().await;
        let ended = pool.shutdown(deadline).await;
        match result {
            Ok(Ok(value)) => ended.map(|()| value),
            // Both errors are worth reporting; the error of the body comes first.
            Ok(Err(error)) => Err(match ended {
                Ok(()) => error,
                Err(left) => error.with_context("cleanup", left),
            }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts the pool. The pool ends with [`shutdown`](Pool::shutdown), or in the background when
    /// its last handle is dropped.
    ///
    /// # Errors
    ///
    /// - The configuration is invalid: see [`check`](Self::check).
    /// - The pool could not be started. What had been started is ended; the error names the
    ///   machines that are not confirmed gone.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the machines that were started are ended in the background.
    pub async fn start(self) -> Result<Pool> {
        // `pending` never completes, so the result is always a pool.
        match self.start_unless(std::future::pending()).await? {
            Some(pool) => Ok(pool),
            None => Err(closed()),
        }
    }

    /// Starts the pool unless `stop` completes first, for example on a signal to the program. If
    /// `stop` completes first, everything that was started is ended, and the method returns `None`
    /// when that is confirmed gone.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// use skyward::error::Result;
    /// use skyward::pool::Pool;
    ///
    /// # async fn example(terminated: impl Future<Output = ()>) -> Result<()> {
    /// let Some(pool) = Pool::builder().start_unless(terminated).await? else { return Ok(()) };
    /// # pool.shutdown(std::time::Duration::from_secs(30)).await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start). After `stop`: the reason why the machines are not confirmed
    /// gone.
    ///
    /// # Cancel safety
    ///
    /// As for [`start`](Self::start). A program that returns from `main` right after it drops this
    /// future ends before the cleanup in the background has ended. To wait for the cleanup,
    /// complete `stop` instead of dropping the future.
    pub async fn start_unless(self, stop: impl Future<Output = ()>) -> Result<Option<Pool>> {
        let deadline = self.limits.shutdown;
        let mut blueprint = self.blueprint()?;
        let pool = self.id.clone().unwrap_or_else(PoolId::random);
        blueprint.provider = blueprint.provider.of_pool(&pool);
        let span = tracing::info_span!(target: "skyward::pool", "pool", pool = %pool, provider = self.provider.name());
        let (commands, received) = mpsc::unbounded_channel();
        let outlives = blueprint.provider.capabilities().keeper.then(|| keeper::outlives(self.limits.lease));
        let account = Account::new(self.budget, self.limits.shutdown).outlives(outlives);
        let account = Arc::new(Mutex::new(account));
        let settings = Settings {
            limits: self.limits,
            is_mixed: self.is_mixed,
            defaults: self.tasks,
            secrets: Secrets::new(blueprint.image.secrets.clone()),
            trace: self.trace.clone(),
            metrics: Metrics::new(self.provider.name()),
            account: Arc::clone(&account),
        };
        let shared = Shared::new(pool.clone(), settings, commands);
        let screen = self.show(shared.events(), &span);
        let cleanup = Cleanup::new(blueprint.provider.clone(), pool).charging(account);
        let supervisor = Supervisor::new(Arc::clone(&shared), cleanup.clone());
        let handle = Pool::new(Arc::clone(&shared), cleanup.clone());
        let driver = Driver::new(shared, received, cleanup, screen);
        let (ready, up) = oneshot::channel();
        spawn(supervisor.run(driver, blueprint, ready).instrument(span));
        let up = tokio::select! {
            biased;
            // When the receiver is dropped, the driver ends what it has started.
            () = stop => None,
            up = up => Some(up),
        };
        match up {
            Some(Ok(Ok(()))) => Ok(Some(handle)),
            Some(Ok(Err(error))) => Err(error),
            // Without its driver a pool cannot become ready; `shutdown` waits for the end of what
            // it started.
            Some(Err(_)) => Err(match handle.shutdown(deadline).await {
                Ok(()) => handle.refusal(),
                Err(left) => handle.refusal().with_context("cleanup", left),
            }),
            None => handle.shutdown(deadline).await.map(|()| None),
        }
    }

    /// Starts to show events on the terminal if the user asked for that.
    #[cfg(feature = "terminal")]
    fn show(&self, events: Events, span: &tracing::Span) -> Option<JoinHandle<()>> {
        self.terminal.map(|terminal| spawn(terminal.render(events).instrument(span.clone())))
    }

    #[cfg(not(feature = "terminal"))]
    fn show(&self, _: Events, _: &tracing::Span) -> Option<JoinHandle<()>> {
        None
    }
}
