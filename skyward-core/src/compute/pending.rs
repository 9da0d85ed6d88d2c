//! A call that has not been dispatched: what to run, without where.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{BitAnd, Shr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future::try_join_all;

use super::ComputePool;
use crate::error::Result;
use crate::payload::{
    Args, Output, Payload, ReportSender, Reports, RetryPolicy, Source, Target, Task, TaskOptions, TraceContext,
};

/// A call of a payload that has not been dispatched. The call describes what to run; a dispatch
/// decides where, and nothing runs before the dispatch.
///
/// A call is not a future, because only a pool can run it: write `train(5).run(pool).await`, not
/// `train(5).await`.
///
/// ```no_run
/// # use skyward_core as skyward;
/// # use skyward::{compute::PendingCompute, pool::Pool};
/// use skyward::ids::NodeIndex;
/// use skyward::payload::Target;
///
/// # async fn example(pool: &Pool, train: impl Fn(u32) -> PendingCompute<f64>) -> skyward::Result<()> {
/// let loss: f64 = train(5).run(pool).await?;                                   // on the first free worker
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

/// Several calls that run at the same time; made by [`PendingCompute::join`], `&` or [`join_all`].
#[derive(Debug, Clone)]
#[must_use = "calls run only when they are dispatched: `.run(&pool)`"]
pub struct Join<C>(C);

/// Joins calls of one type: they run at the same time, and their results are in the order of the
/// calls.
///
/// ```no_run
/// # use skyward_core as skyward;
/// # use skyward::{compute::PendingCompute, pool::Pool};
/// use skyward::compute::join_all;
///
/// # async fn example(pool: &Pool, train: impl Fn(f64) -> PendingCompute<f64>) -> skyward::Result<()> {
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

    /// Bounds how long the task may run, counted from its start on a worker.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Bounds how long the task may wait in the queue. After that it fails with
    /// [`ErrorKind::QueueTimeout`](crate::error::ErrorKind::QueueTimeout), without having been
    /// started.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.options.queue_timeout = Some(timeout);
        self
    }

    /// Sets after which causes the task is retried, and how often.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.options.retry = Some(retry);
        self
    }

    /// Sets the trace that the call belongs to, instead of the trace from the pool's
    /// [`trace_context`](crate::pool::PoolBuilder::trace_context).
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Returns the same call, and a stream of the values that the payload reports with
    /// `sky.report(value)` while it runs, on every worker that runs it.
    ///
    /// Each report arrives once and in order, and the reports of a try arrive before its outcome.
    /// Read the stream while the call runs: if 64 MiB of reports are unread, a payload that reports
    /// 16 MiB more waits until some are read, or until the stream is dropped.
    ///
    /// Clones of the call report to the same stream, which ends when all of them have ended or are
    /// dropped. Each clone may report its own 16 MiB before it waits.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// # use skyward::{compute::PendingCompute, pool::Pool};
    /// # async fn example(pool: &Pool, train: impl Fn(u32) -> PendingCompute<f64>) -> skyward::Result<()> {
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

    /// The source of the payload.
    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Converts the call into the task that a pool runs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`](crate::error::ErrorKind::Argument) if an argument cannot be
    /// serialised.
    pub fn into_task(self) -> Result<Task> {
        let task = Task::new(self.source, self.args.encode()?).with_options(self.options);
        Ok(task.with_streaming(T::STREAMING).with_trace(self.trace).with_reports(self.reports))
    }

    /// Runs the call on the first free worker.
    ///
    /// # Errors
    ///
    /// Any error that a task can fail with: see [`ErrorKind`](crate::error::ErrorKind).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the task, also on the node.
    pub async fn run<P: ComputePool + ?Sized>(self, pool: &P) -> Result<T> {
        self.run_on(pool, Target::Any).await
    }

    /// Runs the call on this target.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`ErrorKind::NotFound`](crate::error::ErrorKind::NotFound) if the
    /// pool has no such node or rank.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the task, also on the node.
    pub async fn run_on<P: ComputePool + ?Sized>(self, pool: &P, target: Target) -> Result<T> {
        T::receive(pool.submit(self.into_task()?, target).await?).await
    }

    /// Runs the call on every worker. The results are in the order of the ranks. If plugins join
    /// the workers into one world, the tasks start together.
    ///
    /// # Errors
    ///
    /// The first error of any rank. The tasks of the other ranks are then cancelled.
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

/// `a & b` is [`a.join(b)`](PendingCompute::join): both calls run at the same time.
impl<T: Output, U: Output> BitAnd<PendingCompute<U>> for PendingCompute<T> {
    type Output = Join<(Self, PendingCompute<U>)>;

    fn bitand(self, other: PendingCompute<U>) -> Self::Output {
        self.join(other)
    }
}

/// `call >> &pool` does the same as `call.run(&pool)`.
impl<'p, T: Output, P: ComputePool + ?Sized> Shr<&'p P> for PendingCompute<T> {
    type Output = BoxFuture<'p, Result<T>>;

    fn shr(self, pool: &'p P) -> Self::Output {
        Box::pin(self.run(pool))
    }
}

impl<T: Output> Join<Vec<PendingCompute<T>>> {
    /// Runs all calls at the same time. The results are in the order of the calls.
    ///
    /// # Errors
    ///
    /// The first error of any call. The other calls are then cancelled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels all calls.
    pub async fn run<P: ComputePool + ?Sized>(self, pool: &P) -> Result<Vec<T>> {
        try_join_all(self.0.into_iter().map(|call| call.run(pool))).await
    }
}

/// `joined >> &pool` does the same as `joined.run(&pool)`.
impl<'p, T: Output, P: ComputePool + ?Sized> Shr<&'p P> for Join<Vec<PendingCompute<T>>> {
    type Output = BoxFuture<'p, Result<Vec<T>>>;

    fn shr(self, pool: &'p P) -> Self::Output {
        Box::pin(self.run(pool))
    }
}

/// Makes `.await` of a call that is not dispatched an error that says how to dispatch it. The bound
/// holds for no type, so nothing calls `poll`, and the compiler shows the message of [`Dispatched`].
macro_rules! refuse_await {
    ([$($output:ident),+] $calls:ty => $results:ty) => {
        #[doc(hidden)]
        impl<$($output: Output),+> Future for $calls
        where
            Undispatched<Self>: Dispatched,
        {
            type Output = Result<$results>;

            fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
                Poll::Pending
            }
        }
    };
}

macro_rules! run_tuple {
    ($($output:ident $call:ident),+) => {
        impl<$($output: Output),+> Join<($(PendingCompute<$output>,)+)> {
            /// Runs all calls at the same time.
            ///
            /// # Errors
            ///
            /// The first error of any call. The other calls are then cancelled.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future cancels all calls.
            pub async fn run<Pool: ComputePool + ?Sized>(self, pool: &Pool) -> Result<($($output,)+)> {
                let ($($call,)+) = self.0;
                tokio::try_join!($($call.run(pool)),+)
            }
        }

        /// `joined >> &pool` does the same as `joined.run(&pool)`.
        impl<'p, $($output: Output,)+ Pool: ComputePool + ?Sized> Shr<&'p Pool> for Join<($(PendingCompute<$output>,)+)> {
            type Output = BoxFuture<'p, Result<($($output,)+)>>;

            fn shr(self, pool: &'p Pool) -> Self::Output {
                Box::pin(self.run(pool))
            }
        }

        refuse_await!([$($output),+] Join<($(PendingCompute<$output>,)+)> => ($($output,)+));
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

        /// `joined & call` adds a call that runs at the same time as the others.
        impl<$($output: Output,)+ More: Output> BitAnd<PendingCompute<More>> for Join<($(PendingCompute<$output>,)+)> {
            type Output = Join<($(PendingCompute<$output>,)+ PendingCompute<More>)>;

            fn bitand(self, more: PendingCompute<More>) -> Self::Output {
                self.join(more)
            }
        }
    };
}

refuse_await!([T] PendingCompute<T> => T);
refuse_await!([T] Join<Vec<PendingCompute<T>>> => Vec<T>);
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

impl<T: Output> From<Payload<T>> for PendingCompute<T> {
    fn from(payload: Payload<T>) -> Self {
        PendingCompute::new(payload.source, payload.args)
    }
}

/// Implemented by no type.
#[diagnostic::on_unimplemented(
    message = "a call is not a future, because only a pool can run it",
    label = "not dispatched to a pool",
    note = "keep the `.await`, and dispatch the call before it: `.run(pool).await` runs it on a free worker, `.broadcast(pool).await` on every worker"
)]
trait Dispatched {}

/// Stands for the call in the bound. For a bound on the type that is awaited itself, the compiler
/// shows the message of `IntoFuture` instead.
struct Undispatched<C>(PhantomData<C>);
