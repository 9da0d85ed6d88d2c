//! The objects of one name: calls that are repeated while they fail for now.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};

use super::claim::Owner;
use super::error::newer;
use super::layout::{Layout, number_of};
use super::manifest::{LONGEST_MANIFEST, Manifest, Unreadable};
use super::timing::{FIRST_PAUSE, LONGEST_PAUSE, REPEATS};
use crate::error::{ErrorKind, Result};
use crate::storage::{Created, Object, ObjectPath, Storage};

/// A name in a storage.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) storage: Storage,
    pub(super) layout: Layout,
}

/// An object with a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) number: u64,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
}

/// What the object of a commit is.
#[derive(Debug)]
pub(super) enum Found {
    Manifest(Manifest),
    /// It cannot be read, for this reason.
    Broken(String),
    /// It is not there.
    Gone,
}

impl Store {
    /// After an error the object may be there. [`Created::Exists`] may be due to this very call: its
    /// answer may be lost.
    pub(super) async fn create(&self, path: &ObjectPath, bytes: &Bytes) -> Result<Created> {
        repeated(|| self.storage.create(path, bytes.clone())).await
    }

    pub(super) async fn read(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes> {
        repeated(|| self.storage.read(path, range.clone())).await
    }

    pub(super) async fn list(&self, prefix: &ObjectPath) -> Result<Vec<Object>> {
        repeated(|| self.storage.list(prefix)).await
    }

    pub(super) async fn remove(&self, path: &ObjectPath) -> Result<()> {
        repeated(|| self.storage.remove(path)).await
    }

    /// Removes many objects, some at a time.
    pub(super) async fn remove_all(&self, paths: impl IntoIterator<Item = ObjectPath>) -> Result<()> {
        let removals = stream::iter(paths).map(|path| async move { self.remove(&path).await });
        let mut removed = std::pin::pin!(removals.buffer_unordered(AT_ONCE));
        while let Some(removed) = removed.next().await {
            removed?;
        }
        Ok(())
    }

    /// All commits and claims, in their order.
    pub(super) async fn commits(&self) -> Result<Vec<Numbered>> {
        self.numbered(&self.layout.commits()).await
    }

    /// All owners, in their order.
    pub(super) async fn owners(&self) -> Result<Vec<Numbered>> {
        self.numbered(&self.layout.owners()).await
    }

    /// All parts of all saves.
    pub(super) async fn data(&self) -> Result<Vec<Object>> {
        self.list(&self.layout.data()).await
    }

    async fn numbered(&self, folder: &ObjectPath) -> Result<Vec<Numbered>> {
        let number = |Object { path, size, modified }: Object| {
            number_of(&path, folder).map(|number| Numbered { number, size, modified })
        };
        let mut found: Vec<Numbered> = self.list(folder).await?.into_iter().filter_map(number).collect();
        found.sort_by_key(|it| it.number);
        Ok(found)
    }

    /// The manifest with this sequence number.
    ///
    /// # Errors
    ///
    /// Those of the storage, and an error that says to update for a manifest of a newer version.
    pub(super) async fn manifest(&self, sequence: u64) -> Result<Found> {
        // One byte more shows that there are too many.
        let json = match self.read(&self.layout.commit(sequence), 0..LONGEST_MANIFEST + 1).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Gone),
            json => json?,
        };
        if json.len() as u64 > LONGEST_MANIFEST {
            return Ok(Found::Broken(format!("its manifest has more than {LONGEST_MANIFEST} bytes")));
        }
        let decoded = match json.len() {
            // A long list takes its time.
            LONG.. => match tokio::task::spawn_blocking(move || Manifest::decode(&json)).await {
                Ok(decoded) => decoded,
                Err(_) => Err(Unreadable::Broken("the work on its manifest was given up".to_owned())),
            },
            _ => Manifest::decode(&json),
        };
        match decoded {
            Ok(manifest) => Ok(Found::Manifest(manifest)),
            Err(Unreadable::Broken(why)) => Ok(Found::Broken(why)),
            Err(Unreadable::Newer(version)) => Err(newer(self.layout.name(), version)),
        }
    }

    /// The claim and the pool that an owner object names; `None` if it is gone.
    pub(super) async fn owner(&self, number: u64) -> Result<Option<(String, Owner)>> {
        match self.read(&self.layout.owner(number), 0..LONGEST_OWNER).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(json) => Ok(Some(match Manifest::decode(&json) {
                Ok(Manifest { claim, owner, .. }) => (claim, owner),
                Err(_) => (String::new(), Owner { pool: "of another version".into(), host: "an unknown host".into() }),
            })),
        }
    }
}

/// Repeats a call while it fails for now.
async fn repeated<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> Result<T> {
    let (end, mut pause): (_, Duration) = (Instant::now() + REPEATS, FIRST_PAUSE);
    loop {
        match call().await {
            Err(error) if error.is_temporary() && Instant::now() + pause < end => {
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            answer => return answer,
        }
    }
}

/// The bytes from which on a manifest is read on a thread of its own.
const LONG: usize = 256 << 10;
/// The most bytes of an owner object that are read.
const LONGEST_OWNER: u64 = 64 << 10;
/// How many objects are removed at once.
const AT_ONCE: usize = 16;
