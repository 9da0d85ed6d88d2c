//! The record of a pool on this host. Its lock shows that its client lives.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::lock::wait_for;
use crate::provider::uptime::Moment;

/// The record of a pool.
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

    /// The record in a pool's folder, if it exists and can be read.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(RECORD)).ok()?).ok()
    }

    /// Writes the record into a pool's folder, unless there is one, and locks it until the file is
    /// dropped or this process ends.
    pub(super) async fn hold(&self, folder: &Path) -> io::Result<File> {
        let path = folder.join(RECORD);
        if !path.exists() {
            // Created beside its place and moved there, so that nobody reads half of it.
            let new = folder.join(format!(".new-{:016x}", rand::random::<u64>()));
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
            let written = made.and_then(|file| Ok(serde_json::to_writer(file, self)?));
            written.and_then(|()| std::fs::rename(&new, &path)).inspect_err(|_| drop(std::fs::remove_file(&new)))?;
        }
        let file = File::open(&path)?;
        // Shared: several values of the provider may lock it. A check takes an exclusive lock for a
        // moment.
        match wait_for(&path, || file.try_lock_shared()).await {
            Ok(()) => Ok(file),
            // On a disk without locks, checks fail in the same way.
            Err(error) if NO_LOCKS.map(Some).contains(&Errno::from_io_error(&error)) => Ok(file),
            Err(error) => Err(error),
        }
    }
}

/// Notes in a pool's folder that something was created there now.
pub(super) fn note(folder: &Path) -> io::Result<()> {
    let Some(now) = Moment::now() else { return Ok(()) };
    let new = folder.join(format!(".new-{:016x}", rand::random::<u64>()));
    let written =
        std::fs::write(&new, serde_json::to_vec(&now)?).and_then(|()| std::fs::rename(&new, folder.join(NOTE)));
    written.inspect_err(|_| drop(std::fs::remove_file(&new)))
}

/// How long ago something was created in a pool's folder last, by a clock that nobody can set. A
/// folder of an older version has no note; such a folder counts as one of an earlier boot, because
/// what lives is recognised in other ways.
pub(super) fn age(folder: &Path) -> Duration {
    let Some(now) = Moment::now() else { return Duration::ZERO };
    let noted = std::fs::read(folder.join(NOTE)).ok().and_then(|json| serde_json::from_slice::<Moment>(&json).ok());
    noted.map_or_else(|| Moment::of_another_boot().age(&now), |noted| noted.age(&now))
}

/// Whether some process locks the record in a pool's folder. Also true where that cannot be
/// determined.
pub(super) fn is_held(folder: &Path) -> bool {
    match File::open(folder.join(RECORD)) {
        Ok(file) => file.try_lock().is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// The locked record that all values of this process share: to others, this process is one client.
pub(super) fn of_process(record: File) -> io::Result<Arc<File>> {
    let mut all = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, held| held.strong_count() > 0);
    let name = name(&record)?;
    if let Some(held) = all.get(&name).and_then(Weak::upgrade) {
        return Ok(held);
    }
    let record = Arc::new(record);
    all.insert(name, Arc::downgrade(&record));
    Ok(record)
}

/// Whether another process keeps the record in a pool's folder locked. A check, and a machine that
/// is added, lock it for a moment only.
pub(super) async fn is_kept(folder: &Path) -> io::Result<bool> {
    let file = match File::open(folder.join(RECORD)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if HELD.lock().unwrap_or_else(PoisonError::into_inner).get(&name(&file)?).is_some_and(|of| of.strong_count() > 0) {
        return Ok(false);
    }
    let end = Instant::now() + MOMENT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(false),
            Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(MOMENT / 20).await,
            Err(TryLockError::WouldBlock) => return Ok(true),
            Err(TryLockError::Error(error)) if NO_LOCKS.map(Some).contains(&Errno::from_io_error(&error)) => {
                return Ok(false);
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// What distinguishes a file from all others that exist.
fn name(file: &File) -> io::Result<(u64, u64)> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}

/// The records that this process holds.
static HELD: Mutex<BTreeMap<(u64, u64), Weak<File>>> = Mutex::new(BTreeMap::new());
/// How long a lock must be kept to be that of a client.
const MOMENT: Duration = Duration::from_millis(200);
/// The errors of a disk without locks.
const NO_LOCKS: [Errno; 3] = [Errno::NOTSUP, Errno::NOLCK, Errno::INVAL];
/// The file with the moment at which something was created last.
const NOTE: &str = ".created";
/// The file in the folder of each pool.
pub(super) const RECORD: &str = "pool.json";
