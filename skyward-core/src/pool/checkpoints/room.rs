//! How much of a pool's checkpoints is in the client's memory at a time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The room for transfers of all names of a pool. Clones share it.
#[derive(Clone)]
pub(super) struct Room {
    stores: Arc<Semaphore>,
    restores: Arc<Semaphore>,
}

impl Room {
    pub(super) fn new() -> Self {
        Self { stores: Arc::new(Semaphore::new(STORES)), restores: Arc::new(Semaphore::new(RESTORES)) }
    }

    /// Waits until the saves of another rank may be stored.
    pub(super) async fn to_store(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes the semaphore.
        Arc::clone(&self.stores).acquire_owned().await.ok()
    }

    /// Waits until another node may be restored.
    pub(super) async fn to_restore(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.restores).acquire_owned().await.ok()
    }
}

/// How many ranks are stored at a time: each has a part of 32 MiB in memory, and some pieces.
const STORES: usize = 2;
/// How many nodes are restored at a time: each has eight pieces of 2 MiB in memory.
const RESTORES: usize = 4;
