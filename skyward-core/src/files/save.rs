//! Saves files of a node on this host: beside the target first, and at the target only when all
//! bytes have arrived and are the right ones.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use sha2::{Digest, Sha256};

use super::parts::{Check, Part, PartKind, damaged};
use super::pieces::{PartPiece, Source};
use super::progress::Progress;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::hex;

/// Files of a source that have all arrived on this host, and are not at their target yet.
pub(crate) struct Received<'f> {
    progress: Progress<'f>,
    scratch: Arc<Scratch>,
    links: Vec<(PathBuf, PathBuf)>,
    target: PathBuf,
}

/// Receives the files of a source to be saved as `target`, whose folders are created. A file at the
/// target will be replaced; a folder there must be empty.
///
/// # Errors
///
/// - As [`NodeFiles::read`](super::NodeFiles::read).
/// - [`ErrorKind::Damaged`] if the bytes are not the right ones.
/// - [`ErrorKind::InvalidSpec`] if the target is a folder that is not empty, or a folder where a file
///   is saved.
/// - [`ErrorKind::Io`] if this host refuses it, such as a full disk.
///
/// # Cancel safety
///
/// Nothing is left.
pub(crate) async fn receive<'f>(source: Source<'f>, target: &Path) -> Result<Received<'f>> {
    let source = Arc::new(source);
    let target = std::path::absolute(target).map_err(|error| cannot("find", target, &error))?;
    let is_folder = matches!(source.parts.first(), Some(Part { kind: PartKind::Folder, .. }));
    let folders = source.parts.iter().filter(|part| part.kind == PartKind::Folder).map(|part| part.path.clone());
    let (folders, size): (Vec<PathBuf>, _) = (folders.collect(), source.size());
    let begun = target.clone();
    let scratch = blocking(move || Scratch::begin(&begun, is_folder, &folders, size)).await?;
    let mut progress = Progress::begin(&source);
    let mut writing: Option<Writing> = None;
    let mut pieces = std::pin::pin!(Arc::clone(&source).pieces());
    while let Some(PartPiece { part, bytes }) = pieces.try_next().await? {
        let Part { path, kind: PartKind::File { size, executable, check } } = source.parts[part].clone() else {
            continue;
        };
        let (current, scratch, length) = (writing.take(), Arc::clone(&scratch), bytes.len());
        let written = blocking(move || {
            let current = current.map_or_else(|| Writing::begin(scratch, &path, size, executable, check), Ok)?;
            current.write(&bytes)
        });
        writing = written.await?;
        progress.add(length, writing.is_none());
    }
    let links = source.parts.iter().filter_map(|part| match &part.kind {
        PartKind::Link(to) => Some((part.path.clone(), to.clone())),
        _ => None,
    });
    Ok(Received { progress, scratch, links: links.collect(), target })
}

impl Received<'_> {
    /// Moves the files to their target.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] if something else is there by now; [`ErrorKind::Io`] if this host
    /// refuses it.
    ///
    /// # Cancel safety
    ///
    /// The target is as it was before, or complete.
    pub(crate) async fn save(self) -> Result<()> {
        let Self { progress, scratch, links, target } = self;
        blocking(move || scratch.finish(&links, &target)).await?;
        progress.end();
        Ok(())
    }
}

/// Where the files are until all of them have arrived: beside the target, so that a rename moves
/// them there. It is removed with its last user, unless it was renamed.
struct Scratch {
    path: PathBuf,
    is_folder: bool,
}

impl Scratch {
    fn begin(target: &Path, is_folder: bool, folders: &[PathBuf], size: u64) -> Result<Arc<Self>> {
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            let message = format!("cannot save files as {}: the path has no name at its end", target.display());
            return Err(Error::new(ErrorKind::InvalidSpec, message).with_hint("name the new file or folder itself"));
        };
        check_target(target, is_folder)?;
        std::fs::create_dir_all(parent).map_err(|error| cannot("create", parent, &error))?;
        check_room(parent, size)?;
        let path = parent.join(part_name(name));
        let begun = if is_folder { std::fs::create_dir(&path) } else { create(&path).map(drop) };
        begun.map_err(|error| cannot("write", &path, &error))?;
        let scratch = Arc::new(Self { path, is_folder });
        for folder in folders.iter().filter(|folder| !folder.as_os_str().is_empty()) {
            let folder = scratch.path.join(folder);
            std::fs::create_dir(&folder).map_err(|error| cannot("create", &folder, &error))?;
        }
        Ok(scratch)
    }

    /// Makes the links, after all files: so no file is written through one.
    fn finish(&self, links: &[(PathBuf, PathBuf)], target: &Path) -> Result<()> {
        for (path, to) in links {
            let path = self.path.join(path);
            std::os::unix::fs::symlink(to, &path).map_err(|error| cannot("create the link", &path, &error))?;
        }
        std::fs::rename(&self.path, target).map_err(|error| {
            let is_taken = matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::IsADirectory);
            if is_taken { taken(target, self.is_folder) } else { cannot("write", target, &error) }
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing is there any more after a rename.
        let _ = if self.is_folder { std::fs::remove_dir_all(&self.path) } else { std::fs::remove_file(&self.path) };
    }
}

/// A file that is being written.
struct Writing {
    _scratch: Arc<Scratch>,
    path: PathBuf,
    file: File,
    left: u64,
    digest: Option<(Sha256, String)>,
}

impl Writing {
    fn begin(scratch: Arc<Scratch>, path: &Path, size: u64, executable: bool, check: Check) -> Result<Self> {
        let is_alone = path.as_os_str().is_empty();
        let path = if is_alone { scratch.path.clone() } else { scratch.path.join(path) };
        let opened = if is_alone { OpenOptions::new().write(true).open(&path) } else { create(&path) };
        let file = opened.map_err(|error| cannot("write", &path, &error))?;
        if executable {
            let allowed = file.metadata().map_err(|error| cannot("read", &path, &error))?.permissions().mode();
            // Who may read it may execute it.
            let mode = allowed | (allowed & 0o444) >> 2;
            file.set_permissions(Permissions::from_mode(mode)).map_err(|error| cannot("change", &path, &error))?;
        }
        let digest = match check {
            Check::Digest(digest) => Some((Sha256::new(), digest)),
            Check::Identity(_) => None,
        };
        Ok(Self { _scratch: scratch, path, file, left: size, digest })
    }

    /// Writes the next bytes. Returns `None` after the last ones.
    fn write(mut self, bytes: &Bytes) -> Result<Option<Self>> {
        self.file.write_all(bytes).map_err(|error| cannot("write", &self.path, &error))?;
        self.left -= bytes.len() as u64;
        if let Some((digest, _)) = &mut self.digest {
            digest.update(bytes);
        }
        if self.left > 0 {
            return Ok(Some(self));
        }
        let Some((digest, wanted)) = self.digest else { return Ok(None) };
        match hex(&digest.finalize()) {
            found if found == wanted => Ok(None),
            found => Err(damaged(&format!("the SHA-256 of {} is {found} and not {wanted}", self.path.display()))),
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o666).open(path)
}

/// A name beside the target that no other save uses: `.model.pt.3f9a….part`.
fn part_name(name: &std::ffi::OsStr) -> OsString {
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{:016x}.part", rand::random::<u64>()));
    part
}

fn check_target(target: &Path, is_folder: bool) -> Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(target) else { return Ok(()) };
    let is_free = match (metadata.is_dir(), is_folder) {
        (true, true) => std::fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none()),
        (is_dir, is_folder) => !is_dir && !is_folder,
    };
    if is_free { Ok(()) } else { Err(taken(target, is_folder)) }
}

fn taken(target: &Path, is_folder: bool) -> Error {
    let what = if is_folder { "a folder cannot be saved as" } else { "a file cannot be saved as" };
    let message = format!("{what} {}: something else is there", target.display());
    let hint = if is_folder {
        "name a path where nothing is, or an empty folder"
    } else {
        "name the file itself, within that folder"
    };
    Error::new(ErrorKind::InvalidSpec, message).with_hint(hint)
}

fn check_room(folder: &Path, size: u64) -> Result<()> {
    let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if size <= free {
        return Ok(());
    }
    let message = format!("cannot save {size} bytes below {}: its disk has {free} bytes of room", folder.display());
    Err(Error::new(ErrorKind::Io, message).with_hint("make room there, or name a path on another disk"))
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> Error {
    let error_of = Error::new(ErrorKind::Io, format!("cannot {verb} {} on this host: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            error_of.with_hint("make room there, or name a path on another disk")
        }
        _ => error_of,
    }
}

/// Work on this host's files, on a thread where it may take its time.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::new(ErrorKind::Io, format!("the work on this host's files was given up: {error}"))),
    }
}

#[cfg(test)]
mod tests;
