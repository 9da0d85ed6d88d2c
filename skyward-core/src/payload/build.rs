//! A payload that Rust code puts together at dispatch time.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;

use super::{Args, Output, PendingCompute, Source};

/// A payload that Rust code puts together: source, entry and arguments. What a `#[skyward::compute]` function with a Rust body returns.
///
/// ```
/// use skyward_core::payload::{Payload, PendingCompute};
///
/// let pending: PendingCompute<u64> = Payload::python("square.py", "def square(x):\n    return x * x\n", "square").arg("x", 7).into();
/// assert_eq!(pending.source().entry(), "square");
/// ```
#[must_use = "a payload runs only when it is dispatched: `.run(&pool)`"]
pub struct Payload<T> {
    source: Arc<Source>,
    args: Args,
    output: PhantomData<fn() -> T>,
}

impl<T: Output> Payload<T> {
    /// A payload of one Python file. `path` is what tracebacks show.
    pub fn python(
        path: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
        entry: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(Arc::new(Source::file(path, text, entry)))
    }

    /// A payload of this source.
    pub fn new(source: Arc<Source>) -> Self {
        Self { source, args: Args::new(), output: PhantomData }
    }

    /// Adds an argument by name.
    pub fn arg<A: Serialize + 'static>(mut self, name: &str, value: A) -> Self {
        self.args = self.args.with(name, &value);
        self
    }

    /// Adds an argument by name, or leaves it to the Python function's default.
    pub fn optional_arg<A: Serialize + 'static>(self, name: &str, value: Option<A>) -> Self {
        match value {
            Some(value) => self.arg(name, value),
            None => self,
        }
    }
}

impl<T: Output> From<Payload<T>> for PendingCompute<T> {
    fn from(payload: Payload<T>) -> Self {
        PendingCompute::new(payload.source, payload.args)
    }
}

impl<T> fmt::Debug for Payload<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("source", &self.source).finish_non_exhaustive()
    }
}
