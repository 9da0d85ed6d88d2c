//! Payloads that Rust code assembles at run time.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;

use super::{Args, Output, Source};

/// A payload that Rust code assembles: source, entry and arguments. A `#[skyward::compute]`
/// function with a Rust body returns it.
///
/// ```
/// # use skyward_core as skyward;
/// use indoc::indoc;
/// use skyward::compute::PendingCompute;
/// use skyward::payload::Payload;
///
/// let text = indoc! {"
///     def square(x):
///         return x * x
/// "};
/// let square = Payload::python("square.py", text, "square");
/// let pending: PendingCompute<u64> = square.arg("x", 7).into();
/// assert_eq!(pending.source().entry(), "square");
/// ```
#[must_use = "a payload runs only when it is dispatched: `.run(&pool)`"]
pub struct Payload<T> {
    pub(crate) source: Arc<Source>,
    pub(crate) args: Args,
    output: PhantomData<fn() -> T>,
}

impl<T: Output> Payload<T> {
    /// A payload of one Python file. Tracebacks show `path`.
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

    /// Adds an argument by name. With `None`, the Python function uses its default.
    pub fn optional_arg<A: Serialize + 'static>(self, name: &str, value: Option<A>) -> Self {
        match value {
            Some(value) => self.arg(name, value),
            None => self,
        }
    }
}

impl<T> fmt::Debug for Payload<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("source", &self.source).finish_non_exhaustive()
    }
}
