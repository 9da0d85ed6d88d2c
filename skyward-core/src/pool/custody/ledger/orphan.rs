//! A pool in the ledger whose owner is gone.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use super::cannot;
use super::lock::Locked;
use super::record::{Page, VERSION};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, PoolId};

/// A pool that no other process holds. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) pool: PoolId,
    pub(crate) page: Page,
    path: PathBuf,
    file: Locked,
}

impl Orphan {
    pub(super) fn new(pool: PoolId, path: PathBuf, file: Locked, page: Page) -> Self {
        Self { pool, page, path, file }
    }

    /// The error of a pool whose client may live on another machine: it ran there, and a file system
    /// of several machines may not show its lock here.
    pub(crate) fn lives_elsewhere(&self) -> Option<Error> {
        let machine = self.page.head.as_ref()?.owner.other_machine()?;
        if is_of_this_machine_alone(&self.file) {
            return None;
        }
        let message = format!("its client ran on another machine, `{machine}`, and may live there");
        Some(Error::new(ErrorKind::Identity, message).with_context("path", self.path.display()).with_hint(
            "the record is kept, because the ledger is on a file system that may not show here who has locked it: \
                 call `reap` on that machine, or `reap_expired` on any",
        ))
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

/// Whether a file is on a file system that no other machine can have mounted at the same time, so
/// that all its locks are visible.
fn is_of_this_machine_alone(file: &File) -> bool {
    // The values are unsigned, in types that differ between processors.
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&(found.f_type as u64 & 0xffff_ffff)))
}

/// The types (statfs(2)) of ext2 to ext4, XFS, Btrfs, tmpfs, overlays, ZFS, F2FS and bcachefs.
const LOCAL: [u64; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010, 0xca45_1a4e];
