//! The handle to a storage.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::timeout;

use super::error::silent;
use super::folder::Folder;
use super::objects::{Created, Object, StoredObjects};
use super::path::ObjectPath;
use super::scratch::Scratch;
use super::timing::STORAGE_ANSWER;
use crate::error::Result;

/// Where bytes outlive machines: checkpoints are kept there. It is cheap to clone.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::storage::Storage;
///
/// let storage = Storage::folder("/data/runs");
/// assert_eq!(storage.to_string(), "the folder /data/runs");
/// ```
#[derive(Clone)]
pub struct Storage(Arc<dyn StoredObjects>);

impl Storage {
    /// A folder of the client's host. It is created when it is used first, for its owner alone. A
    /// relative path begins at the working folder of this process at this moment.
    ///
    /// Several processes, also of several hosts that share the file system, may use one folder.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::of(Folder::new(std::path::absolute(&path).unwrap_or(path)))
    }

    /// A folder of this host that ends with the last clone of the handle.
    pub(crate) fn scratch() -> Self {
        Self::of(Scratch::new())
    }

    /// A store of any kind.
    pub fn of(objects: impl StoredObjects) -> Self {
        Self(Arc::new(objects))
    }

    /// What it is, for people.
    pub(crate) fn name(&self) -> String {
        self.0.name()
    }

    /// As [`StoredObjects::create`], with a deadline.
    pub(crate) async fn create(&self, path: &ObjectPath, bytes: Bytes) -> Result<Created> {
        self.answer("create", path, self.0.create(path, bytes)).await
    }

    /// As [`StoredObjects::read`], with a deadline.
    pub(crate) async fn read(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes> {
        self.answer("read", path, self.0.read(path, range)).await
    }

    /// As [`StoredObjects::list`], with a deadline.
    pub(crate) async fn list(&self, prefix: &ObjectPath) -> Result<Vec<Object>> {
        self.answer("list", prefix, self.0.list(prefix)).await
    }

    /// As [`StoredObjects::remove`], with a deadline.
    pub(crate) async fn remove(&self, path: &ObjectPath) -> Result<()> {
        self.answer("remove", path, self.0.remove(path)).await
    }

    async fn answer<T>(&self, verb: &str, path: &ObjectPath, call: impl Future<Output = Result<T>>) -> Result<T> {
        let silence = |_| silent(&format!("{verb} {path}"), &self.name(), STORAGE_ANSWER);
        timeout(STORAGE_ANSWER, call).await.unwrap_or_else(|elapsed| Err(silence(elapsed)))
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name())
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Storage({})", self.0.name())
    }
}
