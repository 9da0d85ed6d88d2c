//! The Python files below folders, in a fixed order.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A file to check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    /// Why the file, or the folder at this path, cannot be read.
    pub(crate) unreadable: Option<String>,
}

/// The files at these paths, and all `.py` files in the folders among them, by name. A file that
/// several paths lead to is there once.
///
/// # Errors
///
/// If one of the paths does not exist, or there is no file at all.
pub(crate) fn find(paths: &[PathBuf]) -> Result<Vec<File>> {
    let mut walk = Walk { seen: BTreeSet::new(), next: Vec::new(), found: Vec::new() };
    for path in paths {
        let metadata = fs::metadata(path).with_context(|| format!("cannot check {}", path.display()))?;
        walk.add(path.clone(), Ok(metadata));
        while let Some(path) = walk.next.pop() {
            let metadata = fs::metadata(&path);
            if metadata.as_ref().is_ok_and(Metadata::is_dir) || is_python(&path) {
                walk.add(path, metadata);
            }
        }
    }
    if walk.found.is_empty() {
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        bail!("there is no .py file in {}", paths.join(", "));
    }
    Ok(walk.found)
}

struct Walk {
    /// The folders and files so far, without links: one that leads back would never end.
    seen: BTreeSet<PathBuf>,
    /// What comes next, the last one first.
    next: Vec<PathBuf>,
    found: Vec<File>,
}

impl Walk {
    /// Adds a file, or what a folder holds, the first time.
    fn add(&mut self, path: PathBuf, metadata: io::Result<Metadata>) {
        // What has no other path, such as a link that leads nowhere, is known by this one.
        if !self.seen.insert(fs::canonicalize(&path).unwrap_or_else(|_| path.clone())) {
            return;
        }
        let unreadable = match metadata {
            Ok(metadata) if metadata.is_dir() => match self.list(&path) {
                Ok(()) => return,
                Err(error) => Some(format!("the folder cannot be read: {error}")),
            },
            Ok(metadata) if !metadata.is_file() => Some("it is no regular file".to_owned()),
            Ok(metadata) if metadata.len() > MOST_BYTES => {
                Some(format!("it has {} bytes, and at most {MOST_BYTES} are read", metadata.len()))
            }
            Ok(_) => None,
            Err(error) => Some(format!("it cannot be read: {error}")),
        };
        self.found.push(File { path, unreadable });
    }

    fn list(&mut self, folder: &Path) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        let is_kept = |path: &PathBuf| !path.is_dir() || !is_skipped(path);
        self.next.extend(entries.into_iter().rev().map(|entry| entry.path()).filter(is_kept));
        Ok(())
    }
}

fn is_python(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "py")
}

/// Whether a folder is hidden, or holds compiled files.
fn is_skipped(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default();
    name == "__pycache__" || name.as_encoded_bytes().starts_with(b".")
}

/// A payload's file has kilobytes; a file of more than this is data.
const MOST_BYTES: u64 = 16 << 20;
