//! Tasks, their targets, and the handles to their outcomes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::{Serialize, Serializer};
use tokio::sync::{mpsc, oneshot};

use super::{ReportSender, RetryPolicy, Source, TraceContext};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{NodeIndex, Rank, TaskId};

/// One call of a payload.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Task {
    /// The source of the payload.
    pub source: Arc<Source>,
    /// The arguments, as [`Args::encode`](super::Args::encode) returns them.
    pub args: Bytes,
    /// Whether the payload is a generator, whose items arrive one at a time.
    pub streaming: bool,
    /// Deadlines and retries.
    pub options: TaskOptions,
    /// The trace that the task belongs to. `None`: the trace from the pool's
    /// [`trace_context`](crate::pool::PoolBuilder::trace_context).
    pub trace: Option<TraceContext>,
    /// Where the reports of the payload go, in addition to the events of the pool.
    pub reports: Option<ReportSender>,
}

/// Deadlines and retries of a task. Options that are not set are those that the pool sets for all
/// its tasks: [`PoolBuilder::tasks`](crate::pool::PoolBuilder::tasks).
///
/// ```
/// # use skyward_core as skyward;
/// use std::time::Duration;
///
/// use skyward::payload::{RetryPolicy, TaskOptions};
///
/// let options = TaskOptions::default().timeout(Duration::from_secs(60)).retry(RetryPolicy::default().crash(1));
/// assert_eq!(options.queue_timeout, None);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskOptions {
    /// How long the task may run, counted from its start on the worker, without the time in the
    /// queue. `None` in the task and in the pool: no limit.
    pub timeout: Option<Duration>,
    /// How long the task may wait in the queue, each time that it waits. `None` in the task and in
    /// the pool: no limit.
    pub queue_timeout: Option<Duration>,
    /// After which causes the task is retried, and how often.
    pub retry: Option<RetryPolicy>,
}

/// Where a task runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// On the first free worker.
    #[default]
    Any,
    /// On the head's first worker, rank 0.
    Head,
    /// On a worker of this node.
    Node(NodeIndex),
    /// On this worker.
    Rank(Rank),
}

/// A value that a payload returned, in its wire form, with the rank that made it.
///
/// By serde, it is written as the value itself; a value that has no such form, such as an array, as its
/// number of bytes in words.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Value {
    /// The value as MessagePack; `docs/protocol.md` describes the form of values.
    pub bytes: Bytes,
    /// The rank that made the value.
    pub rank: Rank,
}

impl Value {
    /// A value from a rank.
    pub fn new(bytes: impl Into<Bytes>, rank: Rank) -> Self {
        Self { bytes: bytes.into(), rank }
    }

    /// Encodes a Rust value as a payload would return it, for your own implementations of
    /// [`ComputePool`](crate::compute::ComputePool).
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::ids::Rank;
    /// use skyward::payload::{Value, value};
    ///
    /// let answer = Value::encode(&vec![0.5, 0.25], Rank(0))?;
    /// assert_eq!(value::decode::<Vec<f64>>(&answer.bytes)?, [0.5, 0.25]);
    /// # Ok::<(), skyward::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Encode`] if the value cannot be serialised.
    pub fn encode<T: Serialize + ?Sized>(value: &T, rank: Rank) -> Result<Self> {
        let mut buffer = Vec::new();
        super::value::encode_into(&mut buffer, value).map_err(|error| {
            Error::new(ErrorKind::Encode, format!("the value cannot be serialised: {error}"))
                .with_context("type", std::any::type_name::<T>())
                .with_hint("values are serde types that MessagePack can represent: see the guide page on payloads")
        })?;
        Ok(Self::new(buffer, rank))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match super::value::decode::<serde_json::Value>(&self.bytes) {
            Ok(value) => value.serialize(serializer),
            Err(_) => serializer.serialize_str(&format!("a value of {} bytes", self.bytes.len())),
        }
    }
}

/// The outcome of a task: its value or its error.
pub type Outcome = Result<Value>;

/// The handle to a submitted task. If the handle is dropped before the outcome has arrived, the
/// task is cancelled.
#[derive(Debug)]
pub struct TaskHandle {
    id: TaskId,
    outcome: oneshot::Receiver<Outcome>,
    items: Option<mpsc::Receiver<Value>>,
    cancel: Option<CancelOnDrop>,
    taken: Option<OnTaken>,
    meter: Option<Meter>,
}

/// The size of the results of several tasks: about the largest of the last few.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<AtomicUsize>);

/// The other end of a [`TaskHandle`], through which a [`ComputePool`](crate::compute::ComputePool)
/// sends the outcome.
#[derive(Debug)]
pub struct TaskReply {
    outcome: oneshot::Sender<Outcome>,
}

/// Sends the items of a stream to its [`TaskHandle`].
pub type ItemSender = mpsc::Sender<Value>;

struct OnTaken(Box<dyn Fn() + Send + Sync>);

struct CancelOnDrop(Option<Box<dyn FnOnce() + Send + Sync>>);

impl TaskOptions {
    /// The same options with this bound on how long the task may run.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The same options with this bound on how long the task may wait in the queue.
    #[must_use]
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = Some(timeout);
        self
    }

    /// The same options with these retries.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The same options, with those that are not set taken from `defaults`.
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
    /// A task with default options.
    pub fn new(source: Arc<Source>, args: Bytes) -> Self {
        Self { source, args, streaming: false, options: TaskOptions::default(), trace: None, reports: None }
    }

    /// The same task with these options.
    #[must_use]
    pub fn with_options(mut self, options: TaskOptions) -> Self {
        self.options = options;
        self
    }

    /// The same task as a part of this trace.
    #[must_use]
    pub fn with_trace(mut self, trace: Option<TraceContext>) -> Self {
        self.trace = trace;
        self
    }

    /// The same task with reports that go to this sender.
    #[must_use]
    pub fn with_reports(mut self, reports: Option<ReportSender>) -> Self {
        self.reports = reports;
        self
    }

    /// The same task, with a payload that is a generator or not.
    #[must_use]
    pub fn with_streaming(mut self, streaming: bool) -> Self {
        self.streaming = streaming;
        self
    }
}

impl TaskHandle {
    /// Makes a handle and its other end. `cancel` is called if the handle is dropped before an
    /// outcome has arrived.
    pub fn new(id: TaskId, cancel: impl FnOnce() + Send + Sync + 'static) -> (Self, TaskReply) {
        let (sender, outcome) = oneshot::channel();
        let cancel = CancelOnDrop(Some(Box::new(cancel)));
        (
            Self { id, outcome, items: None, cancel: Some(cancel), taken: None, meter: None },
            TaskReply { outcome: sender },
        )
    }

    /// Makes a handle for a stream, its other end, and the sender of items. At most `window` items
    /// are under way.
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

    /// The same handle with a function that is called each time an item of the stream was taken, so
    /// that the generator can continue.
    #[must_use]
    pub fn on_taken(mut self, taken: impl Fn() + Send + Sync + 'static) -> Self {
        self.taken = Some(OnTaken(Box::new(taken)));
        self
    }

    /// The same handle with a meter that receives the result's size.
    pub(crate) fn metered(mut self, meter: Meter) -> Self {
        self.meter = Some(meter);
        self
    }

    /// The task's number in its pool.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// Waits for the outcome. The task's own deadline and the pool's end bound the wait.
    ///
    /// # Errors
    ///
    /// The error that the task failed with, or [`ErrorKind::Closed`] if the pool is gone.
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

    /// The next item of a stream, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// The error that the generator failed with, after all earlier items.
    ///
    /// # Cancel safety
    ///
    /// No item is lost when the future is dropped.
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
    /// The size of a result in bytes; `None` before the first result.
    pub(crate) fn read(&self) -> Option<usize> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    fn add(&self, bytes: usize) {
        let kept = self.read().unwrap_or_default();
        self.0.store(bytes.max(kept - kept.div_ceil(8)).saturating_add(1), Ordering::Relaxed);
    }
}

impl TaskReply {
    /// Sends the outcome. Returns `false` if the handle was dropped.
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
    async fn a_dropped_handle_cancels_its_task_unless_the_outcome_has_arrived() {
        let (handle, _reply, cancelled) = handle();
        drop(handle);
        assert!(cancelled.load(Ordering::SeqCst));

        let (handle, reply, cancelled) = self::handle();
        assert!(reply.send(Ok(Value::new(vec![1], Rank(0)))));
        assert_eq!(&handle.outcome().await.unwrap().bytes[..], &[1]);
        assert!(!cancelled.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn a_stream_yields_its_items_before_its_error() {
        let (mut handle, reply, items) = TaskHandle::stream(TaskId(1), 4, || ());
        items.send(Value::new(vec![1], Rank(0))).await.unwrap();
        drop(items);
        reply.send(Err(Error::new(ErrorKind::Raised, "half way")));
        assert!(handle.next_item().await.unwrap().is_ok());
        assert_eq!(handle.next_item().await.unwrap().unwrap_err().kind(), ErrorKind::Raised);
        assert!(handle.next_item().await.is_none());
    }

    #[tokio::test]
    async fn the_outcome_is_an_error_if_the_pool_is_gone() {
        let (handle, reply, _) = handle();
        drop(reply);
        assert_eq!(handle.outcome().await.unwrap_err().kind(), ErrorKind::Closed);
    }
}
