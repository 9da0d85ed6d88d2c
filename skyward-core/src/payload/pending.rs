//! A call that has not been dispatched: what to run, without where.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{BitAnd, Shr};
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future::try_join_all;

use super::task::{Target, Task, TaskOptions};
use super::{Args, Output, ReportSender, Reports, RetryPolicy, Source, TraceContext};
use crate::error::Result;
use crate::pool::ComputePool;

/// A call of a payload that says what to run; a dispatch says where. Nothing runs before that.
///
/// ```no_run
/// # use skyward_core::{payload::{Payload, PendingCompute, Target}, pool::Pool, ids::NodeIndex};
/// # async fn example(pool: &Pool, train: impl Fn(u32) -> PendingCompute<f64>) -> skyward_core::error::Result<()> {
/// let loss: f64 = train(5).run(pool).await?;                                   // on whichever worker is free
/// let head: f64 = train(5).run_on(pool, Target::Node(NodeIndex(0))).await?;    // on a worker of node 0
/// let all: Vec<f64> = train(5).broadcast(pool).await?;                         // on every worker, by rank
/// let (a, b) = (train(1) & train(2)).run(pool).await?;                         // at the same time
/// # Ok(())
/// # }
/// ```
#[must_use = "a call runs only when it is dispatched: `.run(&pool)`"]
pub struct PendingCompute<T> {
    source: Arc<Source>,
    args: Args,
    options: TaskOptions,
    trace: Option<TraceContext>,
    reports: Option<ReportSender>,
    output: PhantomData<fn() -> T>,
}

/// Several calls that run at the same time; made by [`PendingCompute::join`] or `&`.
#[derive(Debug, Clone)]
#[must_use = "calls run only when they are dispatched: `.run(&pool)`"]
pub struct Join<C>(C);

/// Calls of one type that run at the same time; their results come in the order of the calls.
///
/// ```no_run
/// # use skyward_core::{payload::{PendingCompute, join_all}, pool::Pool};
/// # async fn example(pool: &Pool, train: impl Fn(f64) -> PendingCompute<f64>) -> skyward_core::error::Result<()> {
/// let losses = join_all([0.1, 0.01, 0.001].map(|rate| train(rate))).run(pool).await?;
/// # Ok(())
/// # }
/// ```
pub fn join_all<T: Output>(calls: impl IntoIterator<Item = PendingCompute<T>>) -> Join<Vec<PendingCompute<T>>> {
    Join(calls.into_iter().collect())
}

impl<T: Output> PendingCompute<T> {
    /// A call of this source with these arguments.
    pub fn new(source: Arc<Source>, args: Args) -> Self {
        Self { source, args, options: TaskOptions::default(), trace: None, reports: None, output: PhantomData }
    }

    /// Bounds how long it may run, counted from its start on a worker.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Bounds how long it may wait until it is started: [`ErrorKind::QueueTimeout`](crate::error::ErrorKind::QueueTimeout) after that, and nothing of it has run.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.options.queue_timeout = Some(timeout);
        self
    }

    /// Says after which causes it is tried again, and how often.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.options.retry = Some(retry);
        self
    }

    /// Says which trace it belongs to, in the place of what the pool's [`trace_context`](crate::pool::PoolBuilder::trace_context) says.
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// The same call, and a stream of what it reports by `sky.report(value)` while it runs, on whichever workers it
    /// runs and on however many.
    ///
    /// Reports come in order, each once, and those of a try before its outcome. Read them while the call runs: when 64
    /// MiB of them are unread, a payload that has 16 MiB more waits until some are read, or the stream is dropped. Clones
    /// of the call report to the same stream, which ends when all of them have ended or are dropped; each may add its 16
    /// MiB before it waits.
    ///
    /// ```no_run
    /// # use skyward_core::{payload::PendingCompute, pool::Pool};
    /// # async fn example(pool: &Pool, train: impl Fn(u32) -> PendingCompute<f64>) -> skyward_core::error::Result<()> {
    /// #[derive(serde::Deserialize)]
    /// struct Epoch { number: u32, loss: f64 }
    ///
    /// let (call, mut reports) = train(5).reports::<Epoch>();
    /// let read = async {
    ///     while let Some(report) = reports.next().await {
    ///         let report = report?;
    ///         println!("rank {}: epoch {} has loss {}", report.rank, report.value.number, report.value.loss);
    ///     }
    ///     Ok(())
    /// };
    /// let (losses, ()) = tokio::try_join!(call.broadcast(pool), read)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reports<R>(mut self) -> (Self, Reports<R>) {
        let (sender, reports) = ReportSender::new();
        self.reports = Some(sender);
        (self, reports)
    }

    /// What is called.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The task that a pool gets.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`](crate::error::ErrorKind::Argument) when an argument cannot be serialised.
    pub fn into_task(self) -> Result<Task> {
        let task = Task::new(self.source, self.args.encode()?).with_options(self.options);
        Ok(task.with_streaming(T::STREAMING).with_trace(self.trace).with_reports(self.reports))
    }

    /// Runs it on whichever worker is free first.
    ///
    /// # Errors
    ///
    /// Whatever the task can fail with: see [`ErrorKind`](crate::error::ErrorKind).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the task, on the node too.
    pub async fn run<P: ComputePool + ?Sized>(self, pool: &P) -> Result<T> {
        self.run_on(pool, Target::Any).await
    }

    /// Runs it on this target.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`ErrorKind::NotFound`](crate::error::ErrorKind::NotFound) when the pool has no such node or rank.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the task, on the node too.
    pub async fn run_on<P: ComputePool + ?Sized>(self, pool: &P, target: Target) -> Result<T> {
        T::receive(pool.submit(self.into_task()?, target).await?).await
    }

    /// Runs it on every worker; the results come in the order of ranks. In a pool whose plugins join the workers into one world, all of them start together.
    ///
    /// # Errors
    ///
    /// The first error of any rank; the other ranks' tasks are cancelled then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the task on all ranks.
    pub async fn broadcast<P: ComputePool + ?Sized>(self, pool: &P) -> Result<Vec<T>> {
        let handles = pool.submit_all(self.into_task()?).await?;
        try_join_all(handles.into_iter().map(T::receive)).await
    }

    /// Joins another call to this one: both run at the same time.
    pub fn join<U: Output>(self, other: PendingCompute<U>) -> Join<(Self, PendingCompute<U>)> {
        Join((self, other))
    }
}

impl<T> Clone for PendingCompute<T> {
    fn clone(&self) -> Self {
        let (source, trace, reports) = (Arc::clone(&self.source), self.trace.clone(), self.reports.clone());
        Self { source, args: self.args.clone(), options: self.options, trace, reports, output: PhantomData }
    }
}

impl<T> fmt::Debug for PendingCompute<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCompute")
            .field("source", &self.source)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<T: Output, U: Output> BitAnd<PendingCompute<U>> for PendingCompute<T> {
    type Output = Join<(Self, PendingCompute<U>)>;

    fn bitand(self, other: PendingCompute<U>) -> Self::Output {
        self.join(other)
    }
}

/// `call >> &pool` is `call.run(&pool)`.
impl<'p, T: Output, P: ComputePool + ?Sized> Shr<&'p P> for PendingCompute<T> {
    type Output = BoxFuture<'p, Result<T>>;

    fn shr(self, pool: &'p P) -> Self::Output {
        Box::pin(self.run(pool))
    }
}

impl<T: Output> Join<Vec<PendingCompute<T>>> {
    /// Runs all of them at the same time; the results come in the order of the calls.
    ///
    /// # Errors
    ///
    /// The first error of any of them; the others are cancelled then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels all of them.
    pub async fn run<P: ComputePool + ?Sized>(self, pool: &P) -> Result<Vec<T>> {
        try_join_all(self.0.into_iter().map(|call| call.run(pool))).await
    }
}

macro_rules! run_tuple {
    ($($output:ident $call:ident),+) => {
        impl<$($output: Output),+> Join<($(PendingCompute<$output>,)+)> {
            /// Runs all of them at the same time.
            ///
            /// # Errors
            ///
            /// The first error of any of them; the others are cancelled then.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future cancels all of them.
            pub async fn run<Pool: ComputePool + ?Sized>(self, pool: &Pool) -> Result<($($output,)+)> {
                let ($($call,)+) = self.0;
                tokio::try_join!($($call.run(pool)),+)
            }
        }

        impl<'p, $($output: Output,)+ Pool: ComputePool + ?Sized> Shr<&'p Pool> for Join<($(PendingCompute<$output>,)+)> {
            type Output = BoxFuture<'p, Result<($($output,)+)>>;

            fn shr(self, pool: &'p Pool) -> Self::Output {
                Box::pin(self.run(pool))
            }
        }
    };
}

macro_rules! join_tuple {
    ($($output:ident $call:ident),+) => {
        impl<$($output: Output),+> Join<($(PendingCompute<$output>,)+)> {
            /// Joins one more call.
            pub fn join<More: Output>(self, more: PendingCompute<More>) -> Join<($(PendingCompute<$output>,)+ PendingCompute<More>)> {
                let ($($call,)+) = self.0;
                Join(($($call,)+ more))
            }
        }

        impl<$($output: Output,)+ More: Output> BitAnd<PendingCompute<More>> for Join<($(PendingCompute<$output>,)+)> {
            type Output = Join<($(PendingCompute<$output>,)+ PendingCompute<More>)>;

            fn bitand(self, more: PendingCompute<More>) -> Self::Output {
                self.join(more)
            }
        }
    };
}

run_tuple!(A a, B b);
run_tuple!(A a, B b, C c);
run_tuple!(A a, B b, C c, D d);
run_tuple!(A a, B b, C c, D d, E e);
run_tuple!(A a, B b, C c, D d, E e, F f);
run_tuple!(A a, B b, C c, D d, E e, F f, G g);
run_tuple!(A a, B b, C c, D d, E e, F f, G g, H h);
join_tuple!(A a, B b);
join_tuple!(A a, B b, C c);
join_tuple!(A a, B b, C c, D d);
join_tuple!(A a, B b, C c, D d, E e);
join_tuple!(A a, B b, C c, D d, E e, F f);
join_tuple!(A a, B b, C c, D d, E e, F f, G g);
