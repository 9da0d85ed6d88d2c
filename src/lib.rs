//! Ephemeral accelerator compute for Rust services.
//!
//! Declare a Python payload with [`#[compute]`](macro@compute), start a [`Pool`](pool::Pool), and
//! call the payload: the call returns a typed result, and when the scope ends the machines are
//! gone.
//!
//! ```
//! use skyward::prelude::*;
//!
//! #[skyward::compute]
//! fn rank_of_all() -> u32 {
//!     "
//!     import skyward as sky
//!     return sky.instance_info().global_worker_index
//!     "
//! }
//!
//! #[tokio::main]
//! async fn main() -> skyward::Result<()> {
//!     let ranks = Pool::builder()
//!         .provider(Local::default())
//!         .nodes(2)
//!         .workers_per_node(2)
//!         .scope(async |pool| rank_of_all().broadcast(pool).await)
//!         .await?;
//!     assert_eq!(ranks, [0, 1, 2, 3]);
//!     Ok(())
//! }
//! ```
//!
//! # Where things are
//!
//! | what | where |
//! |---|---|
//! | declaring payloads, arguments and results | [`#[compute]`](macro@compute), [`payload`] |
//! | calling payloads: one, all, at the same time, many | [`PendingCompute`](compute::PendingCompute), [`ComputePoolExt`](compute::ComputePoolExt) |
//! | pools: size, environment, deadlines, events | [`PoolBuilder`](pool::PoolBuilder), [`spec`], [`event`] |
//! | frameworks | [`plugins`]; your own: [`plugin`] |
//! | checkpoints that outlive machines | [`storage`], [`checkpoint`] |
//! | folders of this host that machines get | [`data`] |
//! | errors | [`Error`], [`ErrorKind`] |
//! | other kinds of machines | [`provider`], [`remote`] |
//! | the guide: a tutorial, the concepts, a page for each subject | [`guide`] |
//!
//! # Features
//!
//! Features only add items.
//!
//! | feature | by default | what it adds |
//! |---|---|---|
//! | `macros` | yes | [`#[compute]`](macro@compute) |
//! | `plugins` | yes | [`plugins`]: JAX, Keras, PyTorch, Accelerate, Transformers, joblib, scikit-learn |
//! | `terminal` | yes | [`Terminal`]: shows progress and output to people |
//! | `ssh` | no | `provider::Hosts`: nodes that are hosts reached by SSH |
//! | `ndarray` | no | arrays to and from `ndarray` |
//! | `metrics` | no | metrics of pools, for the crate `metrics` |
//! | `docker` | no | `provider::Docker`: nodes that are containers |
//! | `aws` | no | `provider::Aws`: nodes that are instances of AWS EC2; with `ssh` |
//! | `testkit` | no | `testkit`: suites that check providers and plugins, fakes, a simulation |

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
mod doctests;
// The guide is text alone, so only builds of documentation contain it.
#[cfg(any(doc, doctest))]
pub mod guide;

#[cfg(feature = "terminal")]
pub use skyward_core::Terminal;
#[cfg(feature = "terminal")]
#[doc(inline)]
pub use skyward_core::terminal;
#[cfg(feature = "testkit")]
#[doc(inline)]
pub use skyward_core::testkit;
pub use skyward_core::{Error, ErrorKind, Reaped, Result, interrupted, reap, reap_expired};
#[doc(inline)]
pub use skyward_core::{
    checkpoint, compute, data, error, event, files, ids, payload, plugin, pool, remote, spec, storage,
};

#[cfg(not(feature = "aws"))]
#[doc(inline)]
pub use skyward_core::provider;
#[cfg(feature = "aws")]
pub mod provider {
    //! Obtain and release machines.
    #[doc(inline)]
    pub use skyward_aws::{Addressing, Aws};
    #[cfg(feature = "docker")]
    #[doc(inline)]
    pub use skyward_core::provider::Docker;
    #[doc(inline)]
    pub use skyward_core::provider::{
        Architecture, Capabilities, Facts, Host, Hosts, Keeper, KeeperEnd, Labels, LaunchBatch, LaunchRequest, Local,
        Machine, MachineReport, MachineState, Market, Offer, Part, Place, PoolRecord, PoolRequest, Provider, Reason,
        Requirements, launch_each, terminate_each,
    };
}

/// Declares a Python payload as a Rust function.
///
/// ```
/// use indoc::{formatdoc, indoc};
/// use skyward::compute::PendingCompute;
/// use skyward::payload::{Payload, Streaming};
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
///     let text = formatdoc! {"
///         def power(x):
///             return x ** {exponent}
///     "};
///     Payload::python("power.py", text, "power").arg("x", x)
/// }
///
/// let call: PendingCompute<Report> = train(5, None);
/// assert_eq!(call.source().entry(), "train");
/// let text = indoc! {"
///     def power(x):
///         return x ** 2
/// "};
/// assert_eq!(power(2, 0.5).source().main_text(), text);
/// # let _ = (mean(&[1.0]), loss_of_each_epoch(3));
/// ```
#[cfg(feature = "macros")]
pub use skyward_macros::compute;
#[cfg(feature = "plugins")]
#[doc(inline)]
pub use skyward_plugins as plugins;

/// The items that a service needs to start pools: `use skyward::prelude::*;`.
pub mod prelude {
    #[cfg(feature = "aws")]
    pub use skyward_aws::Aws;
    pub use skyward_core::compute::{Artifact, PendingCompute, join_all};
    pub use skyward_core::compute::{ComputePool, ComputePoolExt};
    pub use skyward_core::error::{Error, ErrorKind, Result};
    pub use skyward_core::event::{EventItem, PoolEvent};
    pub use skyward_core::ids::{NodeIndex, Rank};
    pub use skyward_core::payload::{Payload, RetryPolicy, Streaming, Target, TaskOptions};
    pub use skyward_core::plugin::{Hook, HookKind, Plugin, plugin};
    pub use skyward_core::pool::Pool;
    #[cfg(feature = "docker")]
    pub use skyward_core::provider::Docker;
    #[cfg(feature = "ssh")]
    pub use skyward_core::provider::{Host, Hosts};
    pub use skyward_core::provider::{Local, Market, Provider};
    pub use skyward_core::spec::{Accelerator, Budget, ClusterInfo, Image, Limits, Nodes};
    pub use skyward_core::storage::Storage;
    #[cfg(feature = "terminal")]
    pub use skyward_core::terminal::Terminal;

    #[cfg(feature = "plugins")]
    pub use skyward_plugins::{self as plugins, Backend};
}

/// The items that the macro's output names; not part of the public API.
#[doc(hidden)]
pub mod __private {
    pub use skyward_core::compute::PendingCompute;
    pub use skyward_core::error::Result;
    pub use skyward_core::payload::declared::{Declared, DeclaredWhole, Items, Nothing, Optional, Something, Whole};
    pub use skyward_core::payload::fit::{Class, Structure};
    pub use skyward_core::payload::{Args, ComputeFn, Output, Payload, Source, StaticSource};
    pub use std::sync::Arc;
}
