//! A pool whose owner is gone.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use super::record::{self, Page};
use super::{cannot, record::VERSION};
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

    /// How long until the provider must know every machine that was asked for; those in `known` it does already.
    pub(crate) fn unsettled(&self, known: impl Fn(&LaunchId) -> bool) -> Duration {
        let facts = &self.page.machines;
        let open = self
            .page
            .intents
            .iter()
            .filter(|intent| !known(&intent.launch) && facts.iter().all(|machine| machine.launch != intent.launch));
        let Some(last) = open.map(|intent| intent.at).max() else { return Duration::ZERO };
        // A clock that was set back makes nothing older or younger than it can be.
        let age = Duration::from_secs(record::now().saturating_sub(last));
        SETTLED.saturating_sub(age)
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

/// A machine that was asked for when its client died may take this long to appear in its provider's list.
const SETTLED: Duration = Duration::from_secs(5);
