//! The events of a pool that has not been started yet.

use std::sync::Arc;

use crate::event::Events;
use crate::pool::tasks::events::EventBuffer;

/// The buffer of the events of the pool that a builder starts. A clone of the builder starts another
/// pool, so it has a buffer of its own.
#[derive(Debug, Default)]
pub(super) struct Watched(Arc<EventBuffer>);

impl Watched {
    /// A reader of the pool's events from the first one.
    pub(super) fn events(&self) -> Events {
        self.0.subscribe()
    }

    /// The buffer, for the pool.
    pub(super) fn into_buffer(self) -> Arc<EventBuffer> {
        self.0
    }
}

impl Clone for Watched {
    fn clone(&self) -> Self {
        Self::default()
    }
}
