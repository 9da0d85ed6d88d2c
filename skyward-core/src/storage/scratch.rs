//! A storage that ends with its last user.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::folder::Folder;
use super::objects::{Created, Object, StoredObjects};
use super::path::ObjectPath;
use crate::error::Result;

/// A folder among the temporary files of this host, which is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Scratch(Folder);

impl Scratch {
    pub(super) fn new() -> Self {
        let name = format!("skyward-scratch-{:032x}", rand::random::<u128>());
        Self(Folder::new(std::env::temp_dir().join(name)))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It is made at the first use; what is left is among the temporary files.
        let _ = std::fs::remove_dir_all(self.0.path());
    }
}

#[async_trait]
impl StoredObjects for Scratch {
    fn name(&self) -> String {
        self.0.name()
    }

    async fn create(&self, path: &ObjectPath, bytes: Bytes) -> Result<Created> {
        self.0.create(path, bytes).await
    }

    async fn read(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes> {
        self.0.read(path, range).await
    }

    async fn list(&self, prefix: &ObjectPath) -> Result<Vec<Object>> {
        self.0.list(prefix).await
    }

    async fn remove(&self, path: &ObjectPath) -> Result<()> {
        self.0.remove(path).await
    }
}
