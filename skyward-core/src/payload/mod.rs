//! Payloads: Python source with an entry function, the arguments of a call, tasks, and their typed
//! results.

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
mod report;
mod retry;
mod source;
mod task;
mod trace;
pub mod value;

pub use args::Args;
pub use build::Payload;
pub use output::{Output, Streaming};
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
