//! A pool in the ledger whose owner is gone.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use super::cannot;
use super::record::{Page, VERSION};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, PoolId};

/// A pool that no other process holds. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) pool: PoolId,
    pub(crate) page: Page,
    path: PathBuf,
    /// The file, which holds the lock.
    _file: File,
}

impl Orphan {
    pub(super) fn new(pool: PoolId, path: PathBuf, file: File, page: Page) -> Self {
        Self { pool, page, path, _file: file }
    }

    /// How long to go on looking, `looked` after the first look, for machines that were requested
    /// and are not known. A machine is known if it is on record or among those in `known`. The
    /// provider's list settles in `settles_in`. If no machine was requested, the client was killed
    /// while the provider prepared the pool, and what it requested for that may still appear.
    ///
    /// The times on record are for people and decide nothing, because the clock may have been set
    /// since.
    pub(crate) fn unsettled(
        &self,
        known: impl Fn(&LaunchId) -> bool,
        looked: Duration,
        settles_in: Duration,
    ) -> Duration {
        let facts = &self.page.machines;
        let is_accounted = |launch| known(launch) || facts.iter().any(|machine| machine.launch == *launch);
        let intents = &self.page.intents;
        match !intents.is_empty() && intents.iter().all(|intent| is_accounted(&intent.launch)) {
            true => Duration::ZERO,
            false => settles_in.saturating_sub(looked),
        }
    }

    /// Removes the pool from the ledger, because the whole pool is confirmed gone.
    pub(crate) fn forget(self) -> Result<()> {
        if let Some(version) = self.page.newer() {
            return Err(Error::new(
                ErrorKind::Ledger,
                format!(
                    "the ledger of this pool was written by a newer version: {version}, but this client knows {VERSION}"
                ),
            )
            .with_context("path", self.path.display())
            .with_hint(
                "the machines that this version can read are gone; call `reap` with the newer version to be sure of the rest",
            ));
        }
        if self.page.head.is_none() {
            return Err(Error::new(
                ErrorKind::Ledger,
                "the first record is damaged, so the pool's provider is not known",
            )
            .with_context("path", self.path.display())
            .with_hint("check the provider's own list of machines, then remove the file"));
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(cannot("remove", &self.path, error)),
            _ => Ok(()),
        }
    }
}
