//! Calls of code that is not the pool's: subscribers of `tracing`, and recorders of metrics.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Makes such a call. A panic there is not the pool's: the panic hook has reported it, and it costs
/// the effect of this call alone.
pub(crate) fn foreign(call: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(call));
}
