//! Spawns tasks and blocking work on the caller's runtime, within the caller's tracing span, and
//! reports their ends.

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

/// Runs when it is dropped: at the end of a task, in whichever way the task ends.
pub(crate) struct OnEnd<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
