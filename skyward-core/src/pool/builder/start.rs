//! Starts the pool of a builder: for the time of a scope, or until it is shut down.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::PoolBuilder;
use super::until::Until;
use crate::error::{Error, Result};
use crate::event::Events;
use crate::ids::PoolId;
use crate::pool::custody::cleanup::Cleanup;
use crate::pool::data::DataSets;
use crate::pool::driver::run::Driver;
use crate::pool::driver::supervisor::Supervisor;
use crate::pool::fleet::account::Account;
use crate::pool::handle::Pool;
use crate::pool::metrics::Metrics;
use crate::pool::spawn::spawn;
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
    /// - [`ErrorKind::Cancelled`](crate::error::ErrorKind::Cancelled): the future of
    ///   [`until`](Self::until) has completed.
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
        let (result, ended) = self.lend(body).await?;
        match result {
            Ok(value) => ended.map(|()| value),
            // Both errors are worth reporting; the error of the body comes first.
            Err(error) => Err(error.with_left(ended)),
        }
    }

    /// The same as [`scope`](Self::scope), with a body whose error is a type of the caller: any that
    /// can be made `From` an [`Error`]. `scope` is apart, because the compiler could not infer the
    /// error of its body otherwise.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// use skyward::pool::Pool;
    ///
    /// # async fn example(train: impl Fn(u32) -> skyward::compute::PendingCompute<f64>)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// Pool::builder()
    ///     .try_scope(async |pool| -> Result<(), Box<dyn std::error::Error>> {
    ///         let loss = train(5).run(pool).await?;
    ///         std::fs::write("loss.txt", loss.to_string())?;
    ///         Ok(())
    ///     })
    ///     .await
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`scope`](Self::scope). If `body` fails and machines are not confirmed gone either, the log
    /// has the machines, and this method returns the error of `body`.
    ///
    /// # Panics
    ///
    /// As [`scope`](Self::scope).
    ///
    /// # Cancel safety
    ///
    /// As [`scope`](Self::scope).
    pub async fn try_scope<T, E, F>(self, body: F) -> Result<T, E>
    where
        E: From<Error>,
        F: AsyncFnOnce(&Pool) -> Result<T, E>,
    {
        let (result, ended) = self.lend(body).await?;
        let value = result?;
        ended?;
        Ok(value)
    }

    /// Starts the pool, passes it to `body`, and ends the pool. Returns what `body` returned, and
    /// whether the machines are confirmed gone.
    async fn lend<T, E, F>(self, body: F) -> Result<(Result<T, E>, Result<()>)>
    where
        E: From<Error>,
        F: AsyncFnOnce(&Pool) -> Result<T, E>,
    {
        let (deadline, until) = (self.limits.shutdown, self.until.clone());
        let pool = self.start().await?;
        let result = tokio::select! {
            biased;
            result = AssertUnwindSafe(body(&pool)).catch_unwind() => result,
            () = until.completed() => Ok(Err(Until::error("the scope").into())),
        };
        let ended = pool.shutdown(deadline).await;
        match result {
            Ok(result) => Ok((result, ended)),
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
    /// - [`ErrorKind::Cancelled`](crate::error::ErrorKind::Cancelled): the future of
    ///   [`until`](Self::until) has completed. What had been started is confirmed gone, unless the
    ///   error has machines as context.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the machines that were started are ended in the background. A
    /// program that returns from `main` right after it drops this future ends before that. To wait
    /// for the end, use [`until`](Self::until) instead of dropping the future.
    pub async fn start(mut self) -> Result<Pool> {
        let deadline = self.limits.shutdown;
        let mut blueprint = self.blueprint()?;
        let pool = self.id.clone().unwrap_or_else(PoolId::random);
        blueprint.provider = blueprint.provider.of_pool(&pool);
        let span = tracing::info_span!(target: "skyward::pool", "pool", pool = %pool, provider = self.provider.name());
        let (commands, received) = mpsc::unbounded_channel();
        let (news, heard) = mpsc::unbounded_channel();
        let serves = self.storage.is_some() || !self.data.is_empty();
        let (news, heard) = (serves.then_some(news), serves.then_some(heard));
        let outlives = blueprint.provider.capabilities().keeper.then(|| keeper::outlives(self.limits.lease));
        let account = Account::new(self.budget, self.limits.shutdown).outlives(outlives);
        let account = Arc::new(Mutex::new(account));
        let settings = Settings {
            limits: self.limits,
            is_mixed: self.is_mixed,
            defaults: self.tasks,
            secrets: Secrets::new(blueprint.image.secrets.clone()),
            requirements: blueprint.image.pip.clone(),
            imports: self.imports(),
            trace: self.trace.clone(),
            metrics: Metrics::new(self.provider.name()),
            account: Arc::clone(&account),
            events: std::mem::take(&mut self.watched).into_buffer(),
            storage: self.storage.clone(),
            data: DataSets::new(std::mem::take(&mut self.data)),
            news,
        };
        let shared = Shared::new(pool.clone(), settings, commands);
        let screen = self.show(shared.events(), &span);
        let cleanup = Cleanup::new(blueprint.provider.clone(), pool).charging(account);
        let supervisor = Supervisor::new(Arc::clone(&shared), cleanup.clone());
        let handle = Pool::new(Arc::clone(&shared), cleanup.clone());
        let driver = Driver::new(shared, received, cleanup, screen, heard);
        let (ready, up) = oneshot::channel();
        spawn(supervisor.run(driver, blueprint, ready).instrument(span));
        let up = tokio::select! {
            biased;
            // When the receiver is dropped, the driver ends what it has started.
            () = self.until.clone().completed() => None,
            up = up => Some(up),
        };
        match up {
            Some(Ok(Ok(()))) => Ok(handle),
            Some(Ok(Err(error))) => Err(error),
            // Without its driver a pool cannot become ready; `shutdown` waits for the end of what
            // it started.
            Some(Err(_)) => {
                let ended = handle.shutdown(deadline).await;
                Err(handle.refusal().with_left(ended))
            }
            None => Err(Until::error("the start of the pool").with_left(handle.shutdown(deadline).await)),
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
