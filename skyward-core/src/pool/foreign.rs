//! Calls of code that is not the pool's: subscribers of `tracing`, recorders of metrics, and the
//! wakers of callers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

/// Makes such a call. A panic there is not the pool's: the panic hook has reported it, and it costs
/// the effect of this call alone.
pub(crate) fn foreign(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// Gives a caller its answer, which wakes it.
pub(crate) fn answer<T>(caller: oneshot::Sender<T>, answer: T) {
    foreign(|| drop(caller.send(answer)));
}
