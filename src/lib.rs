//! Ephemeral accelerator compute for Rust services.
//!
//! Declare a Python payload with [`compute`], start a [`Pool`], and call it: typed results come back, and when the scope ends the machines are gone.

pub use skyward_core::*;

#[cfg(feature = "macros")]
pub use skyward_macros::compute;
#[cfg(feature = "plugins")]
pub use skyward_plugins as plugins;

/// What the macro's output names; not part of the public API.
#[doc(hidden)]
pub mod __private {
    pub use skyward_core::payload::{Args, ComputeFn, Payload, PendingCompute, Source, StaticSource};
    pub use std::sync::Arc;
}
