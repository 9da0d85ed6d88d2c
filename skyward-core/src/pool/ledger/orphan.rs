//! A pool whose owner is gone.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use super::cannot;
use super::record::{Page, VERSION};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, PoolId};

/// A pool that nobody else holds. Dropping it lets others have it.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) pool: PoolId,
    pub(crate) page: Page,
    path: PathBuf,
    /// Its lock.
    _file: File,
}

impl Orphan {
    pub(super) fn new(pool: PoolId, path: PathBuf, file: File, page: Page) -> Self {
        Self { pool, page, path, _file: file }
    }

    /// How long to go on looking, after `looked`, at a provider whose list settles in `settles_in`, for a machine that was asked for and is not known: neither on record nor among those in `known`. Where none was asked for, the
    /// client was killed while the provider prepared the pool, and what was asked for then may still come.
    ///
    /// The times on record are for people, and decide nothing: the clock may have been set since.
    pub(crate) fn unsettled(
        &self,
        known: impl Fn(&LaunchId) -> bool,
        looked: Duration,
        settles_in: Duration,
    ) -> Duration {
        let facts = &self.page.machines;
        let told = |launch| known(launch) || facts.iter().any(|machine| machine.launch == *launch);
        let intents = &self.page.intents;
        match !intents.is_empty() && intents.iter().all(|intent| told(&intent.launch)) {
            true => Duration::ZERO,
            false => settles_in.saturating_sub(looked),
        }
    }

    /// Removes it from the ledger: all of it is confirmed gone.
    pub(crate) fn forget(self) -> Result<()> {
        if let Some(version) = self.page.newer() {
            return Err(Error::new(
                ErrorKind::Ledger,
                format!(
                    "the ledger of this pool was written by a newer version: {version}, and this one knows {VERSION}"
                ),
            )
            .with_context("path", self.path.display())
            .with_hint(
                "what this version understands of it has ended; reap with the newer version to be sure of the rest",
            ));
        }
        if self.page.head.is_none() {
            return Err(Error::new(
                ErrorKind::Ledger,
                "the first record is damaged, so the pool's provider is not known",
            )
            .with_context("path", self.path.display())
            .with_hint("look at the provider's own list of machines, then remove the file"));
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(cannot("remove", &self.path, error)),
            _ => Ok(()),
        }
    }
}
