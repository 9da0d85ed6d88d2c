//! One call for each item of an iterator, with bounded memory.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::ComputePool;
use crate::error::Result;
use crate::payload::{Meter, Output, PendingCompute, Target};

/// Calls over many items; for every [`ComputePool`].
pub trait ComputePoolExt: ComputePool {
    /// Runs all calls, and gives their results in the order of the calls. The iterator is asked for a call only when there is room for it: a million items need no more
    /// memory than their results.
    ///
    /// # Errors
    ///
    /// The first error of any of them; the others are cancelled then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the calls that have not returned.
    fn map<T, I>(&self, calls: I) -> impl Future<Output = Result<Vec<T>>> + Send
    where
        T: Output,
        I: IntoIterator<Item = PendingCompute<T>, IntoIter: Send>,
    {
        let mut mapped = self.map_unordered(calls);
        async move {
            let mut results: Vec<Option<T>> = Vec::new();
            while let Some((index, result)) = mapped.next().await {
                if results.len() <= index {
                    results.resize_with(index + 1, || None);
                }
                results[index] = Some(result?);
            }
            Ok(results.into_iter().flatten().collect())
        }
    }

    /// Runs all calls, and gives each result as it comes, with the index of its call. A reader that is slow holds the calls up: only so many are under way.
    fn map_unordered<T, I>(&self, calls: I) -> Mapped<'_, Self, I::IntoIter, T>
    where
        T: Output,
        I: IntoIterator<Item = PendingCompute<T>>,
    {
        let least = self.status().workers.len().saturating_mul(PER_WORKER).clamp(LEAST, WINDOW);
        Mapped {
            pool: self,
            calls: Some(calls.into_iter()),
            next: 0,
            bytes: 0,
            least,
            results: Meter::default(),
            running: FuturesUnordered::new(),
        }
    }
}

impl<P: ComputePool + ?Sized> ComputePoolExt for P {}

/// A stream of results as they come, each with the index of its call; made by [`ComputePoolExt::map_unordered`].
pub struct Mapped<'p, P: ?Sized, I, T> {
    pool: &'p P,
    calls: Option<I>,
    next: usize,
    /// Of the arguments under way.
    bytes: usize,
    /// Calls under way that keep the workers busy, however large their values are.
    least: usize,
    /// How large results are, so that no more calls are under way than a reader has room for that is slow.
    results: Meter,
    running: FuturesUnordered<BoxFuture<'p, (usize, usize, Result<T>)>>,
}

impl<P, I, T> Stream for Mapped<'_, P, I, T>
where
    P: ComputePool + ?Sized,
    I: Iterator<Item = PendingCompute<T>>,
    T: Output,
{
    type Item = (usize, Result<T>);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while this.running.len() < this.window() {
            let Some(call) = this.calls.as_mut().and_then(Iterator::next) else {
                this.calls = None;
                break;
            };
            let (index, pool, results) = (this.next, this.pool, this.results.clone());
            this.next += 1;
            let task = call.into_task();
            let bytes = task.as_ref().map_or(0, |task| task.args.len());
            this.bytes += bytes;
            this.running.push(Box::pin(async move {
                let result = match task {
                    Ok(task) => match pool.submit(task, Target::Any).await {
                        Ok(handle) => T::receive(handle.metered(results)).await,
                        Err(error) => Err(error),
                    },
                    Err(error) => Err(error),
                };
                (index, bytes, result)
            }));
        }
        match this.running.poll_next_unpin(context) {
            Poll::Ready(Some((index, bytes, result))) => {
                this.bytes -= bytes;
                Poll::Ready(Some((index, result)))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<P: ?Sized, I, T> Mapped<'_, P, I, T> {
    /// Calls that may be under way: many while they and their results are small.
    fn window(&self) -> usize {
        match self.results.read() {
            Some(bytes) if self.bytes < WINDOW_BYTES => (WINDOW_BYTES / bytes.max(1)).clamp(self.least, WINDOW),
            // Nothing is known of the results, or the arguments are large.
            _ => self.least,
        }
    }
}

/// Nothing in it is pinned.
impl<P: ?Sized, I, T> Unpin for Mapped<'_, P, I, T> {}

impl<P: ?Sized, I, T> fmt::Debug for Mapped<'_, P, I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

/// Calls under way at once.
const WINDOW: usize = 1024;
/// Bytes of arguments, and of results, under way at once, beyond which there are no more calls than keep the workers busy.
const WINDOW_BYTES: usize = 64 << 20;
const PER_WORKER: usize = 2;
const LEAST: usize = 4;
