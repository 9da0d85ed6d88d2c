//! Ephemeral accelerator compute for Rust services.
//!
//! Declare a Python payload with [`compute`], start a [`Pool`](pool::Pool), and call it: typed results come back, and when the scope ends the machines are gone.

#[cfg(doctest)]
mod doctests;

pub use skyward_core::*;

/// ```
/// use skyward::payload::{Payload, PendingCompute, Streaming};
///
/// #[derive(serde::Deserialize)]
/// struct Report { x: f64, loss: f64 }
///
/// // Python files. `rate` is left to Python's default when it is None.
/// #[skyward::compute(python = "docs/payloads/train.py")]
/// pub fn train(epochs: u32, rate: Option<f64>) -> Report;
///
/// #[skyward::compute(python = "docs/payloads/train.py", entry = "losses")]
/// fn loss_of_each_epoch(epochs: u32) -> Streaming<f64>;
///
/// // A Python body.
/// #[skyward::compute]
/// fn mean(values: &[f64]) -> f64 {
///     r#"
///     import statistics
///     return statistics.fmean(values)
///     "#
/// }
///
/// // A Rust body.
/// #[skyward::compute]
/// fn power(exponent: u32, x: f64) -> Payload<f64> {
///     Payload::python("power.py", format!("def power(x):\n    return x ** {exponent}\n"), "power").arg("x", x)
/// }
///
/// let call: PendingCompute<Report> = train(5, None);
/// assert_eq!(call.source().entry(), "train");
/// assert_eq!(power(2, 0.5).source().main_text(), "def power(x):\n    return x ** 2\n");
/// # let _ = (mean(&[1.0]), loss_of_each_epoch(3));
/// ```
#[cfg(feature = "macros")]
pub use skyward_macros::compute;
#[cfg(feature = "plugins")]
pub use skyward_plugins as plugins;

/// What a service that starts pools needs: `use skyward::prelude::*;`.
pub mod prelude {
    pub use skyward_core::error::{Error, ErrorKind};
    pub use skyward_core::event::{EventItem, PoolEvent};
    pub use skyward_core::ids::{NodeIndex, Rank};
    pub use skyward_core::payload::{Payload, PendingCompute, RetryPolicy, Streaming, Target, join_all};
    pub use skyward_core::plugin::{Hook, HookKind, Plugin, plugin};
    pub use skyward_core::pool::{ComputePool, ComputePoolExt, Pool};
    pub use skyward_core::provider::{Local, Provider};
    pub use skyward_core::spec::{Accelerator, ClusterInfo, Image, Limits, Nodes};
    #[cfg(feature = "terminal")]
    pub use skyward_core::terminal::Terminal;

    #[cfg(feature = "plugins")]
    pub use skyward_plugins::{self as plugins, Backend};
}

/// What the macro's output names; not part of the public API.
#[doc(hidden)]
pub mod __private {
    pub use skyward_core::payload::{Args, ComputeFn, Payload, PendingCompute, Source, StaticSource};
    pub use std::sync::Arc;
}
