//! Files of a node that are in memory, for tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::{Check, Entry, EntryKind, Identity, NodeFiles, NodePath, Part, PartKind, Piece};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Transfer;
use crate::ids::NodeIndex;
use crate::spec::hex;

/// A node with files.
#[derive(Debug, Default)]
pub(crate) struct MemoryFiles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, (Bytes, Identity)>,
    writes: u64,
    reads: usize,
    /// The read that never gets an answer.
    hangs_at: Option<usize>,
    transfers: Vec<Transfer>,
    fails: Option<ErrorKind>,
}

impl MemoryFiles {
    /// Writes a file; `inode` is its number.
    pub(crate) fn write(&self, path: impl Into<PathBuf>, inode: u64, content: impl Into<Bytes>) {
        let (mut state, content) = (self.lock(), content.into());
        state.writes += 1;
        let identity = Identity { inode, size: content.len() as u64, modified: state.writes as i64 };
        state.files.insert(path.into(), (content, identity));
    }

    pub(crate) fn remove(&self, path: &str) {
        self.lock().files.remove(Path::new(path));
    }

    /// All reads fail from now on.
    pub(crate) fn fail(&self, kind: ErrorKind) {
        self.lock().fails = Some(kind);
    }

    pub(crate) fn hang_at(&self, read: usize) {
        self.lock().hangs_at = Some(read);
    }

    pub(crate) fn reads(&self) -> usize {
        self.lock().reads
    }

    /// The reports of copies.
    pub(crate) fn transfers(&self) -> Vec<Transfer> {
        self.lock().transfers.clone()
    }

    /// A part that is the file at a path, with its digest.
    pub(crate) fn part(&self, path: &str, executable: bool) -> Part {
        let content = self.lock().files[Path::new(path)].0.clone();
        let check = Check::Digest(hex(&<sha2::Sha256 as sha2::Digest>::digest(&content)));
        Part { path: path.into(), kind: PartKind::File { size: content.len() as u64, executable, check } }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl NodeFiles for MemoryFiles {
    async fn entries(&self, _: NodeIndex, path: &NodePath) -> Result<Vec<Entry>> {
        let found = self.lock().files.get(path.path()).map(|(_, identity)| *identity);
        let identity = found.ok_or_else(missing)?;
        Ok(vec![Entry::new("", EntryKind::File { executable: false }, identity)])
    }

    async fn read(
        &self,
        _: NodeIndex,
        path: &NodePath,
        wanted: Option<Identity>,
        offset: u64,
        length: u64,
    ) -> Result<Piece> {
        let hangs = {
            let mut state = self.lock();
            state.reads += 1;
            state.hangs_at.is_some_and(|at| state.reads >= at)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let fails = self.lock().fails;
        if let Some(kind) = fails {
            return Err(Error::new(kind, "it fails"));
        }
        let found = self.lock().files.get(path.path()).cloned();
        let (content, identity) = found.ok_or_else(missing)?;
        if wanted.is_some_and(|wanted| wanted != identity) {
            return Err(Error::new(ErrorKind::Changed, "it changed").temporary());
        }
        let begin = content.len().min(offset as usize);
        let end = content.len().min((offset + length) as usize);
        Ok(Piece { identity, bytes: content.slice(begin..end) })
    }

    async fn discard(&self, _: NodeIndex, _: &str) -> Result<()> {
        Ok(())
    }

    fn report(&self, transfer: &Transfer) {
        self.lock().transfers.push(transfer.clone());
    }
}

fn missing() -> Error {
    Error::new(ErrorKind::NotFound, "there is no such file").temporary()
}
