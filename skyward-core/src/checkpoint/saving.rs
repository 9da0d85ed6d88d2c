//! Saves the files of a checkpoint on this host.

use std::path::Path;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use super::commit::Commit;
use super::error::damaged;
use super::store::Store;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Entry, EntryKind, Identity, NodeFiles, NodePath, PartKind, Piece, Source, receive};
use crate::ids::NodeIndex;

/// The files of a commit, read as those of a node are.
struct StoredFiles<'s> {
    store: &'s Store,
    commit: &'s Commit,
}

/// Saves the union of a commit as the folder `target`, as an artifact is saved.
pub(super) async fn save(store: &Store, commit: &Commit, target: &Path) -> Result<()> {
    let files = StoredFiles { store, commit };
    let name = format!("step {} of {}", commit.step(), store.layout.name());
    let source =
        Source { files: &files, node: NodeIndex(0), name, base: NodePath::new(""), parts: commit.union().to_vec() };
    let received = receive(source, target).await.map_err(|error| match error.kind() {
        ErrorKind::Damaged => {
            damaged(store.layout.name(), commit.sequence(), "bytes of its files are other ones").with_source(error)
        }
        ErrorKind::NotFound => {
            damaged(store.layout.name(), commit.sequence(), "a part of its data is gone").with_source(error)
        }
        _ => error,
    });
    received?.save().await
}

#[async_trait]
impl NodeFiles for StoredFiles<'_> {
    async fn entries(&self, _: NodeIndex, _: &NodePath) -> Result<Vec<Entry>> {
        let entry = |part: &crate::files::Part| {
            let kind = match &part.kind {
                PartKind::File { executable, .. } => EntryKind::File { executable: *executable },
                PartKind::Folder => EntryKind::Folder,
                PartKind::Link(target) => EntryKind::Link(target.clone()),
            };
            Entry::new(&part.path, kind, Identity { inode: 0, size: part.size(), modified: 0 })
        };
        Ok(self.commit.union().iter().map(entry).collect())
    }

    async fn read(
        &self,
        _: NodeIndex,
        path: &NodePath,
        _: Option<Identity>,
        offset: u64,
        length: u64,
    ) -> Result<Piece> {
        let mut bytes = BytesMut::new();
        for (object, range) in self.commit.spans(path.path(), offset, length) {
            let piece = self.store.read(&object, range).await?;
            bytes.extend_from_slice(&piece);
        }
        let bytes: Bytes = bytes.freeze();
        let identity = Identity { inode: 0, size: offset + bytes.len() as u64, modified: 0 };
        Ok(Piece { identity, bytes })
    }

    async fn discard(&self, _: NodeIndex, _: &str) -> Result<()> {
        Err(Error::new(ErrorKind::InvalidSpec, "a checkpoint has no artifacts"))
    }
}
