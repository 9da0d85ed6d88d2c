//! A folder of this host as a storage.
//!
//! Everything is done by descriptors of folders, so no link within the storage is followed.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, fsync, linkat, mkdirat, open, openat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

use super::error::{failed, missing, refused};
use super::objects::{Created, Object, StoredObjects};
use super::path::{ObjectPath, is_part};
use super::timing::LEFTOVER_AGE;
use crate::error::Result;
use crate::files::write_sliced;

/// A folder.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Does something with the files, on a thread where it may take its time.
    async fn blocking<T: Send + 'static>(
        &self,
        what: String,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (store, folder) = (self.name(), self.0.clone());
        match tokio::task::spawn_blocking(move || work(&folder)).await {
            Ok(done) => done.map_err(|error| failed(&what, &store, error)),
            Err(error) => Err(refused(format!("cannot {what} in {store}: the work was given up")).with_source(error)),
        }
    }
}

#[async_trait]
impl StoredObjects for Folder {
    fn name(&self) -> String {
        format!("the folder {}", self.0.display())
    }

    async fn create(&self, path: &ObjectPath, bytes: Bytes) -> Result<Created> {
        let object = path.clone();
        self.blocking(format!("create {path}"), move |root| create(root, &object, &bytes)).await
    }

    async fn read(&self, path: &ObjectPath, range: Range<u64>) -> Result<Bytes> {
        let object = path.clone();
        let read = self.blocking(format!("read {path}"), move |root| read(root, &object, range)).await?;
        read.ok_or_else(|| missing(path, &self.name()))
    }

    async fn list(&self, prefix: &ObjectPath) -> Result<Vec<Object>> {
        let below = prefix.clone();
        self.blocking(format!("list {prefix}"), move |root| list(root, &below)).await
    }

    async fn remove(&self, path: &ObjectPath) -> Result<()> {
        let object = path.clone();
        self.blocking(format!("remove {path}"), move |root| remove(root, &object)).await
    }
}

fn create(root: &Path, path: &ObjectPath, bytes: &[u8]) -> io::Result<Created> {
    make_root(root)?;
    let (folders, name) = split(path);
    for _ in 0..MOST_RACES {
        let chain = match open_chain(root, &folders, true) {
            Err(Errno::NOENT) => continue,
            chain => chain?,
        };
        let Some(folder) = chain.last() else { break };
        let created = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Created::Exists,
            // Who removes the last object of a folder removes the folder too.
            Err(Errno::NOENT) => match put(folder, name, bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                created => created?,
            },
            Err(error) => return Err(error.into()),
        };
        // Another creator may have made a folder, or the object itself, and not have synced it yet.
        for folder in chain.iter().rev() {
            fsync(folder)?;
        }
        return Ok(created);
    }
    Err(io::Error::new(io::ErrorKind::Interrupted, "others have removed its folder again and again"))
}

/// Writes a file under a name of its own, and gives it the object's name if that is free.
fn put(folder: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<Created> {
    let own = format!("{LEFTOVER}{:016x}", rand::random::<u64>());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(openat(folder, &own, flags, Mode::RUSR | Mode::WUSR)?);
    let named =
        write_sliced(&mut file, bytes).and_then(|()| file.sync_all()).and_then(|()| give_name(folder, &own, name));
    match unlinkat(folder, &own, AtFlags::empty()) {
        // It was renamed.
        Err(Errno::NOENT) => named,
        removed => named.and_then(|created| removed.map(|()| created).map_err(io::Error::from)),
    }
}

fn give_name(folder: &OwnedFd, own: &str, name: &str) -> io::Result<Created> {
    let named = match linkat(folder, own, folder, name, AtFlags::empty()) {
        // File systems without hard links.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
            renameat_with(folder, own, folder, name, RenameFlags::NOREPLACE)
        }
        linked => linked,
    };
    match named {
        Ok(()) => Ok(Created::New),
        Err(Errno::EXIST) => Ok(Created::Exists),
        Err(Errno::INVAL) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "its file system has neither hard links nor renames that replace nothing",
        )),
        Err(error) => Err(error.into()),
    }
}

/// `None` if there is no such object.
fn read(root: &Path, path: &ObjectPath, range: Range<u64>) -> io::Result<Option<Bytes>> {
    let (folders, name) = split(path);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open_chain(root, &folders, false).and_then(|chain| match chain.last() {
        Some(folder) => openat(folder, name, flags, Mode::empty()),
        None => Err(Errno::NOENT),
    });
    let file = match opened {
        Err(Errno::NOENT) => return Ok(None),
        opened => std::fs::File::from(opened?),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let length = range.end.min(metadata.len()).saturating_sub(range.start);
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(Some(bytes.into()))
}

fn list(root: &Path, prefix: &ObjectPath) -> io::Result<Vec<Object>> {
    let folders: Vec<&str> = prefix.parts().collect();
    let top = match open_chain(root, &folders, false) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        // An object has this name.
        Err(Errno::NOTDIR) => return Ok(Vec::new()),
        chain => chain?.pop(),
    };
    let mut objects = Vec::new();
    let mut open: Vec<(OwnedFd, ObjectPath)> = top.map(|top| (top, prefix.clone())).into_iter().collect();
    while let Some((folder, path)) = open.pop() {
        for entry in Dir::read_from(&folder)? {
            let entry = match entry {
                // The folder was removed meanwhile.
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            let name = entry.file_name();
            let Ok(stat) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let modified = SystemTime::UNIX_EPOCH
                + Duration::new(
                    u64::try_from(stat.st_mtime).unwrap_or(0),
                    u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
                );
            let Some(below) = name.to_str().ok().filter(|name| is_part(name)).and_then(|name| path.join(name).ok())
            else {
                sweep(&folder, name, modified);
                continue;
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => objects.push(Object::new(below, stat.st_size as u64, modified)),
                FileType::Directory => match openat(&folder, name, FOLDER, Mode::empty()) {
                    Err(Errno::NOENT) => {}
                    opened => open.push((opened?, below)),
                },
                _ => {}
            }
        }
    }
    objects.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(objects)
}

/// Removes a file that a creator has left, if it is so old that its creator is gone.
fn sweep(folder: &OwnedFd, name: &CStr, modified: SystemTime) {
    let is_old = modified.elapsed().is_ok_and(|age| age > LEFTOVER_AGE);
    if is_old && name.to_bytes().starts_with(LEFTOVER.as_bytes()) {
        // The next list tries it again.
        let _ = unlinkat(folder, name, AtFlags::empty());
    }
}

fn remove(root: &Path, path: &ObjectPath) -> io::Result<()> {
    let (folders, name) = split(path);
    let chain = match open_chain(root, &folders, false) {
        Err(Errno::NOENT) => return Ok(()),
        chain => chain?,
    };
    let Some(folder) = chain.last() else { return Ok(()) };
    match unlinkat(folder, name, AtFlags::empty()) {
        // A folder has this name, and so no object.
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
        Err(error) => return Err(error.into()),
    }
    fsync(folder)?;
    // The folders above it, as far as they are empty now.
    for (parent, name) in chain.iter().zip(&folders).rev() {
        match unlinkat(parent, *name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

fn make_root(root: &Path) -> io::Result<()> {
    if root.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    match root.parent() {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// The folders of an object, and its own name.
fn split(path: &ObjectPath) -> (Vec<&str>, &str) {
    let mut parts: Vec<&str> = path.parts().collect();
    let name = parts.pop().unwrap_or_default();
    (parts, name)
}

/// The storage's own folder, and those below it, each opened within the one before.
fn open_chain(root: &Path, folders: &[&str], creates: bool) -> Result<Vec<OwnedFd>, Errno> {
    // The user may name a link to the folder.
    let mut chain = vec![open(root, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty())?];
    for name in folders {
        let Some(parent) = chain.last() else { break };
        let opened = match openat(parent, *name, FOLDER, Mode::empty()) {
            Err(Errno::NOENT) if creates => match mkdirat(parent, *name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => openat(parent, *name, FOLDER, Mode::empty())?,
                Err(error) => return Err(error),
            },
            opened => opened?,
        };
        chain.push(opened);
    }
    Ok(chain)
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// How the names of files begin that are being written. No object can have such a name.
const LEFTOVER: &str = ".tmp~";
/// How often a creator makes its folder again after others have removed it.
const MOST_RACES: usize = 1000;

#[cfg(test)]
mod tests;
