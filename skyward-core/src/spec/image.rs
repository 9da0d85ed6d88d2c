//! The declared environment of a worker.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::requirement::normalised;
use super::{Secret, image_check};
use crate::error::Result;

/// The declared environment of the workers: Python, packages, indexes, system packages, variables, files.
///
/// An image is only a description. Plugins add to it, and each machine builds it once: images with the same content share one environment.
///
/// ```
/// use skyward_core::spec::{Image, PackageIndex, Python};
///
/// let image = Image::new()
///     .python("3.12")
///     .pip(["numpy>=2", "torch"])
///     .index(PackageIndex::new("pytorch", "https://download.pytorch.org/whl/cpu").only(["torch"]))
///     .env("OMP_NUM_THREADS", "1");
/// assert_eq!(image.python, Python::Version("3.12".into()));
/// image.validate()?;
/// # Ok::<(), skyward_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Image {
    /// Which Python.
    pub python: Python,
    /// Requirements (PEP 508), in the order given.
    pub pip: Vec<String>,
    /// The address of the index that packages come from unless another is named for them; none: the machine's own setting, or PyPI.
    pub default_index: Option<String>,
    /// Further package indexes.
    pub indexes: Vec<PackageIndex>,
    /// User and password of indexes, by the index's name; [`Image::DEFAULT_INDEX`] is the default one. They are not serialised.
    #[serde(skip)]
    pub credentials: BTreeMap<String, IndexCredentials>,
    /// Debian packages that the machine must have, or gets where the user may install them.
    pub apt: Vec<String>,
    /// Environment variables of the workers.
    pub env: BTreeMap<String, String>,
    /// Environment variables of the workers whose values are secret. They are not serialised.
    #[serde(skip)]
    pub secrets: BTreeMap<String, Secret>,
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
    /// One that suits the image: at least 3.10, and what the payload requires. Interpreters that the machine has come first.
    #[default]
    Auto,
    /// This version: `3.12`, `3.12.1`.
    Version(String),
    /// This interpreter on the machine, used as it is with what is installed in it: nothing is installed into it. The image's requirements must be met
    /// by what it has, which is checked when the machine is made ready.
    Interpreter(PathBuf),
}

/// A package index beside the default one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PackageIndex {
    /// A short name, used in messages and for credentials.
    pub name: String,
    /// The address of a simple index (PEP 503).
    pub url: String,
    /// The packages that come from here and from nowhere else; empty: any may.
    pub packages: Vec<String>,
}

/// What an index asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexCredentials {
    /// The user; many token services want `__token__` or nothing.
    pub username: String,
    /// The password or token.
    pub password: Secret,
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

    /// Sets the address of the index that packages come from unless another is named for them.
    #[must_use]
    pub fn default_index(mut self, url: impl Into<String>) -> Self {
        self.default_index = Some(url.into());
        self
    }

    /// Adds an index.
    #[must_use]
    pub fn index(mut self, index: PackageIndex) -> Self {
        self.indexes.push(index);
        self
    }

    /// Sets user and password of an index, by its name ([`Image::DEFAULT_INDEX`] for the default one).
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

    /// Adds Debian packages that the machine must have. They are installed where the user is root or may be, by `sudo` without a password. On the client's own host they are only looked for.
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

    /// Sets an environment variable of the workers whose value is secret: it goes to each worker's environment over the pool's own connection, and to no command
    /// line, file, log, event, error or record. Commands that make the machine ready do not get it.
    ///
    /// ```
    /// use skyward_core::spec::{Image, Secret};
    ///
    /// let image = Image::new().secret("HF_TOKEN", Secret::new("hunter2"));
    /// assert!(!format!("{image:?}").contains("hunter2"));
    /// ```
    #[must_use]
    pub fn secret(mut self, key: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.secrets.insert(key.into(), value.into());
        self
    }

    /// Puts a file or a folder of the client into the workers' working folder, under this relative path.
    #[must_use]
    pub fn file(mut self, source: impl Into<PathBuf>, target: impl Into<String>) -> Self {
        self.files.push(IncludedFile { source: source.into(), target: target.into() });
        self
    }

    /// Puts a file or a folder of the client into the workers' working folder, under its own name.
    #[must_use]
    pub fn include(self, source: impl AsRef<Path>) -> Self {
        let source = source.as_ref();
        let name = source.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        self.file(source, name)
    }

    /// Sets a requirements file (`requirements.txt`) or a lock file (`pylock.toml`), read when the pool starts.
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

    /// Adds a file with certificate authorities (PEM) that the package installer on the machine trusts beside its own.
    #[must_use]
    pub fn certificate(mut self, path: impl Into<PathBuf>) -> Self {
        self.certificates.push(path.into());
        self
    }

    /// Checks what can be checked without asking anybody: requirements, versions, names, paths, and whether they contradict each other.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec) that names what is wrong and shows the right form.
    pub fn validate(&self) -> Result<()> {
        image_check::check(self)
    }

    /// A digest of what gets installed: Python, requirements, indexes, and `requirements`, the content of the requirements file. Images with the same digest share
    /// one environment. What does not change what is installed (variables, secrets, files, certificates, credentials) and order where it has no meaning do not enter.
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
        // Debug text of strings is quoted and escaped, so that no two different contents have the same text.
        let content = format!(
            "{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
            self.python,
            sorted(&self.pip),
            sorted(&self.requires_python),
            self.default_index,
            indexes,
            requirements,
        );
        hex(&Sha256::digest(content)[..10])
    }

    /// The name by which [`Image::credentials`] means the default index.
    pub const DEFAULT_INDEX: &'static str = "default";
}

impl PackageIndex {
    /// An index that any package may come from.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self { name: name.into(), url: url.into(), packages: Vec::new() }
    }

    /// Only these packages come from it, and they come from nowhere else.
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

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_what_is_installed() {
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
    fn the_order_of_indexes_has_a_meaning_and_that_of_their_packages_has_none() {
        let (a, b) = (PackageIndex::new("a", "https://a"), PackageIndex::new("b", "https://b"));
        let hash = |indexes: [PackageIndex; 2]| indexes.into_iter().fold(Image::new(), Image::index).content_hash(None);
        assert_ne!(hash([a.clone(), b.clone()]), hash([b.clone(), a.clone()]));
        assert_eq!(hash([a.clone().only(["X_y", "z"]), b.clone()]), hash([a.only(["z", "x-Y"]), b]));
    }

    #[test]
    fn credentials_and_secrets_are_shown_nowhere() {
        let image = Image::new().credentials("default", "me", "hunter2").secret("TOKEN", "hunter2");
        assert!(!format!("{image:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&image).unwrap().contains("hunter2"));
    }
}
