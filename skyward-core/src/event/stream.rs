//! The stream of a pool's events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_core::stream::BoxStream;

use super::PoolEvent;

/// An item of the stream [`Events`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventItem {
    /// An event, shared by all readers.
    Event(Arc<PoolEvent>),
    /// This reader was too slow and missed this many events before the next one. The pool does not
    /// wait for slow readers.
    Missed(u64),
}

/// A stream of a pool's events, from the moment at which the stream was made to the pool's end.
pub struct Events(BoxStream<'static, EventItem>);

impl Events {
    /// Makes `Events` of any stream of items.
    pub fn new(stream: impl Stream<Item = EventItem> + Send + 'static) -> Self {
        Self(Box::pin(stream))
    }

    /// The next event, or `None` after the pool's end.
    ///
    /// # Cancel safety
    ///
    /// No event is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<EventItem> {
        std::future::poll_fn(|context| self.0.as_mut().poll_next(context)).await
    }
}

impl Stream for Events {
    type Item = EventItem;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<EventItem>> {
        self.0.as_mut().poll_next(context)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}
