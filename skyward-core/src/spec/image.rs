//! The declared environment of the workers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ignore::gitignore::Gitignore;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::requirement::normalised;
use super::{Secret, UvSettings, hex, image_check};
use crate::error::Result;

/// The declared environment of the workers: Python, packages, indexes, system packages, variables,
/// files.
///
/// An image is only a description. Plugins add to it, and each machine builds it once: images with
/// the same content share one environment.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::spec::{Image, PackageIndex, Python};
///
/// let image = Image::new()
///     .python("3.12")
///     .pip(["numpy>=2", "torch"])
///     .index(PackageIndex::new("pytorch", "https://download.pytorch.org/whl/cpu").only(["torch"]))
///     .env("OMP_NUM_THREADS", "1");
/// assert_eq!(image.python, Python::Version("3.12".into()));
/// image.validate()?;
/// # Ok::<(), skyward::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Image {
    /// The Python that the workers run.
    pub python: Python,
    /// Requirements (PEP 508), in the order given.
    pub pip: Vec<String>,
    /// The address of the index for all packages that have no index of their own. `None`: the index
    /// that the machine's configuration names, or PyPI.
    pub default_index: Option<String>,
    /// Additional package indexes.
    pub indexes: Vec<PackageIndex>,
    /// Users and passwords of indexes, by the index's name; [`Image::DEFAULT_INDEX`] names the
    /// default index. Not serialised.
    #[serde(skip)]
    pub credentials: BTreeMap<String, IndexCredentials>,
    /// Debian packages that the machine needs. They are installed if the user may install packages.
    pub apt: Vec<String>,
    /// Environment variables of the workers.
    pub env: BTreeMap<String, String>,
    /// Environment variables of the workers with secret values. Not serialised.
    #[serde(skip)]
    pub secrets: BTreeMap<String, Secret>,
    /// Files that are copied into the workers' working folder, beside the payload.
    pub files: Vec<IncludedFile>,
    /// Patterns of what is left out of the folders among these files.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Whether these folders are also without what their `.gitignore` files name.
    #[serde(default)]
    pub gitignore: bool,
    /// A requirements file or lock file on the client (`requirements.txt`, `pylock.toml`), read
    /// when the pool starts.
    pub requirements: Option<PathBuf>,
    /// Bounds on Python's version, for example from `requires-python` in a payload's metadata. All
    /// of them apply.
    pub requires_python: Vec<String>,
    /// Settings of uv, from `[tool.uv]` in the metadata of payloads.
    #[serde(default)]
    pub uv: UvSettings,
    /// Whether each node builds an environment of its own, which payloads may change.
    #[serde(default)]
    pub writable: bool,
    /// Files with certificate authorities (PEM) that the package installer trusts in addition to
    /// its own.
    pub certificates: Vec<PathBuf>,
}

/// The Python that the workers run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Python {
    /// Any suitable version: at least 3.10, and within the bounds of the payload. Interpreters that
    /// the machine already has are preferred.
    #[default]
    Auto,
    /// This version: `3.12`, `3.12.1`.
    Version(String),
    /// This interpreter on the machine, with the packages that are installed in it. Nothing is
    /// installed into it. Its packages must meet the image's requirements, which is checked when
    /// the machine is made ready.
    Interpreter(PathBuf),
}

/// A package index in addition to the default one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PackageIndex {
    /// A short name for messages and credentials.
    pub name: String,
    /// The address of a simple index (PEP 503).
    pub url: String,
    /// The packages that come from this index and from no other. Empty: any package may come from
    /// it.
    pub packages: Vec<String>,
}

/// The user and password of a package index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexCredentials {
    /// The user. Many services with tokens expect `__token__` or an empty name.
    pub username: String,
    /// The password or token.
    pub password: Secret,
}

/// A file or folder of the client that is copied into the workers' working folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct IncludedFile {
    /// The path on the client. A folder is copied with its content.
    pub source: PathBuf,
    /// The path on the node, relative to the workers' working folder.
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

    /// Sets the address of the index for all packages that have no index of their own.
    #[must_use]
    pub fn default_index(mut self, url: impl Into<String>) -> Self {
        self.default_index = Some(url.into());
        self
    }

    /// Adds a package index.
    #[must_use]
    pub fn index(mut self, index: PackageIndex) -> Self {
        self.indexes.push(index);
        self
    }

    /// Sets the user and password of an index, by the index's name ([`Image::DEFAULT_INDEX`] for
    /// the default index).
    #[must_use]
    pub fn credentials(
        mut self,
        index: impl Into<String>,
        username: impl Into<String>,
        password: impl Into<Secret>,
    ) -> Self {
        let credentials = IndexCredentials { username: username.into(), password: password.into() };
        self.credentials.insert(index.into(), credentials);
        self
    }

    /// Adds Debian packages that the machine needs. They are installed if the user is root or may
    /// use `sudo` without a password. On the client's own host nothing is installed: the packages
    /// must be there already.
    #[must_use]
    pub fn apt<S: Into<String>>(mut self, packages: impl IntoIterator<Item = S>) -> Self {
        self.apt.extend(packages.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable of the workers.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Sets an environment variable of the workers with a secret value.
    ///
    /// The value goes to each worker's environment over the pool's own connection, and to no
    /// command line, file, log, event, error or record. Commands that make the machine ready do not
    /// receive it.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::spec::{Image, Secret};
    ///
    /// let image = Image::new().secret("HF_TOKEN", Secret::new("hunter2"));
    /// assert!(!format!("{image:?}").contains("hunter2"));
    /// ```
    #[must_use]
    pub fn secret(mut self, key: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.secrets.insert(key.into(), value.into());
        self
    }

    /// Copies a file or folder of the client into the workers' working folder, to this relative
    /// path.
    ///
    /// Files keep their modes, the times of their last change, and their names, whatever bytes these
    /// have. Links within a folder stay links, and may not lead out of it. All files together have
    /// at most 256 MiB.
    #[must_use]
    pub fn file(mut self, source: impl Into<PathBuf>, target: impl Into<String>) -> Self {
        self.files.push(IncludedFile { source: source.into(), target: target.into() });
        self
    }

    /// Copies a file or folder of the client into the workers' working folder, under its own name.
    #[must_use]
    pub fn include(self, source: impl AsRef<Path>) -> Self {
        let source = source.as_ref();
        let name = source.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.file(source, name)
    }

    /// Leaves files and folders out of the folders that the image includes. The patterns are those
    /// of a `.gitignore` file in each of these folders, the last one that matches counts, and
    /// `__pycache__` is always left out. What the image includes by its own path is never left out.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::spec::Image;
    ///
    /// let image = Image::new().include("src").exclude(["*.lock", ".git", "/data/raw/*", "!index.csv"]);
    /// image.validate()?;
    /// # Ok::<(), skyward::Error>(())
    /// ```
    #[must_use]
    pub fn exclude<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.exclude.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Sets whether what `.gitignore` files name is left out of the folders that the image includes,
    /// as Git would: those in the folders, and those of the folders above in the same repository.
    #[must_use]
    pub fn gitignore(mut self, gitignore: bool) -> Self {
        self.gitignore = gitignore;
        self
    }

    /// What the patterns leave out of a folder with this path.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec) for what is no pattern.
    pub(crate) fn excluded(&self, folder: &Path) -> Result<Gitignore> {
        image_check::patterns(&self.exclude, folder)
    }

    /// Sets a requirements file (`requirements.txt`) or a lock file (`pylock.toml`), read when the
    /// pool starts.
    #[must_use]
    pub fn requirements(mut self, path: impl Into<PathBuf>) -> Self {
        self.requirements = Some(path.into());
        self
    }

    /// Adds a bound on Python's version: `>=3.11`.
    #[must_use]
    pub fn requires_python(mut self, specifiers: impl Into<String>) -> Self {
        self.requires_python.push(specifiers.into());
        self
    }

    /// Adds a file with certificate authorities (PEM) that the package installer on the machine
    /// trusts in addition to its own.
    #[must_use]
    pub fn certificate(mut self, path: impl Into<PathBuf>) -> Self {
        self.certificates.push(path.into());
        self
    }

    /// Sets whether payloads may change the environment, for instance by `pip install`.
    ///
    /// Without it, pools share an environment, and one that a payload has changed is built anew for
    /// the next pool. With it, each node builds an environment of its own when the pool starts, from
    /// the packages that uv has downloaded before. It lies in the machine's folder and ends with the
    /// machine. A package that a payload installs is on its own node only, and a process that has
    /// imported another version before goes on with that.
    #[must_use]
    pub fn writable(mut self, writable: bool) -> Self {
        self.writable = writable;
        self
    }

    /// Checks everything that can be checked without a machine or a network: requirements,
    /// versions, names, paths, and contradictions between them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec), which names the mistake
    /// and shows the correct form.
    pub fn validate(&self) -> Result<()> {
        image_check::check(self)
    }

    /// A digest of everything that determines what is installed: Python, requirements, indexes,
    /// settings of uv, and `requirements`, the content of the requirements file. Images with the same digest share one
    /// environment.
    ///
    /// The digest does not depend on variables, secrets, files, certificates, credentials and
    /// Debian packages, nor on order where order has no meaning.
    pub fn content_hash(&self, requirements: Option<&str>) -> String {
        let sorted = |list: &[String]| {
            let mut list: Vec<_> = list.iter().map(|text| text.split_whitespace().collect::<String>()).collect();
            list.sort();
            list.dedup();
            list
        };
        let indexes: Vec<_> = self
            .indexes
            .iter()
            .map(|index| {
                let mut packages: Vec<_> = index.packages.iter().map(|package| normalised(package)).collect();
                packages.sort();
                (&index.name, &index.url, packages)
            })
            .collect();
        // The debug text of a string is quoted and escaped, so different contents have different
        // texts.
        let content = format!(
            "{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
            self.python,
            sorted(&self.pip),
            sorted(&self.requires_python),
            self.default_index,
            indexes,
            requirements,
        );
        let content = if self.uv.is_empty() { content } else { format!("{content}\n{:?}", self.uv.to_string()) };
        hex(&Sha256::digest(content)[..10])
    }

    /// The name of the default index in [`Image::credentials`].
    pub const DEFAULT_INDEX: &'static str = "default";
}

impl PackageIndex {
    /// An index that any package may come from.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self { name: name.into(), url: url.into(), packages: Vec::new() }
    }

    /// The same index for these packages alone: only these come from it, and they come from no
    /// other index.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_what_is_installed_alone() {
        let image = Image::new().pip(["a>=1", "b"]).requires_python(">=3.11");
        let base = image.content_hash(None);
        let same = |other: Image| assert_eq!(other.content_hash(None), base);
        let differs = |other: Image| assert_ne!(other.content_hash(None), base);
        same(Image::new().pip(["b", "a >= 1", "b"]).requires_python(">=3.11"));
        same(image.clone().env("A", "1").file("/x", "x").certificate("/ca.pem").apt(["git"]));
        same(image.clone().credentials("default", "me", "hunter2").secret("TOKEN", "hunter2"));
        differs(image.clone().pip(["c"]));
        differs(image.clone().python("3.12"));
        differs(image.clone().default_index("https://example.com/simple"));
        differs(image.clone().index(PackageIndex::new("x", "https://example.com/x")));
        differs(image.clone().requires_python("<3.13"));
        assert_ne!(image.content_hash(Some("numpy==2.0")), base);
        assert_ne!(image.content_hash(Some("numpy==2.0")), image.content_hash(Some("numpy==2.1")));
    }

    #[test]
    fn the_hash_depends_on_the_order_of_indexes_and_not_of_their_packages() {
        let (a, b) = (PackageIndex::new("a", "https://a"), PackageIndex::new("b", "https://b"));
        let hash = |indexes: [PackageIndex; 2]| indexes.into_iter().fold(Image::new(), Image::index).content_hash(None);
        assert_ne!(hash([a.clone(), b.clone()]), hash([b.clone(), a.clone()]));
        assert_eq!(hash([a.clone().only(["X_y", "z"]), b.clone()]), hash([a.only(["z", "x-Y"]), b]));
    }

    #[test]
    fn credentials_and_secrets_are_neither_displayed_nor_serialised() {
        let image = Image::new().credentials("default", "me", "hunter2").secret("TOKEN", "hunter2");
        assert!(!format!("{image:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&image).unwrap().contains("hunter2"));
    }
}
