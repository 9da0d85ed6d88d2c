//! Values that a payload reports while it runs, with `sky.report(value)`.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::task::Value;
use super::value;
use crate::error::Result;
use crate::ids::{Attempt, NodeIndex, Rank, TaskId};

/// A value that a payload or a hook has reported with `sky.report(value)`.
///
/// [`PendingCompute::reports`](crate::compute::PendingCompute::reports) returns the reports of one
/// call, with values of a Rust type. [`PoolEvent::Report`](crate::event::PoolEvent::Report) has the
/// reports of a whole pool, with values in their wire form.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Report<T = Value> {
    /// The task that reported the value. `None`: a hook around the app reported it, outside of any
    /// task.
    pub task: Option<TaskId>,
    /// The number of the try at the task. A task that is retried reports again from its start.
    pub attempt: Attempt,
    /// The worker's node.
    pub node: NodeIndex,
    /// The worker's rank.
    pub rank: Rank,
    /// The reported value.
    pub value: T,
}

/// A stream of the reports of a call, as they arrive; made by
/// [`PendingCompute::reports`](crate::compute::PendingCompute::reports).
///
/// The stream ends when the call has ended on all workers and all reports were read.
pub struct Reports<T> {
    reports: mpsc::UnboundedReceiver<Report>,
    unread: Arc<Unread>,
    value: PhantomData<fn() -> T>,
}

/// The sending end of [`Reports`], which belongs to a [`Task`](super::Task).
#[derive(Clone)]
pub struct ReportSender {
    reports: mpsc::UnboundedSender<Report>,
    unread: Arc<Unread>,
}

/// The reports that were sent and not read.
#[derive(Default)]
struct Unread {
    bytes: AtomicUsize,
    /// Functions to call once there is room again.
    waiting: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

/// How many bytes of reports may be unread before the client takes no more reports from the
/// workers.
pub(crate) const MOST_UNREAD: usize = 64 << 20;

impl Report {
    pub(crate) fn new(task: Option<TaskId>, attempt: Attempt, node: NodeIndex, rank: Rank, value: Value) -> Self {
        Self { task, attempt, node, rank, value }
    }

    /// Decodes the value to a Rust type.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`](crate::error::ErrorKind::Decode) if the value does not fit the type.
    pub fn decode<T: DeserializeOwned + 'static>(&self) -> Result<Report<T>> {
        let Self { task, attempt, node, rank, .. } = *self;
        let value = value::decode(&self.value.bytes).map_err(|error| error.with_context("rank", rank))?;
        Ok(Report { task, attempt, node, rank, value })
    }
}

impl ReportSender {
    /// Makes both ends of a stream of reports.
    pub fn new<T>() -> (Self, Reports<T>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let unread = Arc::new(Unread::default());
        let reports = Reports { reports: receiver, unread: Arc::clone(&unread), value: PhantomData };
        (Self { reports: sender, unread }, reports)
    }

    /// Sends a report. The report is dropped if the stream [`Reports`] was dropped.
    pub fn send(&self, report: Report) {
        let bytes = weight(&report);
        self.unread.bytes.fetch_add(bytes, Ordering::SeqCst);
        if self.reports.send(report).is_err() {
            self.unread.bytes.fetch_sub(bytes, Ordering::SeqCst);
        }
    }

    /// Calls `there_is_room` once there is room for more reports. Returns `false`, and calls
    /// nothing, if there is room already or the stream was dropped.
    pub(crate) fn when_read(&self, there_is_room: impl FnOnce() + Send + 'static) -> bool {
        let mut waiting = self.unread.lock();
        // The reader changes the number first, and then takes the waiting functions under this
        // lock.
        if self.reports.is_closed() || self.unread.bytes.load(Ordering::SeqCst) < MOST_UNREAD {
            return false;
        }
        waiting.push(Box::new(there_is_room));
        true
    }
}

impl<T: DeserializeOwned + 'static> Reports<T> {
    /// The next report, or `None` when the call has ended on all workers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Decode`](crate::error::ErrorKind::Decode) for a value that does not fit the
    /// type; the stream continues after it. If the call itself fails, the call returns the error,
    /// not this stream.
    ///
    /// # Cancel safety
    ///
    /// No report is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Report<T>>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl<T: DeserializeOwned + 'static> Stream for Reports<T> {
    type Item = Result<Report<T>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let received = self.reports.poll_recv(context);
        if let Poll::Ready(Some(report)) = &received {
            self.unread.take(weight(report));
        }
        received.map(|report| report.map(|report| report.decode()))
    }
}

impl<T> Drop for Reports<T> {
    fn drop(&mut self) {
        self.reports.close();
        self.unread.release();
    }
}

impl Unread {
    fn take(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if before >= MOST_UNREAD && before - bytes < MOST_UNREAD {
            self.release();
        }
    }

    fn release(&self) {
        let waiting = std::mem::take(&mut *self.lock());
        for there_is_room in waiting {
            there_is_room();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Box<dyn FnOnce() + Send>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many bytes a report counts as: its value and the struct itself, so that empty values count
/// too.
fn weight(report: &Report) -> usize {
    report.value.bytes.len() + size_of::<Report>()
}

impl<T> fmt::Debug for Reports<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").field("unread_bytes", &self.unread.bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReportSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportSender").field("unread_bytes", &self.unread.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::error::ErrorKind;

    fn report(value: &(impl serde::Serialize + ?Sized)) -> Report {
        let value = Value::encode(value, Rank(1)).unwrap();
        Report::new(Some(TaskId(7)), Attempt(2), NodeIndex(0), Rank(1), value)
    }

    #[tokio::test]
    async fn reports_come_in_order_and_end_with_the_last_sender() {
        let (sender, mut reports) = ReportSender::new::<f64>();
        let other = sender.clone();
        sender.send(report(&0.5));
        other.send(report("no number"));
        other.send(report(&0.25));
        drop((sender, other));
        let first = reports.next().await.unwrap().unwrap();
        assert_eq!(first.task, Some(TaskId(7)));
        assert_eq!(first.attempt, Attempt(2));
        assert_eq!(first.rank, Rank(1));
        assert_eq!(first.value, 0.5);
        assert_eq!(reports.next().await.unwrap().unwrap_err().kind(), ErrorKind::Decode);
        assert_eq!(reports.next().await.unwrap().unwrap().value, 0.25);
        assert!(reports.next().await.is_none());
    }

    #[tokio::test]
    async fn waiting_functions_are_called_once_when_there_is_room_or_the_stream_is_dropped() {
        let large = report(&vec![0_u8; MOST_UNREAD / 2]);
        for is_read in [true, false] {
            let called = Arc::new(AtomicU32::new(0));
            let (sender, mut reports) = ReportSender::new::<serde::de::IgnoredAny>();
            let wait = || {
                let called = Arc::clone(&called);
                sender.when_read(move || {
                    called.fetch_add(1, Ordering::SeqCst);
                })
            };
            sender.send(large.clone());
            assert!(!wait(), "there is room");
            sender.send(large.clone());
            assert!(wait());
            assert_eq!(called.load(Ordering::SeqCst), 0);
            if is_read {
                reports.next().await.unwrap().unwrap();
                reports.next().await.unwrap().unwrap();
                assert!(!wait());
            }
            drop(reports);
            assert_eq!(called.load(Ordering::SeqCst), 1);
            assert!(!wait(), "the stream was dropped");
            sender.send(large.clone());
        }
    }
}
