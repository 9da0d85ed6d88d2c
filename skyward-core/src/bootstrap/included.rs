//! The files and folders that an image includes: which they are, and their archive.

use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use ignore::gitignore::Gitignore;
use ignore::{DirEntry, WalkBuilder};

use super::reading::{ADVICE, LARGEST, invalid, irregular, read, unreadable};
use crate::error::{Error, Result};
use crate::spec::{Image, IncludedFile};

/// What an image includes, in the order of its archive: each folder before what is in it.
///
/// Names keep their bytes, links stay links, and folders without content and the times of the last
/// change are kept.
#[derive(Debug)]
pub(crate) struct Included(Vec<Entry>);

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    source: PathBuf,
    /// The path below the working folder.
    target: PathBuf,
    kind: Kind,
    mode: u32,
    /// In seconds since 1970, as archives store it.
    modified: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A file of so many bytes.
    File(u64),
    Folder,
    /// A link with this text.
    Link(PathBuf),
}

impl Included {
    /// Finds the files, without reading them. The call blocks on disk reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec) for a file that is missing
    /// or is not a regular file, for a link that leads out of the folder that is included, and if
    /// all files together are too large.
    pub(crate) fn find(image: &Image) -> Result<Self> {
        let mut found = Self(Vec::new());
        for included in &image.files {
            found.add(included, image)?;
        }
        found.check_size()?;
        Ok(found)
    }

    /// Reads the files into a tar archive; empty if there are none.
    ///
    /// # Errors
    ///
    /// As [`find`](Self::find), for what has changed since.
    pub(super) fn pack(mut self) -> Result<Bytes> {
        let mut archive = tar::Builder::new(Vec::new());
        for Entry { source, target, kind, mode, modified } in &mut self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_mtime(*modified);
            header.set_mode(*mode);
            header.set_size(0);
            let added = match kind {
                Kind::File(size) => {
                    let (bytes, mode) = read(source)?;
                    *size = bytes.len() as u64;
                    header.set_mode(mode);
                    header.set_size(*size);
                    archive.append_data(&mut header, &*target, bytes.as_slice())
                }
                Kind::Folder => {
                    header.set_entry_type(tar::EntryType::Directory);
                    archive.append_data(&mut header, &*target, &[][..])
                }
                Kind::Link(text) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    archive.append_link(&mut header, &*target, text)
                }
            };
            added.map_err(|error| {
                invalid(format!("{} cannot be included as {}", source.display(), target.display())).with_source(error)
            })?;
        }
        self.check_size()?;
        if self.0.is_empty() {
            return Ok(Bytes::new());
        }
        let packed = archive.into_inner().map(Bytes::from);
        packed.map_err(|error| invalid("the image's files cannot be packed".into()).with_source(error))
    }

    /// Adds a file, or a folder with its contents. A link that the image names itself is followed.
    fn add(&mut self, included: &IncludedFile, image: &Image) -> Result<()> {
        let source = &included.source;
        let target = Path::new(included.target.trim_end_matches('/'));
        let metadata = fs::metadata(source).map_err(|error| unreadable(source, error))?;
        if !metadata.is_dir() {
            self.0.push(entry(source, target.to_owned(), &metadata)?);
            return Ok(());
        }
        // `WalkBuilder` follows a link that is its root only if the path leads through it.
        let root = fs::canonicalize(source).map_err(|error| unreadable(source, error))?;
        let excluded = image.excluded(&root)?;
        for found in walk(&root, excluded, image.gitignore) {
            let found = found.map_err(|error| unreadable_in(source, error))?;
            let below = found.path().strip_prefix(&root).unwrap_or(Path::new(""));
            let (shown, target) = match below.as_os_str().is_empty() {
                true => (source.clone(), target.to_owned()),
                false => (source.join(below), target.join(below)),
            };
            let metadata = fs::symlink_metadata(found.path()).map_err(|error| unreadable(&shown, error))?;
            if metadata.is_symlink() {
                let text = fs::read_link(found.path()).map_err(|error| unreadable(&shown, error))?;
                if leads_out(&root, found.path(), below, &text) {
                    return Err(outside(source, &shown, &text));
                }
                let modified = modified(&metadata);
                self.0.push(Entry { source: shown, target, kind: Kind::Link(text), mode: 0o777, modified });
            } else {
                self.0.push(entry(&shown, target, &metadata)?);
            }
        }
        Ok(())
    }

    /// Refuses files that are too large together, and names the largest.
    fn check_size(&self) -> Result<()> {
        let size = |entry: &Entry| if let Kind::File(size) = entry.kind { size } else { 0 };
        let total: u64 = self.0.iter().map(size).sum();
        if total <= LARGEST {
            return Ok(());
        }
        let mut largest: Vec<_> = self.0.iter().filter(|entry| size(entry) > 0).collect();
        largest.sort_by_key(|entry| std::cmp::Reverse(size(entry)));
        let mut message = format!(
            "the image's files have {} MiB, more than {} MiB; the largest are",
            total.div_ceil(1 << 20),
            LARGEST >> 20
        );
        for (number, entry) in largest.iter().take(SHOWN).enumerate() {
            let comma = if number > 0 { "," } else { "" };
            let _ = write!(message, "{comma} {} ({} MiB)", entry.source.display(), size(entry).div_ceil(1 << 20));
        }
        Err(invalid(message).with_hint(ADVICE))
    }
}

/// Everything in a folder, itself first, in the order of the names, without what is left out.
fn walk(
    root: &Path,
    excluded: Gitignore,
    gitignore: bool,
) -> impl Iterator<Item = std::result::Result<DirEntry, ignore::Error>> {
    let mut walk = WalkBuilder::new(root);
    walk.standard_filters(false).follow_links(false).sort_by_file_name(std::ffi::OsStr::cmp);
    walk.git_ignore(gitignore).parents(gitignore).require_git(false);
    walk.filter_entry(move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let is_cache = is_folder && entry.file_name() == "__pycache__";
        entry.depth() == 0 || !(is_cache || excluded.matched(entry.path(), is_folder).is_ignore())
    });
    walk.build()
}

fn entry(source: &Path, target: PathBuf, metadata: &Metadata) -> Result<Entry> {
    let permissions = metadata.permissions().mode() & 0o777;
    let (kind, mode) = match (metadata.is_dir(), metadata.is_file()) {
        // A folder that its owner cannot change could not be removed with the node's folder.
        (true, _) => (Kind::Folder, permissions | 0o700),
        (_, true) => (Kind::File(metadata.len()), permissions),
        _ => return Err(irregular(source)),
    };
    Ok(Entry { source: source.to_owned(), target, kind, mode, modified: modified(metadata) })
}

fn modified(metadata: &Metadata) -> u64 {
    metadata.mtime().try_into().unwrap_or(0)
}

/// Whether a link leads out of the folder, by its text or by the links on its way.
fn leads_out(root: &Path, link: &Path, below: &Path, text: &Path) -> bool {
    let mut depth = below.components().count().saturating_sub(1);
    for part in text.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    fs::canonicalize(link).is_ok_and(|end| !end.starts_with(root))
}

fn outside(folder: &Path, link: &Path, text: &Path) -> Error {
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    invalid(format!(
        "{} is a link to {}, which leads out of {}, so the node would not have what it stands for",
        link.display(),
        text.display(),
        folder.display()
    ))
    .with_hint(format!(
        "replace the link by what it stands for, or leave it out, `.exclude([\"{name}\"])`, and include that itself: \
         `.file(\"{}\", \"…\")`",
        text.display()
    ))
}

fn unreadable_in(folder: &Path, error: ignore::Error) -> Error {
    let inner = path_of(&error).unwrap_or(folder).display();
    invalid(format!("the image names {}, in which {inner} cannot be read", folder.display()))
        .with_hint("make it readable, or leave it out: `.exclude([\"…\"])`")
        .with_source(error)
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } => path_of(err),
        _ => None,
    }
}

const SHOWN: usize = 3;

#[cfg(test)]
mod tests;
