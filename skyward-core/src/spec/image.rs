//! The declared environment of a worker.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The declared environment of the workers: Python, packages, indexes, system packages, variables, files.
///
/// An image is only a description. Plugins add to it, and each machine builds it once: images with the same content share one environment.
///
/// ```
/// use skyward_core::spec::{Image, Python};
///
/// let image = Image::new().python("3.12").pip(["numpy>=2", "scikit-learn"]).env("OMP_NUM_THREADS", "1");
/// assert_eq!(image.python, Python::Version("3.12".into()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Image {
    /// Which Python.
    pub python: Python,
    /// Requirements (PEP 508), in the order given.
    pub pip: Vec<String>,
    /// Further package indexes.
    pub indexes: Vec<PackageIndex>,
    /// Debian packages that the machine must have.
    pub apt: Vec<String>,
    /// Environment variables of the workers.
    pub env: BTreeMap<String, String>,
    /// Files put beside the payload, into the worker's working folder.
    pub files: Vec<IncludedFile>,
    /// A requirements file or lock file (`requirements.txt`, `pylock.toml`), read when the pool starts.
    pub requirements: Option<PathBuf>,
    /// Bounds on Python's version from payload metadata (`requires-python`), all of which hold.
    pub requires_python: Vec<String>,
    /// Certificate authorities (PEM) that the package installer on the machine trusts beside its own.
    pub certificates: Vec<PathBuf>,
}

/// Which Python the workers run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Python {
    /// One that suits the image: at least 3.10, and what the payload requires.
    #[default]
    Auto,
    /// This version: `3.12`, `3.12.1`.
    Version(String),
    /// This interpreter on the machine, used as it is with what is installed in it: nothing is installed into it.
    Interpreter(PathBuf),
}

/// A package index beside or in place of the default one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PackageIndex {
    /// A short name, used in messages.
    pub name: String,
    /// The address of a simple index (PEP 503).
    pub url: String,
    /// The packages that come from here and from nowhere else; empty: any may.
    pub packages: Vec<String>,
}

/// A file of the client that is put into the worker's working folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct IncludedFile {
    /// Where it is on the client; a folder is taken whole.
    pub source: PathBuf,
    /// Where it goes, relative to the worker's working folder.
    pub target: String,
}

impl Image {
    /// An image with a suitable Python and nothing else.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets Python's version (`3.12`), `auto`, or the path of an interpreter that is used as it is.
    #[must_use]
    pub fn python(mut self, python: impl Into<Python>) -> Self {
        self.python = python.into();
        self
    }

    /// Adds requirements (PEP 508): `numpy>=2`, `keras[jax]==3.15.1`.
    #[must_use]
    pub fn pip<S: Into<String>>(mut self, requirements: impl IntoIterator<Item = S>) -> Self {
        self.pip.extend(requirements.into_iter().map(Into::into));
        self
    }

    /// Adds Debian packages that the machine must have.
    #[must_use]
    pub fn apt<S: Into<String>>(mut self, packages: impl IntoIterator<Item = S>) -> Self {
        self.apt.extend(packages.into_iter().map(Into::into));
        self
    }

    /// Adds a package index.
    #[must_use]
    pub fn index(mut self, index: PackageIndex) -> Self {
        self.indexes.push(index);
        self
    }

    /// Sets an environment variable of the workers.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }
}

impl PackageIndex {
    /// An index from which any package may come.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self { name: name.into(), url: url.into(), packages: Vec::new() }
    }

    /// The same, for these packages, which then come from nowhere else.
    #[must_use]
    pub fn only<S: Into<String>>(mut self, packages: impl IntoIterator<Item = S>) -> Self {
        self.packages.extend(packages.into_iter().map(Into::into));
        self
    }
}

impl From<&str> for Python {
    fn from(text: &str) -> Self {
        match text {
            "auto" => Self::Auto,
            path if path.contains('/') => Self::Interpreter(path.into()),
            version => Self::Version(version.to_owned()),
        }
    }
}

impl From<PathBuf> for Python {
    fn from(path: PathBuf) -> Self {
        Self::Interpreter(path)
    }
}
