//! Converts a task's outcome to the Rust type of the payload's result.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use serde::de::DeserializeOwned;

use super::fit::{self, Structure};
use super::task::{TaskHandle, Value};
use super::value;
use crate::error::Result;

/// A type that a `#[skyward::compute]` function may return: any type that serde can deserialise, or
/// [`Streaming`] of such a type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot come back from a payload",
    note = "derive `serde::Deserialize` for it; a payload's result owns its data: no references"
)]
pub trait Output: Sized + Send + 'static {
    /// Whether the payload is a generator.
    const STREAMING: bool;

    /// Waits for the result of a task.
    ///
    /// # Errors
    ///
    /// The error that the task failed with, or
    /// [`ErrorKind::Decode`](crate::error::ErrorKind::Decode) if the result does not fit the type.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the task.
    fn receive(handle: TaskHandle) -> BoxFuture<'static, Result<Self>>;

    /// Checks that a value of this structure, which the Python function `function` returns, has the
    /// fields that the type requires.
    #[doc(hidden)]
    fn check_structure(function: &str, structure: Structure) -> Result<()> {
        let _ = (function, structure);
        Ok(())
    }
}

impl<T: DeserializeOwned + Send + 'static> Output for T {
    const STREAMING: bool = false;

    fn receive(handle: TaskHandle) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move { decode(handle.outcome().await?) })
    }

    fn check_structure(function: &str, structure: Structure) -> Result<()> {
        fit::check::<T>(function, structure)
    }
}

/// A stream of the items of a Python generator, as they arrive. The generator continues only while
/// its items are taken from the stream, and is closed when the stream is dropped.
pub struct Streaming<T> {
    next: BoxFuture<'static, (TaskHandle, Option<Result<Value>>)>,
    done: bool,
    item: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> Streaming<T> {
    /// The next item, or `None` after the last one.
    ///
    /// # Errors
    ///
    /// The error that the generator failed with, after all earlier items.
    /// [`ErrorKind::Decode`](crate::error::ErrorKind::Decode) for an item that does not fit the
    /// type; the stream continues after it.
    ///
    /// # Cancel safety
    ///
    /// No item is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Result<T>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Collects all remaining items.
    ///
    /// # Errors
    ///
    /// The error that the generator failed with, or that of the first item that does not fit the
    /// type.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the generator, and the items that were taken so far are lost.
    pub async fn collect(mut self) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while let Some(item) = self.next().await {
            items.push(item?);
        }
        Ok(items)
    }
}

impl<T: DeserializeOwned + Send + 'static> Output for Streaming<T> {
    const STREAMING: bool = true;

    fn receive(handle: TaskHandle) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move { Ok(Self { next: next_item(handle), done: false, item: PhantomData }) })
    }

    /// The annotation of a generator has the structure of a list, whose element is the structure of
    /// an item.
    fn check_structure(function: &str, structure: Structure) -> Result<()> {
        match structure {
            Structure::List(item) => fit::check::<T>(function, *item),
            _ => Ok(()),
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> Stream for Streaming<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.done {
            return Poll::Ready(None);
        }
        let Poll::Ready((handle, item)) = self.next.as_mut().poll(context) else { return Poll::Pending };
        match item {
            Some(Ok(value)) => {
                self.next = next_item(handle);
                Poll::Ready(Some(decode(value)))
            }
            Some(Err(error)) => {
                self.done = true;
                Poll::Ready(Some(Err(error)))
            }
            None => {
                self.done = true;
                Poll::Ready(None)
            }
        }
    }
}

impl<T> fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").field("done", &self.done).finish()
    }
}

fn next_item(mut handle: TaskHandle) -> BoxFuture<'static, (TaskHandle, Option<Result<Value>>)> {
    Box::pin(async move {
        let item = handle.next_item().await;
        (handle, item)
    })
}

fn decode<T: DeserializeOwned + 'static>(value: Value) -> Result<T> {
    value::decode(&value.bytes).map_err(|error| error.with_context("rank", value.rank))
}
