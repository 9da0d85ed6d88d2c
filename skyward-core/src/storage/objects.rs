//! The contract of storages.

use std::ops::Range;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

use super::path::ObjectPath;
use crate::error::Result;

/// A store of objects: what [`Storage`](super::Storage) consists of. Only who adds a kind of store
/// needs it. `testkit::storage_suite` checks each line of the contract:
///
/// - Of all creators of one name, one gets [`Created::New`], and the object has the bytes of that one.
/// - An object appears whole or not at all, whatever ends the creator.
/// - What is created is durable when the call returns, also if it returns [`Created::Exists`].
/// - A list has all objects that were created, and none that were removed, before it was asked for.
/// - All times of a store come from one clock.
/// - A call that is dropped takes effect or not; it leaves nothing else that stays for ever.
///
/// An error that a retry may help against is [temporary](crate::Error::is_temporary). A call that
/// failed may have taken effect.
#[async_trait]
pub trait StoredObjects: Send + Sync + 'static {
    /// What the store is, for people: `the folder /data/runs`.
    fn name(&self) -> String;

    /// Creates an object, unless there is one of this name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage) if the store refuses it or fails.
    ///
    /// # Cancel safety
    ///
    /// The object exists whole, or not at all.
    async fn create(&self, path: &ObjectPath, bytes: Bytes) -> Result<Created>;

    /// The bytes of an object in this range: fewer, or none, at its end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if there is no such object, otherwise as
    /// [`create`](Self::create).
    ///
    /// # Cancel safety
    ///
    /// Reads only.
    async fn read(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes>;

    /// All objects below a name, sorted by their names. Nothing below it is no error.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    ///
    /// # Cancel safety
    ///
    /// Changes no object.
    async fn list(&self, prefix: &ObjectPath) -> Result<Vec<Object>>;

    /// Removes an object. One that is gone already is no error.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    ///
    /// # Cancel safety
    ///
    /// The object exists whole, or not at all.
    async fn remove(&self, path: &ObjectPath) -> Result<()>;
}

/// What [`StoredObjects::create`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object is new.
    New,
    /// There is an object of this name, which stays as it is.
    Exists,
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// Its name.
    pub path: ObjectPath,
    /// Its length in bytes.
    pub size: u64,
    /// When it was created, by the clock of the store.
    pub modified: SystemTime,
}

impl Object {
    /// An object.
    pub fn new(path: ObjectPath, size: u64, modified: SystemTime) -> Self {
        Self { path, size, modified }
    }
}
