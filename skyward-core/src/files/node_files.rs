//! The contract of the files on the nodes of a pool: what is there, and parts of their content.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::event::Transfer;
use crate::ids::NodeIndex;

/// Reads files on the nodes of a pool, also of nodes whose tasks or workers have failed.
///
/// [`ComputePool::files`](crate::compute::ComputePool::files) returns it. The methods are what
/// [`Artifact`](crate::compute::Artifact) and [`PoolNode`](crate::pool::PoolNode) consist of; only
/// who implements a kind of pool needs them directly.
#[async_trait]
pub trait NodeFiles: Send + Sync {
    /// What is at a path: the entry of the path itself first, and for a folder all that is below it,
    /// parents before children. A link at the path itself is followed, and none below it.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`](crate::error::ErrorKind::NotFound): the path, or the node, does not
    ///   exist.
    /// - [`ErrorKind::NodeLost`](crate::error::ErrorKind::NodeLost): the node has no machine now.
    /// - [`ErrorKind::Io`](crate::error::ErrorKind::Io): the node cannot read it, with the reason; or
    ///   the node is there and cannot be reached for a minute (temporary).
    /// - [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec): a device, a pipe or a socket
    ///   is there, or a file of the system without a size; or the path is none.
    ///
    /// # Cancel safety
    ///
    /// Reads only.
    async fn entries(&self, node: NodeIndex, path: &NodePath) -> Result<Vec<Entry>>;

    /// At most `length` bytes of a file from `offset` on; fewer, or none, at the end of the file.
    /// `length` is at most 2 MiB. With `identity`, the file must still be the one with this identity.
    ///
    /// # Errors
    ///
    /// As [`entries`](Self::entries), and [`ErrorKind::Changed`](crate::error::ErrorKind::Changed) for
    /// a file with another identity.
    ///
    /// # Cancel safety
    ///
    /// Reads only.
    async fn read(
        &self,
        node: NodeIndex,
        path: &NodePath,
        identity: Option<Identity>,
        offset: u64,
        length: u64,
    ) -> Result<Piece>;

    /// Removes an artifact from its node. One that is gone already is no error.
    ///
    /// # Errors
    ///
    /// As [`entries`](Self::entries).
    ///
    /// # Cancel safety
    ///
    /// The artifact exists completely, or it is gone for readers that begin later.
    async fn discard(&self, node: NodeIndex, artifact: &str) -> Result<()>;

    /// Gets how far a copy of files is, each half second and at its end. Default: nothing.
    fn report(&self, _transfer: &Transfer) {}
}

/// A path on a node, or within an artifact there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePath {
    /// The artifact's id; empty for a path of the node.
    artifact: String,
    path: PathBuf,
}

impl NodePath {
    /// A path on a node. A relative path begins at the working folder of the workers.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { artifact: String::new(), path: path.into() }
    }

    /// A path within the folder of an artifact: `manifest`, `content`, or below `content`.
    pub fn of_artifact(id: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self { artifact: id.into(), path: path.into() }
    }

    /// The artifact's id; `None` for a path of the node.
    pub fn artifact(&self) -> Option<&str> {
        Some(&*self.artifact).filter(|id| !id.is_empty())
    }

    /// The path itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path with this one below it; an empty one changes nothing.
    pub(crate) fn join(&self, below: &Path) -> Self {
        let path = if below.as_os_str().is_empty() { self.path.clone() } else { self.path.join(below) };
        Self { artifact: self.artifact.clone(), path }
    }

    /// The same path, which begins at this folder if it is a relative one of the node.
    pub(crate) fn within(&self, folder: &str) -> Self {
        match self.artifact() {
            None => Self::new(Path::new(folder).join(&self.path)),
            Some(_) => self.clone(),
        }
    }

    /// Checks that a system can have this path.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for an empty path, or one with a NUL character.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.bytes().is_empty() && !self.bytes().contains(&0) {
            return Ok(());
        }
        let message = format!("{:?} is no path of a file: it is empty or has a NUL character", self.path);
        Err(Error::new(ErrorKind::InvalidSpec, message))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.artifact() {
            None => write!(f, "{}", self.path.display()),
            Some(id) => write!(f, "artifact {id}, {}", self.path.display()),
        }
    }
}

/// A file, folder or link on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The path below the path that was asked for; empty for that path itself.
    pub path: PathBuf,
    /// What it is.
    pub kind: EntryKind,
    /// The identity of a file's content.
    pub identity: Identity,
}

impl Entry {
    /// An entry.
    pub fn new(path: impl Into<PathBuf>, kind: EntryKind, identity: Identity) -> Self {
        Self { path: path.into(), kind, identity }
    }
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A file, and whether its owner may execute it.
    File {
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A folder.
    Folder,
    /// A link to this path.
    Link(PathBuf),
}

/// What changes when the content of a file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// The number of the file in its file system.
    pub inode: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When it was modified last, in nanoseconds since 1970.
    pub modified: i64,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The identity of the file when the part was read.
    pub identity: Identity,
    /// The bytes.
    pub bytes: Bytes,
}

/// A path from its bytes.
pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// The most bytes of a piece.
pub(crate) const LARGEST_PIECE: u64 = 2 << 20;
