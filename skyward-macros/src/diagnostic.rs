//! What is wrong with a declaration, and at which part of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use proc_macro2::Span;
use skyward_python::{Finding, Kind};

/// The part of a Rust declaration that a message points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// Where the Python source is named or written.
    Source,
    /// `entry = "…"`, or else the function's name.
    Entry,
    /// `main = "…"`, or else where the source is named.
    Main,
    /// The function's name.
    Name,
    /// The argument of this index.
    Argument(usize),
    /// Its type.
    ArgumentType(usize),
    /// The result type.
    Output,
}

/// A message about a part of a declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    pub(crate) anchor: Anchor,
    pub(crate) message: String,
}

/// Errors so far, all of which the compiler shows.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<syn::Error>);

/// Whether a declaration reports the errors of a file that others may share: the first one does, each
/// time that it is expanded, and its errors end the build. In an editor's process, that declaration may
/// have been removed or renamed: another one that is expanded again, and this one not, takes its place.
pub(crate) fn is_reported_by(declaration: &str, finding: &Finding) -> bool {
    let crate_name = std::env::var("CARGO_CRATE_NAME").unwrap_or_default();
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let reporter = reported
        .entry((crate_name, root, finding.to_string()))
        .or_insert_with(|| Reporter { declaration: declaration.to_owned(), passed_over: BTreeSet::new() });
    if reporter.declaration == declaration {
        reporter.passed_over.clear();
    } else if !reporter.passed_over.insert(declaration.to_owned()) {
        *reporter = Reporter { declaration: declaration.to_owned(), passed_over: BTreeSet::new() };
    }
    reporter.declaration == declaration
}

/// The declaration that reports a finding.
struct Reporter {
    declaration: String,
    /// Other declarations, expanded since this one was expanded last.
    passed_over: BTreeSet<String>,
}

/// By crate and finding.
static REPORTED: Mutex<BTreeMap<(String, String, String), Reporter>> = Mutex::new(BTreeMap::new());

impl Diagnostic {
    pub(crate) fn new(anchor: Anchor, message: impl Into<String>) -> Self {
        Self { anchor, message: message.into() }
    }
}

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The value unless something is wrong.
    pub(crate) fn finish<T>(self, value: T) -> syn::Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

/// Where the compiler shows what is wrong with the Python.
impl From<Finding> for Diagnostic {
    fn from(finding: Finding) -> Self {
        let anchor = match finding.kind() {
            Kind::Main => Anchor::Main,
            Kind::Entry => Anchor::Entry,
            _ => Anchor::Source,
        };
        Self::new(anchor, finding.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_declaration_reports_the_errors_of_a_file() {
        let found = skyward_python::Payload::from_text("broken.py", "x = = 1\ny = = 2\n").findings();
        let [first, second, ..] = &*found else { panic!("{found:?}") };
        assert!(is_reported_by("src/a.rs f", first));
        assert!(!is_reported_by("src/a.rs g", first) && !is_reported_by("src/b.rs f", first));
        assert!(is_reported_by("src/a.rs f", first), "an editor expands it again");
        assert!(is_reported_by("src/a.rs g", second), "each finding is reported");
        assert!(!is_reported_by("src/a.rs g", first) && !is_reported_by("src/b.rs f", first));
        assert!(is_reported_by("src/a.rs g", first), "the first one is there no more");
        assert!(!is_reported_by("src/b.rs f", first), "and one reports");
    }
}
