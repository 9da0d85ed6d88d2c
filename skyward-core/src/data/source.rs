//! What a user says of a data set.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// A data set, and how machines get it. The pool's builder gives it a name:
/// [`PoolBuilder::data`](crate::pool::PoolBuilder::data).
///
/// All files, folders and links of the folder are in the data set, also hidden ones. The folder must
/// not change while a pool uses it: a machine that joins later must get the same files.
///
/// ```no_run
/// # use skyward_core as skyward;
/// use skyward::data::Data;
///
/// let images = Data::folder("data/images").lazily().most_gib(500);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a pool gets it by `Pool::builder().data(name, …)`"]
pub struct Data {
    folder: PathBuf,
    is_lazy: bool,
    most_bytes: u64,
}

impl Data {
    /// The files of a folder on the client's host. A relative path begins at the working folder of
    /// this process at this moment.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let folder = std::path::absolute(&path).unwrap_or(path);
        Self { folder, is_lazy: false, most_bytes: 0 }
    }

    /// Brings the files to a machine only when a payload there uses them first, and not before the
    /// pool is ready.
    pub fn lazily(mut self) -> Self {
        self.is_lazy = true;
        self
    }

    /// Limits all data sets in the cache of a machine, in GiB: before this one is brought, those that
    /// no pool uses are removed until it fits, the least recently used first. A data set that is larger
    /// than the limit is brought all the same. By default they are removed only if the disk is full.
    pub fn most_gib(mut self, gib: u64) -> Self {
        self.most_bytes = gib.saturating_mul(1 << 30);
        self
    }

    /// The folder on this host.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// Checks that the folder exists.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if it does not, [`ErrorKind::InvalidSpec`] if something else is there,
    /// [`ErrorKind::Io`] if this host cannot look.
    pub(crate) fn check_folder(&self) -> Result<()> {
        let folder = &self.folder;
        match std::fs::metadata(folder) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            Ok(_) => Err(Error::new(ErrorKind::InvalidSpec, format!("{} is no folder", folder.display()))
                .with_hint("a data set is a folder: name the folder that the file is in")),
            Err(error) => Err(cannot_read(folder, &error)),
        }
    }

    pub(crate) fn is_lazy(&self) -> bool {
        self.is_lazy
    }

    /// The most bytes in the cache of a machine; 0 for no limit.
    pub(crate) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }
}

/// The error of a file or folder of this host that cannot be read.
pub(super) fn cannot_read(path: &Path, error: &io::Error) -> Error {
    let (kind, hint) = match error.kind() {
        io::ErrorKind::NotFound => (ErrorKind::NotFound, "name a folder that exists on the client's host"),
        _ => (ErrorKind::Io, "give this user access to all files of the folder"),
    };
    Error::new(kind, format!("{} cannot be read: {error}", path.display())).with_hint(hint)
}

/// Checks that a text can name a data set.
///
/// # Errors
///
/// [`ErrorKind::InvalidSpec`] for another text.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=100).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(is_allowed) {
        return Ok(());
    }
    let shown: String = name.chars().take(100).collect();
    Err(Error::new(ErrorKind::InvalidSpec, format!("`{shown}` is no name of a data set")).with_hint(
        "use 1 to 100 letters from A to Z, digits, `.`, `_` and `-`, with no `.` at the beginning: `digits`",
    ))
}
