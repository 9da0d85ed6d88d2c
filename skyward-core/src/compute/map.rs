//! One call for each item of an iterator, with bounded memory.

use std::borrow::Borrow;
use std::future::{Future, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::{ComputePool, PendingCompute};
use crate::error::Result;
use crate::payload::{Meter, Output, Target, TaskHandle};

/// Runs many calls on a pool. Every [`ComputePool`] implements it.
pub trait ComputePoolExt: ComputePool {
    /// Runs all calls and returns their results in the order of the calls.
    ///
    /// The pool takes the next call from the iterator only when it has room for the call, so a
    /// million calls need no more memory than their results.
    ///
    /// # Errors
    ///
    /// The first error of any call. The other calls are then cancelled.
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

    /// Runs all calls and yields each result as it arrives, with the index of its call.
    ///
    /// The number of calls under way is bounded, so a slow reader of the stream delays further
    /// calls. The stream borrows the pool. A stream that leaves the function, such as the body of
    /// an HTTP response, comes from [`into_map_unordered`](Self::into_map_unordered).
    ///
    /// A reader may run other calls on the same pool between two results: while the pool's queue is
    /// full, the stream waits there with one call. Such a reader needs a
    /// [`max_queued`](crate::spec::Limits::max_queued) above the number of streams that it holds,
    /// because each stream may keep room for one call until it is read again.
    ///
    /// # Errors
    ///
    /// The stream yields the error of a call that fails, and continues with the other calls.
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream cancels the calls that have not returned.
    fn map_unordered<T, I>(&self, calls: I) -> impl Stream<Item = (usize, Result<T>)> + Send + Unpin
    where
        T: Output,
        I: IntoIterator<Item = PendingCompute<T>, IntoIter: Send>,
    {
        Mapped::<Self, _, _, _>::new(self, calls)
    }

    /// The same as [`map_unordered`](Self::map_unordered) with a handle of its own, so that the
    /// stream may outlive the function that makes it. The pool lives at least as long as the
    /// stream.
    ///
    /// ```
    /// use futures_core::Stream;
    /// # use skyward_core as skyward;
    /// # use skyward::compute::{ComputePoolExt, PendingCompute};
    /// # use skyward::{Result, pool::Pool};
    /// # fn score(text: String) -> PendingCompute<f64> { unimplemented!() }
    ///
    /// fn scores(pool: &Pool, texts: Vec<String>) -> impl Stream<Item = (usize, Result<f64>)> + Send + 'static {
    ///     pool.clone().into_map_unordered(texts.into_iter().map(score))
    /// }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the stream cancels the calls that have not returned.
    fn into_map_unordered<'p, T, I>(self, calls: I) -> impl Stream<Item = (usize, Result<T>)> + Send + Unpin
    where
        Self: Sized + Clone + 'p,
        T: Output,
        I: IntoIterator<Item = PendingCompute<T>, IntoIter: Send>,
    {
        Mapped::<'p, Self, _, _, _>::new(self, calls)
    }
}

impl<P: ComputePool + ?Sized> ComputePoolExt for P {}

/// A stream of results as they come, each with the index of its call.
struct Mapped<'h, P: ?Sized, H, I, T> {
    /// The pool `P`, borrowed or owned.
    handle: H,
    calls: Option<I>,
    next: usize,
    /// Bytes of the arguments under way.
    bytes: usize,
    /// The number of calls under way that keeps the workers busy, whatever the size of their
    /// values.
    least: usize,
    /// The size of the last results. It bounds the calls under way, because their results wait in
    /// memory for a slow reader.
    results: Meter,
    /// The call that the pool is taking, with its index and the bytes of its arguments. One at a
    /// time: a pool reserves room in its queue for calls that wait there, also while nobody reads
    /// the stream.
    submitting: Option<(usize, usize, BoxFuture<'h, Result<TaskHandle>>)>,
    running: FuturesUnordered<BoxFuture<'h, (usize, usize, Result<T>)>>,
    pool: PhantomData<fn(&P)>,
}

impl<P, H, I, T> Mapped<'_, P, H, I, T>
where
    P: ComputePool + ?Sized,
    H: Borrow<P>,
{
    fn new(handle: H, calls: impl IntoIterator<IntoIter = I>) -> Self {
        Self {
            least: least(handle.borrow()),
            handle,
            calls: Some(calls.into_iter()),
            next: 0,
            bytes: 0,
            results: Meter::default(),
            submitting: None,
            running: FuturesUnordered::new(),
            pool: PhantomData,
        }
    }
}

impl<'h, P, H, I, T> Mapped<'h, P, H, I, T>
where
    P: ComputePool + ?Sized,
    H: Borrow<P> + Clone + Send + 'h,
    I: Iterator<Item = PendingCompute<T>>,
    T: Output,
{
    /// Asks the pool to take the next call, if there is one.
    fn begin_next(&mut self) {
        let Some(call) = self.calls.as_mut().and_then(Iterator::next) else {
            self.calls = None;
            return;
        };
        let (index, handle, task) = (self.next, self.handle.clone(), call.into_task());
        self.next += 1;
        let bytes = task.as_ref().map_or(0, |task| task.args.len());
        self.bytes += bytes;
        let taken = async move { handle.borrow().submit(task?, Target::Any).await };
        self.submitting = Some((index, bytes, Box::pin(taken)));
    }

    /// Submits calls until as many are under way as may be, or the pool has no room.
    fn submit_calls(&mut self, context: &mut Context<'_>) {
        if self.running.len() >= self.window() {
            // The pool may have been resized.
            self.least = least(self.handle.borrow());
        }
        loop {
            if self.submitting.is_none() && self.running.len() < self.window() {
                self.begin_next();
            }
            let Some((index, bytes, taken)) = &mut self.submitting else { return };
            let Poll::Ready(taken) = taken.poll_unpin(context) else { return };
            let (index, bytes, results) = (*index, *bytes, self.results.clone());
            self.submitting = None;
            self.running.push(match taken {
                Ok(running) => Box::pin(async move { (index, bytes, T::receive(running.metered(results)).await) }),
                Err(error) => Box::pin(ready((index, bytes, Err(error)))),
            });
        }
    }

    /// Removes a call that has ended from the calls under way, and returns what the stream yields.
    fn yielded(&mut self, (index, bytes, result): (usize, usize, Result<T>)) -> (usize, Result<T>) {
        self.bytes -= bytes;
        (index, result)
    }
}

impl<'h, P, H, I, T> Stream for Mapped<'h, P, H, I, T>
where
    P: ComputePool + ?Sized,
    H: Borrow<P> + Clone + Send + 'h,
    I: Iterator<Item = PendingCompute<T>>,
    T: Output,
{
    type Item = (usize, Result<T>);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        // Calls go out in bursts: a worker that gets them one by one is woken for each.
        if this.running.len() > this.window() - this.window() / BURSTS
            && let Poll::Ready(Some(ended)) = this.running.poll_next_unpin(context)
        {
            return Poll::Ready(Some(this.yielded(ended)));
        }
        this.submit_calls(context);
        match this.running.poll_next_unpin(context) {
            Poll::Ready(Some(ended)) => Poll::Ready(Some(this.yielded(ended))),
            Poll::Ready(None) if this.submitting.is_none() => Poll::Ready(None),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<P: ?Sized, H, I, T> Mapped<'_, P, H, I, T> {
    /// How many calls may be under way: many if their arguments and results are small.
    fn window(&self) -> usize {
        match self.results.read() {
            Some(bytes) if self.bytes < WINDOW_BYTES => (WINDOW_BYTES / bytes.max(1)).clamp(self.least, WINDOW),
            // The size of the results is not known yet, or the arguments are large.
            _ => self.least,
        }
    }
}

/// The number of calls under way that keeps the workers busy that the pool may have.
fn least<P: ComputePool + ?Sized>(pool: &P) -> usize {
    pool.most_workers().saturating_mul(PER_WORKER).clamp(LEAST, WINDOW)
}

/// No field is pinned.
impl<P: ?Sized, H, I, T> Unpin for Mapped<'_, P, H, I, T> {}

/// The most calls under way at once.
const WINDOW: usize = 1024;
/// A burst replaces one of so many of the calls under way, so that the others keep the workers busy.
const BURSTS: usize = 8;
/// Bytes of arguments, and of results, under way at once. Above this size, only as many calls are
/// under way as keep the workers busy.
const WINDOW_BYTES: usize = 64 << 20;
/// Calls under way for each worker that keep the workers busy.
const PER_WORKER: usize = 2;
/// The fewest calls under way.
const LEAST: usize = 4;
