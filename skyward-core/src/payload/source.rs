//! Python source with an entry function.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::Result;

/// The source of a payload: one or more Python files and the function to call. Identified by the digest of its content.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    entry: Cow<'static, str>,
    main: Cow<'static, str>,
    first_line: u32,
    files: Vec<SourceFile>,
    digest: String,
    joins: Option<Cow<'static, str>>,
}

/// One Python file of a payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceFile {
    /// Its path as tracebacks show it, and by which the payload's files import each other.
    pub path: Cow<'static, str>,
    /// Its text.
    pub text: Cow<'static, str>,
}

/// A payload as a type, which `#[skyward::compute(payload = Train)]` makes: what a pool can know of it before it is called.
pub trait ComputeFn {
    /// Its source.
    fn source() -> Arc<Source>;

    /// Whether the class that the Python function's annotation names has the fields that the Rust result asks for. What the annotation does not tell counts as fitting.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec) with the field, both types and the line of the Python class.
    fn check() -> Result<()> {
        Ok(())
    }
}

/// The source of a payload that is known when the crate is compiled; made by `#[skyward::compute]`.
#[doc(hidden)]
#[derive(Debug)]
pub struct StaticSource {
    entry: &'static str,
    main: &'static str,
    first_line: u32,
    files: &'static [(&'static str, &'static str)],
    joins: Option<&'static str>,
    cell: OnceLock<Arc<Source>>,
}

impl Source {
    /// A payload of one file. `path` is what tracebacks show.
    pub fn file(
        path: impl Into<Cow<'static, str>>,
        text: impl Into<Cow<'static, str>>,
        entry: impl Into<Cow<'static, str>>,
    ) -> Self {
        let path = path.into();
        Self::new(entry.into(), path.clone(), 1, vec![SourceFile { path, text: text.into() }])
    }

    /// A payload of several files, of which `main` has the entry. A file imports another by its path without `.py`, absolutely or relatively.
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
        Self { entry, main, first_line, files, digest, joins: None }
    }

    /// States that the entry joins the workers into the world of this framework, `jax` or `torch`, by a decorator such as
    /// `@sky.integrations.torch`. `#[skyward::compute]` finds such decorators by itself; this is for source that is put
    /// together at run time. A pool that is declared with the payload ([`PoolBuilder::payload_of`]) is one world then.
    /// `unknown` is for a framework that is chosen when the payload runs: it fits any other that the pool joins.
    ///
    /// [`PoolBuilder::payload_of`]: crate::pool::PoolBuilder::payload_of
    ///
    /// ```
    /// use skyward_core::payload::Source;
    ///
    /// let text = "import skyward as sky\n\n@sky.integrations.torch\ndef train(): ...\n";
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

    /// The function that is called.
    pub fn entry(&self) -> &str {
        &self.entry
    }

    /// The file that has the entry.
    pub fn main(&self) -> &str {
        &self.main
    }

    /// The number of the first line of the main file, for source that stands inside another file.
    pub fn first_line(&self) -> u32 {
        self.first_line
    }

    /// All files.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The text of the main file.
    pub fn main_text(&self) -> &str {
        self.files.iter().find(|file| file.path == self.main).map_or("", |file| &file.text)
    }

    /// 32 hexadecimal digits that change with any of the content.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The bytes of all texts.
    pub fn size(&self) -> usize {
        self.files.iter().map(|file| file.path.len() + file.text.len()).sum()
    }
}

/// Without the texts.
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
    /// Takes the parts that the macro knows: the entry, the main file's path, the number of its first line, and `(path, text)` of all files.
    pub const fn new(
        entry: &'static str,
        main: &'static str,
        first_line: u32,
        files: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { entry, main, first_line, files, joins: None, cell: OnceLock::new() }
    }

    /// The same of an entry whose decorator joins the world of this framework.
    #[must_use]
    pub const fn joining(mut self, framework: &'static str) -> Self {
        self.joins = Some(framework);
        self
    }

    /// The source, made once.
    pub fn get(&self) -> Arc<Source> {
        let make = || {
            let files = self.files.iter().map(|(path, text)| SourceFile { path: (*path).into(), text: (*text).into() });
            let source = Source::new(self.entry.into(), self.main.into(), self.first_line, files.collect());
            Arc::new(match self.joins {
                Some(framework) => source.joining(framework),
                None => source,
            })
        };
        Arc::clone(self.cell.get_or_init(make))
    }
}

/// Lengths keep two different lists of parts from hashing alike.
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
