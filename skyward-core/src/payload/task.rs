//! A call on its way: the task, where it goes, and the handle to its outcome.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use super::{ReportSender, RetryPolicy, Source, TraceContext};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{NodeIndex, Rank, TaskId};

/// One call of a payload.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Task {
    /// What is called.
    pub source: Arc<Source>,
    /// Its arguments, as [`Args::encode`](super::Args::encode) gives them.
    pub args: Bytes,
    /// Whether the payload is a generator, whose items arrive one by one.
    pub streaming: bool,
    /// Deadlines and retries.
    pub options: TaskOptions,
    /// The trace that it belongs to. None: the pool's [`trace_context`](crate::pool::PoolBuilder::trace_context) says.
    pub trace: Option<TraceContext>,
    /// Where what it reports goes, beside the events of the pool.
    pub reports: Option<ReportSender>,
}

/// Deadlines and retries of a task. What is not said is as the pool says for all its tasks: [`PoolBuilder::tasks`](crate::pool::PoolBuilder::tasks).
///
/// ```
/// use std::time::Duration;
/// use skyward_core::payload::{RetryPolicy, TaskOptions};
///
/// let options = TaskOptions::default().timeout(Duration::from_secs(60)).retry(RetryPolicy::default().crash(1));
/// assert_eq!(options.queue_timeout, None);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskOptions {
    /// How long it may run, counted from its start on the worker; the time in the queue is not counted. None: without end.
    pub timeout: Option<Duration>,
    /// How long it may wait until it is started, each time it waits. None: without end.
    pub queue_timeout: Option<Duration>,
    /// What is tried again.
    pub retry: Option<RetryPolicy>,
}

/// Where a task runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// On whichever worker is free first.
    #[default]
    Any,
    /// On the head's first worker, rank 0.
    Head,
    /// On a worker of this node.
    Node(NodeIndex),
    /// On this worker.
    Rank(Rank),
}

/// A value that a payload returned, in its wire form, with where it comes from.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Value {
    /// MessagePack, as `docs/protocol.md` describes values.
    pub bytes: Bytes,
    /// The rank that made it.
    pub rank: Rank,
}

impl Value {
    /// A value from a rank.
    pub fn new(bytes: impl Into<Bytes>, rank: Rank) -> Self {
        Self { bytes: bytes.into(), rank }
    }

    /// A value of Rust, as a payload would return it; for pools of your own.
    ///
    /// ```
    /// use skyward_core::ids::Rank;
    /// use skyward_core::payload::{Value, value};
    ///
    /// let answer = Value::encode(&vec![0.5, 0.25], Rank(0))?;
    /// assert_eq!(value::decode::<Vec<f64>>(&answer.bytes)?, [0.5, 0.25]);
    /// # Ok::<(), skyward_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Encode`] when it cannot be serialised.
    pub fn encode<T: Serialize + ?Sized>(value: &T, rank: Rank) -> Result<Self> {
        let mut buffer = Vec::new();
        super::value::encode_into(&mut buffer, value).map_err(|error| {
            Error::new(ErrorKind::Encode, format!("the value cannot be serialised: {error}"))
                .with_context("type", std::any::type_name::<T>())
                .with_hint("values are serde types that MessagePack can hold: see the guide page on payloads")
        })?;
        Ok(Self::new(buffer, rank))
    }
}

/// How a task ended.
pub type Outcome = Result<Value>;

/// The handle to a submitted task. Dropping it before the outcome has come cancels the task.
#[derive(Debug)]
pub struct TaskHandle {
    id: TaskId,
    outcome: oneshot::Receiver<Outcome>,
    items: Option<mpsc::Receiver<Value>>,
    cancel: Option<CancelOnDrop>,
    taken: Option<OnTaken>,
    meter: Option<Meter>,
}

/// How large the results of some tasks are: as the largest of the last few.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<AtomicUsize>);

/// The other end of a [`TaskHandle`]: what a [`ComputePool`](crate::pool::ComputePool) answers through.
#[derive(Debug)]
pub struct TaskReply {
    outcome: oneshot::Sender<Outcome>,
}

/// Sends the items of a stream to its [`TaskHandle`].
pub type ItemSender = mpsc::Sender<Value>;

struct OnTaken(Box<dyn Fn() + Send + Sync>);

struct CancelOnDrop(Option<Box<dyn FnOnce() + Send + Sync>>);

impl TaskOptions {
    /// The same with this bound on how long it may run.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The same with this bound on how long it may wait until it is started.
    #[must_use]
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = Some(timeout);
        self
    }

    /// The same with these retries.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The same, with what it does not say taken from `defaults`.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            timeout: self.timeout.or(defaults.timeout),
            queue_timeout: self.queue_timeout.or(defaults.queue_timeout),
            retry: self.retry.or(defaults.retry),
        }
    }
}

impl Task {
    /// A call with default options.
    pub fn new(source: Arc<Source>, args: Bytes) -> Self {
        Self { source, args, streaming: false, options: TaskOptions::default(), trace: None, reports: None }
    }

    /// The same with these options.
    #[must_use]
    pub fn with_options(mut self, options: TaskOptions) -> Self {
        self.options = options;
        self
    }

    /// The same as a part of this trace.
    #[must_use]
    pub fn with_trace(mut self, trace: Option<TraceContext>) -> Self {
        self.trace = trace;
        self
    }

    /// The same with reports that go here.
    #[must_use]
    pub fn with_reports(mut self, reports: Option<ReportSender>) -> Self {
        self.reports = reports;
        self
    }

    /// The same as a generator, or not.
    #[must_use]
    pub fn with_streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }
}

impl TaskHandle {
    /// A handle and its other end. `cancel` is called when the handle is dropped before an outcome has come.
    pub fn new(id: TaskId, cancel: impl FnOnce() + Send + Sync + 'static) -> (Self, TaskReply) {
        let (sender, outcome) = oneshot::channel();
        let cancel = CancelOnDrop(Some(Box::new(cancel)));
        (
            Self { id, outcome, items: None, cancel: Some(cancel), taken: None, meter: None },
            TaskReply { outcome: sender },
        )
    }

    /// The same for a stream: at most `window` items are on their way.
    pub fn stream(
        id: TaskId,
        window: usize,
        cancel: impl FnOnce() + Send + Sync + 'static,
    ) -> (Self, TaskReply, ItemSender) {
        let (sender, items) = mpsc::channel(window);
        let (mut handle, reply) = Self::new(id, cancel);
        handle.items = Some(items);
        (handle, reply, sender)
    }

    /// The same, with something that is called each time an item of the stream was taken, so that the generator can be let go on.
    #[must_use]
    pub fn on_taken(mut self, taken: impl Fn() + Send + Sync + 'static) -> Self {
        self.taken = Some(OnTaken(Box::new(taken)));
        self
    }

    /// The same, with a meter that is told of the result's size.
    pub(crate) fn metered(mut self, meter: Meter) -> Self {
        self.meter = Some(meter);
        self
    }

    /// The task's number in its pool.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Waits for the outcome. The pool bounds the wait by the task's own deadline and by its own end.
    ///
    /// # Errors
    ///
    /// How the task failed, or [`ErrorKind::Closed`] when the pool is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the handle, which cancels the task.
    pub async fn outcome(mut self) -> Outcome {
        let outcome = (&mut self.outcome).await;
        self.disarm();
        if let (Some(meter), Ok(Ok(value))) = (&self.meter, &outcome) {
            meter.add(value.bytes.len());
        }
        outcome.unwrap_or_else(|_| Err(gone()))
    }

    /// The next item of a stream; `None` after the last one.
    ///
    /// # Errors
    ///
    /// How the generator failed, after the items that came before.
    ///
    /// # Cancel safety
    ///
    /// No item is lost.
    pub async fn next_item(&mut self) -> Option<Outcome> {
        if let Some(items) = &mut self.items {
            if let Some(item) = items.recv().await {
                if let Some(taken) = &self.taken {
                    taken.0();
                }
                return Some(Ok(item));
            }
            self.items = None;
        }
        self.cancel.as_ref()?;
        let outcome = (&mut self.outcome).await;
        self.disarm();
        match outcome {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(Err(error)),
            Err(_) => Some(Err(gone())),
        }
    }

    fn disarm(&mut self) {
        if let Some(mut cancel) = self.cancel.take() {
            cancel.0 = None;
        }
    }
}

impl Meter {
    /// Bytes of a result, where one has come.
    pub(crate) fn read(&self) -> Option<usize> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    fn add(&self, bytes: usize) {
        let kept = self.read().unwrap_or_default();
        self.0.store(bytes.max(kept - kept.div_ceil(8)).saturating_add(1), Ordering::Relaxed);
    }
}

impl TaskReply {
    /// Gives the outcome. It is `false` when nobody waits any more.
    pub fn send(self, outcome: Outcome) -> bool {
        self.outcome.send(outcome).is_ok()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.0.take() {
            cancel();
        }
    }
}

impl fmt::Debug for OnTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnTaken")
    }
}

impl fmt::Debug for CancelOnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CancelOnDrop")
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Closed, "the pool ended before the task had an outcome")
        .with_hint("await the tasks inside the pool's scope")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn handle() -> (TaskHandle, TaskReply, Arc<AtomicBool>) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cancelled);
        let (handle, reply) = TaskHandle::new(TaskId(1), move || flag.store(true, Ordering::SeqCst));
        (handle, reply, cancelled)
    }

    #[tokio::test]
    async fn a_dropped_handle_cancels_and_an_answered_one_does_not() {
        let (handle, _reply, cancelled) = handle();
        drop(handle);
        assert!(cancelled.load(Ordering::SeqCst));

        let (handle, reply, cancelled) = self::handle();
        assert!(reply.send(Ok(Value::new(vec![1], Rank(0)))));
        assert_eq!(&handle.outcome().await.unwrap().bytes[..], &[1]);
        assert!(!cancelled.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_stream_gives_its_items_before_its_error() {
        let (mut handle, reply, items) = TaskHandle::stream(TaskId(1), 4, || ());
        items.send(Value::new(vec![1], Rank(0))).await.unwrap();
        drop(items);
        reply.send(Err(Error::new(ErrorKind::Remote, "half way")));
        assert!(handle.next_item().await.unwrap().is_ok());
        assert_eq!(handle.next_item().await.unwrap().unwrap_err().kind(), ErrorKind::Remote);
        assert!(handle.next_item().await.is_none());
    }

    #[tokio::test]
    async fn a_lost_pool_is_an_error_and_no_hang() {
        let (handle, reply, _) = handle();
        drop(reply);
        assert_eq!(handle.outcome().await.unwrap_err().kind(), ErrorKind::Closed);
    }
}
