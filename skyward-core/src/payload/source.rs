//! Python source with an entry function.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::Result;

/// The source of a payload: one or more Python files and the function to call. A digest of the
/// content identifies it.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    entry: Cow<'static, str>,
    main: Cow<'static, str>,
    first_line: u32,
    files: Vec<SourceFile>,
    digest: String,
    joins: Option<Cow<'static, str>>,
    beside: Beside,
}

/// Modules that lay beside the files of a payload when its declaration was compiled, and are no part
/// of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Beside {
    modules: &'static [&'static str],
    advice: &'static str,
}

/// One Python file of a payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFile {
    /// The path of the file. Tracebacks show it, and the other files of the payload import the file
    /// by it.
    pub path: Cow<'static, str>,
    /// The Python source text.
    pub text: Cow<'static, str>,
}

/// A payload as a type, so that a pool knows the payload before it is called.
/// `#[skyward::compute(payload = Train)]` makes such a type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no payload",
    note = "name the payload's type where it is declared, `#[skyward::compute(payload = Train)]`, and declare it by `.payload::<Train>()`; a call that Rust code has put together is declared by `.payload_of(&call)`"
)]
pub trait ComputeFn {
    /// The source of the payload.
    fn source() -> Arc<Source>;

    /// Checks that the class in the Python function's annotation has the fields that the Rust
    /// result requires. If the annotation does not determine the fields, the result counts as
    /// fitting.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec) with the missing field,
    /// both types, and the line of the Python class.
    fn check() -> Result<()> {
        Ok(())
    }
}

/// The source of a payload that is known at compile time; made by `#[skyward::compute]`.
#[doc(hidden)]
#[derive(Debug)]
pub struct StaticSource {
    entry: &'static str,
    main: &'static str,
    first_line: u32,
    files: &'static [(&'static str, &'static str)],
    joins: Option<&'static str>,
    beside: Beside,
    cell: OnceLock<Arc<Source>>,
}

impl Source {
    /// A payload of one file. Tracebacks show `path`.
    pub fn file(
        path: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
        entry: impl Into<Cow<'static, str>>,
    ) -> Self {
        let path = path.into();
        Self::new(entry.into(), path.clone(), 1, vec![SourceFile { path, text: text.into() }])
    }

    /// A payload of several files. `main` is the path of the file with the entry. The files import
    /// each other by their paths without `.py`, with absolute or relative imports.
    pub fn package(
        main: impl Into<Cow<'static, str>>,
        files: Vec<SourceFile>,
        entry: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::new(entry.into(), main.into(), 1, files)
    }

    fn new(entry: Cow<'static, str>, main: Cow<'static, str>, first_line: u32, files: Vec<SourceFile>) -> Self {
        let mut hash = Sha256::new();
        for part in [&entry, &main] {
            hash_part(&mut hash, part);
        }
        hash.update(first_line.to_le_bytes());
        for file in &files {
            hash_part(&mut hash, &file.path);
            hash_part(&mut hash, &file.text);
        }
        let digest = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { entry, main, first_line, files, digest, joins: None, beside: Beside::default() }
    }

    /// Declares that the entry joins the workers into the world of this framework, `jax` or
    /// `torch`, by a decorator such as `@sky.integrations.torch`. A pool that is declared with the
    /// payload ([`PoolBuilder::payload_of`]) is then one world.
    ///
    /// `#[skyward::compute]` finds such decorators itself. Use this method for source that is
    /// assembled at run time. Pass `unknown` for a framework that is chosen when the payload runs:
    /// it fits any framework whose world the pool joins.
    ///
    /// [`PoolBuilder::payload_of`]: crate::pool::PoolBuilder::payload_of
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use indoc::indoc;
    /// use skyward::payload::Source;
    ///
    /// let text = indoc! {"
    ///     import skyward as sky
    ///
    ///     @sky.integrations.torch
    ///     def train(): ...
    /// "};
    /// let source = Source::file("train.py", text, "train").joining("torch");
    /// assert_eq!(source.joins(), Some("torch"));
    /// ```
    #[must_use]
    pub fn joining(mut self, framework: impl Into<Cow<'static, str>>) -> Self {
        self.joins = Some(framework.into());
        self
    }

    /// The framework whose world the entry joins by its decorator, if it has one.
    pub fn joins(&self) -> Option<&str> {
        self.joins.as_deref()
    }

    /// The same payload, beside whose files these modules lie, with what to do to import them.
    #[must_use]
    pub(crate) fn lying_beside(mut self, modules: &'static [&'static str], advice: &'static str) -> Self {
        self.beside = Beside { modules, advice };
        self
    }

    /// What to do to import this module, if it lies beside the files and is no part of the payload.
    pub(crate) fn beside(&self, module: &str) -> Option<&'static str> {
        self.beside.modules.contains(&module).then_some(self.beside.advice)
    }

    /// The name of the function that is called.
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// The path of the file with the entry.
    pub fn main(&self) -> &str {
        &self.main
    }

    /// The line number of the first line of the main file, which is not 1 for source that is
    /// embedded in another file.
    pub fn first_line(&self) -> u32 {
        self.first_line
    }

    /// All files of the payload.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The text of the main file.
    pub fn main_text(&self) -> &str {
        self.files.iter().find(|file| file.path == self.main).map_or("", |file| &file.text)
    }

    /// The digest of the content: 32 hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The number of bytes of all paths and texts.
    pub fn size(&self) -> usize {
        self.files.iter().map(|file| file.path.len() + file.text.len()).sum()
    }
}

/// Shows the digest instead of the texts.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("entry", &self.entry)
            .field("main", &self.main)
            .field("files", &self.files.len())
            .field("digest", &self.digest)
            .finish()
    }
}

impl StaticSource {
    /// Makes a source of the entry, the main file's path, the number of its first line, and
    /// `(path, text)` of all files.
    pub const fn new(
        entry: &'static str,
        main: &'static str,
        first_line: u32,
        files: &'static [(&'static str, &'static str)],
    ) -> Self {
        let beside = Beside { modules: &[], advice: "" };
        Self { entry, main, first_line, files, joins: None, beside, cell: OnceLock::new() }
    }

    /// The same source, with an entry whose decorator joins the world of this framework.
    #[must_use]
    pub const fn joining(mut self, framework: &'static str) -> Self {
        self.joins = Some(framework);
        self
    }

    /// The same source, beside whose files these modules lie, with what to do to import them.
    #[must_use]
    pub const fn beside(mut self, modules: &'static [&'static str], advice: &'static str) -> Self {
        self.beside = Beside { modules, advice };
        self
    }

    /// The source. It is made at the first call.
    pub fn get(&self) -> Arc<Source> {
        let make = || {
            let files = self.files.iter().map(|(path, text)| SourceFile { path: (*path).into(), text: (*text).into() });
            let source = Source::new(self.entry.into(), self.main.into(), self.first_line, files.collect())
                .lying_beside(self.beside.modules, self.beside.advice);
            Arc::new(match self.joins {
                Some(framework) => source.joining(framework),
                None => source,
            })
        };
        Arc::clone(self.cell.get_or_init(make))
    }
}

/// Hashes a part with its length, so that different lists of parts have different digests.
fn hash_part(hash: &mut Sha256, part: &str) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_changes_with_every_part() {
        let base = Source::file("a.py", "def f(): pass", "f");
        assert_eq!(base.digest().len(), 32);
        for other in [
            Source::file("b.py", "def f(): pass", "f"),
            Source::file("a.py", "def f(): 1", "f"),
            Source::file("a.py", "def f(): pass", "g"),
        ] {
            assert_ne!(base.digest(), other.digest());
        }
        assert_eq!(base.digest(), Source::file("a.py", "def f(): pass", "f").digest());
    }
}
