//! Payloads: Python source and an entry, the arguments of one call, and the way from a call to a typed result.

mod args;
mod build;
mod byte_types;
#[doc(hidden)]
pub mod declared;
#[doc(hidden)]
pub mod fit;
pub(crate) mod memory;
pub mod metadata;
mod output;
mod pending;
mod report;
mod retry;
mod source;
mod task;
mod trace;
pub mod value;

pub use args::Args;
pub use build::Payload;
pub use output::{Output, Streaming};
pub use pending::{Join, PendingCompute, join_all};
pub use report::{Report, ReportSender, Reports};
pub use retry::RetryPolicy;
pub use source::{ComputeFn, Source, SourceFile, StaticSource};
pub(crate) use task::Meter;
pub use task::{ItemSender, Outcome, Target, Task, TaskHandle, TaskOptions, TaskReply, Value};
pub use trace::TraceContext;
pub(crate) use trace::TraceSource;
#[cfg(feature = "ndarray")]
pub use value::Array;
pub use value::{Element, Tensor};
