//! The record of a pool on this host, whose lock says that its client lives.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// What is written of a pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) owner: String,
    lease_ms: u64,
}

impl Written {
    pub(super) fn new(owner: &str, lease: Duration) -> Self {
        Self { owner: owner.to_owned(), lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX) }
    }

    pub(super) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// The record in a pool's folder, if there is one that can be read.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(RECORD)).ok()?).ok()
    }

    /// Writes it into a pool's folder, unless there is one, and holds it until the file is dropped or this process ends.
    pub(super) fn hold(&self, folder: &Path) -> io::Result<File> {
        let path = folder.join(RECORD);
        if !path.exists() {
            // Made beside its place and moved there, so that no half of it is ever read.
            let new = folder.join(format!(".new-{:016x}", rand::random::<u64>()));
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
            let written = made.and_then(|file| Ok(serde_json::to_writer(file, self)?));
            written.and_then(|()| std::fs::rename(&new, &path)).inspect_err(|_| drop(std::fs::remove_file(&new)))?;
        }
        let file = File::open(&path)?;
        // Shared: several values of the provider may hold it. Whoever looks has it alone, for a moment.
        match flock(&file, FlockOperation::LockShared) {
            // A disk without locks: whoever looks finds that, too.
            Ok(()) | Err(Errno::NOTSUP | Errno::NOLCK | Errno::INVAL) => Ok(file),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether some process holds the record in a pool's folder, or it cannot be said.
pub(super) fn is_held(folder: &Path) -> bool {
    match File::open(folder.join(RECORD)) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// In the folder of each pool.
pub(super) const RECORD: &str = "pool.json";
