//! The payloads that a pool declares.

use std::sync::Arc;

use super::PoolBuilder;
use crate::compute::PendingCompute;
use crate::payload::{ComputeFn, Output, Source};

impl PoolBuilder {
    /// Declares a payload: `.payload::<Train>()` for a function declared with
    /// `#[skyward::compute(payload = Train)]`. The packages that the payload needs (PEP 723) are
    /// merged into the image, and if the payload's decorator (`@sky.integrations.torch`) asks for a
    /// world, the workers are joined into one.
    ///
    /// Each worker imports the payload before it is ready, so the first call does not wait for that,
    /// and an import that fails fails the start; see [`lazily`](Self::lazily).
    ///
    /// Where the annotation of the Python function names a class in the same file, the fields of
    /// the Rust result type must be among the fields of that class: otherwise
    /// [`check`](Self::check) and [`start`](Self::start) return an error that names the missing
    /// fields.
    pub fn payload<F: ComputeFn>(mut self) -> Self {
        self.sources.push(F::source());
        self.misfits.extend(F::check().err());
        self
    }

    /// Declares the payload of a call that Rust code has built; otherwise the same as
    /// [`payload`](Self::payload).
    pub fn payload_of<T: Output>(mut self, call: &PendingCompute<T>) -> Self {
        self.sources.push(Arc::clone(call.source()));
        self
    }

    /// Lets each worker import a declared payload at its first call, and not before it is ready.
    /// Use it where many payloads are declared and few are called. A call's timeout does not count
    /// the import.
    pub fn lazily(mut self) -> Self {
        self.is_lazy = true;
        self
    }

    /// The payloads that workers import before they are ready, each once.
    pub(super) fn imports(&self) -> Vec<Arc<Source>> {
        let mut imports: Vec<Arc<Source>> = Vec::new();
        for source in self.sources.iter().filter(|_| !self.is_lazy) {
            if !imports.iter().any(|known| known.digest() == source.digest()) {
                imports.push(Arc::clone(source));
            }
        }
        imports
    }
}
