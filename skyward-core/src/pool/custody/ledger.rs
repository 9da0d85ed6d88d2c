//! The durable record of what this user's clients started and must end.
//!
//! There is one file per pool, in one folder per user. The client that owns a pool holds a lock on
//! the pool's file for as long as it owns the pool, so a file whose lock is free has no owner any
//! more. The kernel frees the lock when the client dies, however it dies.

mod lock;
mod open;
mod orphan;
mod owner;
mod parts;
mod record;

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(crate) use open::PoolLedger;
pub(crate) use orphan::Orphan;
pub(crate) use parts::{PartRecord, identity, part_of};
#[cfg(test)]
pub(crate) use record::now;
pub(crate) use record::{Head, Page};

use self::lock::Locked;
use super::timing::{ABANDONED, DISK_ANSWER};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::PoolId;
use crate::pool::spawn::spawn_blocking;

/// The folder of a user's ledger.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    folder: PathBuf,
}

/// A pool in the ledger.
#[derive(Debug)]
pub(crate) enum Found {
    /// A process holds the lock: the owner of the pool, or a process that ends what the owner left.
    Held { pool: PoolId, page: Page },
    /// The owner is gone; this process holds the lock now.
    Orphan(Orphan),
    /// The file cannot be opened.
    Closed { pool: PoolId, error: Error },
}

impl Found {
    /// The pool.
    pub(crate) fn pool(&self) -> &PoolId {
        match self {
            Self::Held { pool, .. } | Self::Closed { pool, .. } => pool,
            Self::Orphan(orphan) => &orphan.pool,
        }
    }
}

impl Ledger {
    /// The ledger of this user.
    pub(crate) fn of_user() -> Result<Self> {
        let from = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        let standard = || from("XDG_STATE_HOME").filter(|folder| folder.is_absolute()).map(|folder| folder.join(NAME));
        let home = || {
            let home = std::env::home_dir().filter(|home| home.is_absolute())?;
            Some(home.join(".local/state").join(NAME))
        };
        let chosen = match from(VARIABLE) {
            Some(chosen) => Some(std::path::absolute(&chosen).map_err(|error| cannot("find", &chosen, error))?),
            None => standard().or_else(home),
        };
        match chosen {
            Some(folder) => Ok(Self::at(folder.join("ledger"))),
            None => {
                Err(Error::new(ErrorKind::Ledger, "there is no folder for the ledger: the user has no home folder")
                    .with_hint(format!("set {VARIABLE} to a folder of your own that outlives the client")))
            }
        }
    }

    /// The ledger in this folder, which is created with the first pool.
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// All pools. Pools whose owner is gone are locked for this process until they are dropped.
    pub(crate) async fn read(self) -> Result<Vec<Found>> {
        blocking(move || self.pools()).await
    }

    fn pools(&self) -> Result<Vec<Found>> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| cannot("read", &self.folder, error))?,
        };
        let mut paths = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| cannot("read", &self.folder, error))?.path();
            match path.extension().and_then(OsStr::to_str) {
                Some(EXTENSION) => paths.push(path),
                Some(NEW) => sweep(&path),
                _ => {}
            }
        }
        paths.sort();
        Ok(paths.iter().filter_map(|path| look_at(path)).collect())
    }

    fn make(&self) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| cannot("make", &self.folder, error))
    }

    fn path(&self, pool: &PoolId) -> PathBuf {
        self.folder.join(format!("{pool}.{EXTENSION}"))
    }
}

/// Reads the file of a pool. `None` if the pool was forgotten meanwhile.
fn look_at(path: &Path) -> Option<Found> {
    let pool = PoolId::new(path.file_stem()?.to_str()?);
    let opened = File::options().read(true).write(true).open(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Err(error),
        // A file that can only be read is still worth reading.
        _ => File::open(path),
    });
    let closed = |error| Some(Found::Closed { pool: pool.clone(), error: cannot("open", path, error) });
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return closed(error),
    };
    let taken = match Locked::take(file) {
        Ok(taken) => taken,
        Err(error) => return closed(error),
    };
    // The last holder may have removed the file just before it freed the lock.
    if taken.as_ref().is_ok_and(|file| file.metadata().is_ok_and(|found| found.nlink() == 0)) {
        return None;
    }
    let mut bytes = Vec::new();
    if let Err(error) = taken.as_deref().unwrap_or_else(|file| file).take(LARGEST).read_to_end(&mut bytes) {
        return closed(error);
    }
    let page = Page::read(&bytes);
    Some(match taken {
        Ok(file) => {
            // The owner of a lock may be in the middle of a line.
            if page.damaged > 0 {
                tracing::warn!(%pool, path = %path.display(), records = page.damaged, "records of the ledger are damaged, and skipped");
            }
            Found::Orphan(Orphan::new(pool, path.to_owned(), file, page))
        }
        Err(_) => Found::Held { pool, page },
    })
}

/// Removes the rest of a file that never got its final name. Nothing was started for such a file.
fn sweep(path: &Path) {
    let old = |file: &File| {
        let changed = file.metadata().and_then(|found| found.modified()).ok()?;
        SystemTime::now().duration_since(changed).ok().filter(|age| *age > ABANDONED)
    };
    if File::open(path).is_ok_and(|file| old(&file).is_some() && matches!(Locked::take(file), Ok(Ok(_)))) {
        // If this fails, the next look tries again.
        let _ = std::fs::remove_file(path);
    }
}

/// Does work on the ledger on a thread of its own. The work goes on if it takes too long.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::time::timeout(DISK_ANSWER, spawn_blocking(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => {
            Err(Error::new(ErrorKind::Ledger, "the access to the ledger was interrupted").with_source(error))
        }
        Err(_) => {
            Err(Error::new(ErrorKind::Ledger, format!("the ledger's disk did not answer within {DISK_ANSWER:?}"))
                .with_hint(format!("set {VARIABLE} to a folder on a disk that answers")))
        }
    }
}

fn cannot(what: &str, path: &Path, error: io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("free some space there, or set {VARIABLE} to a folder with space")
        }
        io::ErrorKind::Unsupported => format!("set {VARIABLE} to a folder on a disk of this host, which has locks"),
        _ => format!("set {VARIABLE} to a folder of your own that outlives the client"),
    };
    Error::new(ErrorKind::Ledger, format!("cannot {what} the ledger {}", path.display()))
        .with_hint(hint)
        .with_source(error)
}

/// The variable that names the folder for state that outlives a client.
const VARIABLE: &str = "SKYWARD_STATE_DIR";
const NAME: &str = "skyward";
const EXTENSION: &str = "ledger";
/// The extension of a file that does not have its final name yet.
const NEW: &str = "new";
/// The most bytes that are read from a file; 100 000 machines need fewer.
const LARGEST: u64 = 256 << 20;

#[cfg(test)]
pub(crate) mod tests;
