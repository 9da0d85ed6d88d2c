//! Saves files of a node on this host: beside the target first, and at the target only when all
//! bytes have arrived and are the right ones.

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fstat, mkdirat, open, openat, renameat, statat, symlinkat, unlinkat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::parts::{Check, Part, PartKind, damaged};
use super::pieces::{PartPiece, Source};
use super::progress::Progress;
use super::slices::write_sliced;
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
    // Without a slash at the end, which a file must not have.
    let target: PathBuf = target.components().collect();
    let is_folder = matches!(source.parts.first(), Some(Part { kind: PartKind::Folder, .. }));
    let folders = source.parts.iter().filter(|part| part.kind == PartKind::Folder).map(|part| part.path.clone());
    let (folders, size): (Vec<PathBuf>, _) = (folders.collect(), source.size());
    let begun = target.clone();
    let scratch = blocking(move || Scratch::begin(&begun, is_folder, &folders, size)).await?;
    let mut progress = Progress::begin(&source);
    if let Err(error) = write_all(&source, &scratch, &mut progress).await {
        return Err(scratch.given_up(error).await);
    }
    let links = source.parts.iter().filter_map(|part| match &part.kind {
        PartKind::Link(to) => Some((part.path.clone(), to.clone())),
        _ => None,
    });
    Ok(Received { progress, scratch, links: links.collect(), target })
}

/// Writes all files of the source.
async fn write_all(source: &Arc<Source<'_>>, scratch: &Arc<Scratch>, progress: &mut Progress<'_>) -> Result<()> {
    let mut writing: Option<Writing> = None;
    let mut pieces = std::pin::pin!(Arc::clone(source).pieces());
    while let Some(PartPiece { part, bytes }) = pieces.try_next().await? {
        let Part { path, kind: PartKind::File { size, executable, check } } = source.parts[part].clone() else {
            continue;
        };
        let (current, scratch, length) = (writing.take(), Arc::clone(scratch), bytes.len());
        let written = blocking(move || {
            let current = current.map_or_else(|| Writing::begin(scratch, &path, size, executable, check), Ok)?;
            current.write(&bytes)
        });
        writing = written.await?;
        progress.add(length, u64::from(writing.is_none()));
    }
    Ok(())
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
        let finished = Arc::clone(&scratch);
        match blocking(move || finished.finish(&links, &target)).await {
            Ok(()) => {
                progress.end();
                Ok(())
            }
            Err(error) => Err(scratch.given_up(error).await),
        }
    }
}

/// Where the files are until all of them have arrived: beside the target, so that a rename moves
/// them there. It is removed with its last user, unless it was renamed.
///
/// All is done by descriptors: in a folder where others may write too, a name may be another file's
/// at any moment.
struct Scratch {
    /// The folder of the target.
    parent: OwnedFd,
    parent_path: PathBuf,
    /// The name in that folder.
    name: String,
    root: Root,
}

/// What is being saved.
enum Root {
    File(File),
    /// A folder, and the permissions that it gets at the end: until then it is its owner's alone.
    Folder(OwnedFd, Mode),
}

impl Scratch {
    fn begin(target: &Path, is_folder: bool, folders: &[PathBuf], size: u64) -> Result<Arc<Self>> {
        let (Some(parent_path), Some(_)) = (target.parent(), target.file_name()) else {
            let message = format!("cannot save files as {}: the path has no name at its end", target.display());
            return Err(Error::new(ErrorKind::InvalidSpec, message).with_hint("name the new file or folder itself"));
        };
        check_target(target, is_folder)?;
        std::fs::create_dir_all(parent_path).map_err(|error| cannot("create", parent_path, &error))?;
        check_room(parent_path, size)?;
        let name = format!(".skyward-{:016x}.part", rand::random::<u64>());
        let path = parent_path.join(&name);
        let failed = |verb| move |error: Errno| cannot(verb, &path, &error.into());
        let parent = open(parent_path, FOLDER, Mode::empty()).map_err(failed.clone()("open the folder of"))?;
        let root = if is_folder {
            mkdirat(&parent, &name, Mode::from_raw_mode(0o777)).map_err(failed.clone()("create"))?;
            let root =
                openat(&parent, &name, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(failed.clone()("open"))?;
            let mode = fstat(&root).map_err(failed.clone()("read"))?.st_mode;
            fchmod(&root, Mode::RWXU).map_err(failed("change"))?;
            Root::Folder(root, Mode::from_raw_mode(mode))
        } else {
            Root::File(openat(&parent, &name, NEW, Mode::from_raw_mode(0o666)).map_err(failed("create"))?.into())
        };
        let scratch = Arc::new(Self { parent, parent_path: parent_path.to_owned(), name, root });
        for folder in folders.iter().filter(|folder| !folder.as_os_str().is_empty()) {
            if let Root::Folder(root, _) = &scratch.root {
                let made = mkdirat(root, folder, Mode::from_raw_mode(0o777));
                made.map_err(|error| cannot("create", &scratch.path().join(folder), &error.into()))?;
            }
        }
        Ok(scratch)
    }

    /// A new file at a path of the tree; the file itself for an empty path.
    fn file(&self, path: &Path) -> io::Result<File> {
        match &self.root {
            Root::File(file) => file.try_clone(),
            Root::Folder(root, _) => Ok(openat(root, path, NEW, Mode::from_raw_mode(0o666))?.into()),
        }
    }

    /// Makes the links, after all files: so no file is written through one. Then moves all to the
    /// target.
    fn finish(&self, links: &[(PathBuf, PathBuf)], target: &Path) -> Result<()> {
        let is_folder = match &self.root {
            Root::File(_) => false,
            Root::Folder(root, mode) => {
                for (path, to) in links {
                    let made = symlinkat(to, root, path);
                    made.map_err(|error| cannot("create the link", &self.path().join(path), &error.into()))?;
                }
                fchmod(root, *mode).map_err(|error| cannot("change", &self.path(), &error.into()))?;
                true
            }
        };
        if !self.is_in_place() {
            let message = format!("something has replaced {} while files arrived there", self.path().display());
            return Err(
                Error::new(ErrorKind::Damaged, message).with_hint("save to a folder where nobody else may write")
            );
        }
        let name = target.file_name().unwrap_or_default();
        renameat(&self.parent, &self.name, &self.parent, name).map_err(|error| match error {
            Errno::NOTEMPTY | Errno::EXIST | Errno::ISDIR | Errno::NOTDIR => taken(target, is_folder),
            error => cannot("write", target, &error.into()),
        })
    }

    /// Whether the name still means what was created under it.
    fn is_in_place(&self) -> bool {
        let own = match &self.root {
            Root::File(file) => fstat(file),
            Root::Folder(root, _) => fstat(root),
        };
        let named = statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        own.is_ok_and(|own| named.is_ok_and(|named| (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino)))
    }

    fn path(&self) -> PathBuf {
        self.parent_path.join(&self.name)
    }

    /// Removes what has arrived, and returns the error after that.
    async fn given_up(self: Arc<Self>, error: Error) -> Error {
        let removed = blocking(move || {
            self.remove();
            Ok(())
        });
        removed.await.err().unwrap_or(error)
    }

    fn remove(&self) {
        // After the rename nothing has the name, or something else.
        if self.is_in_place() {
            match &self.root {
                Root::File(_) => drop(unlinkat(&self.parent, &self.name, AtFlags::empty())),
                Root::Folder(..) => drop(std::fs::remove_dir_all(self.path())),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Root::Folder(..) = &self.root
            && self.is_in_place()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // A tree takes its time, and a thread of the runtime has none.
            let path = self.path();
            drop(runtime.spawn_blocking(move || std::fs::remove_dir_all(path)));
        } else {
            self.remove();
        }
    }
}

/// A file that is being written.
struct Writing {
    scratch: Arc<Scratch>,
    path: PathBuf,
    file: File,
    left: u64,
    digest: Option<(Sha256, String)>,
}

impl Writing {
    fn begin(scratch: Arc<Scratch>, path: &Path, size: u64, executable: bool, check: Check) -> Result<Self> {
        let shown = scratch.path().join(path);
        let file = scratch.file(path).map_err(|error| cannot("write", &shown, &error))?;
        if executable {
            let allowed = file.metadata().map_err(|error| cannot("read", &shown, &error))?.permissions().mode();
            // Who may read it may execute it.
            let mode = allowed | (allowed & 0o444) >> 2;
            file.set_permissions(Permissions::from_mode(mode)).map_err(|error| cannot("change", &shown, &error))?;
        }
        let digest = match check {
            Check::Digest(digest) => Some((Sha256::new(), digest)),
            Check::Identity(_) => None,
        };
        Ok(Self { scratch, path: path.to_owned(), file, left: size, digest })
    }

    /// Writes the next bytes. Returns `None` after the last ones.
    fn write(mut self, bytes: &Bytes) -> Result<Option<Self>> {
        let shown = || self.scratch.path().join(&self.path);
        write_sliced(&mut self.file, bytes).map_err(|error| cannot("write", &shown(), &error))?;
        self.left -= bytes.len() as u64;
        if let Some((digest, _)) = &mut self.digest {
            digest.update(bytes);
        }
        if self.left > 0 {
            return Ok(Some(self));
        }
        let shown = self.path.display().to_string();
        let Some((digest, wanted)) = self.digest else { return Ok(None) };
        match hex(&digest.finalize()) {
            found if found == wanted => Ok(None),
            found => Err(damaged(&format!("the SHA-256 of the file `{shown}` is {found} and not {wanted}"))),
        }
    }
}

fn check_target(target: &Path, is_folder: bool) -> Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(target) else { return Ok(()) };
    // A device or a pipe is never replaced.
    let is_free = match is_folder {
        true => metadata.is_dir() && std::fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none()),
        false => metadata.is_file() || metadata.is_symlink(),
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
    // Some file systems do not say how large they are.
    if size <= free || disk.f_blocks == 0 {
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

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Work on this host's files, on a thread where it may take its time.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::new(ErrorKind::Io, format!("the work on this host's files was given up: {error}"))),
    }
}

#[cfg(test)]
mod tests;
