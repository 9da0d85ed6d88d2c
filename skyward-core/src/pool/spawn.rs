//! Spawns tasks and blocking work on the caller's runtime, within the caller's tracing span.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument;

/// Spawns a future on the caller's runtime, within the caller's span.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future.in_current_span())
}

/// Runs blocking work on a thread of its own, within the caller's span.
pub(crate) fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let span = tracing::Span::current();
    tokio::task::spawn_blocking(move || span.in_scope(work))
}
