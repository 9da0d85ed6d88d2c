//! The parts of a tree of files that is brought to this host, checked before anything is written.
//!
//! Code of a payload has made the names and links, so none of them may lead out of the tree.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::node_files::{Entry, EntryKind, Identity, path_of};
use crate::error::{Error, ErrorKind, Result};

/// A part of a tree: the tree itself has an empty path and comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) kind: PartKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PartKind {
    File { size: u64, executable: bool, check: Check },
    Folder,
    Link(PathBuf),
}

/// What shows that the bytes of a file are the right ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Check {
    /// Their SHA-256, in hexadecimal digits.
    Digest(String),
    /// The file has this identity while it is read.
    Identity(Identity),
}

impl Part {
    /// The bytes of a file; 0 for others.
    pub(crate) fn size(&self) -> u64 {
        match self.kind {
            PartKind::File { size, .. } => size,
            PartKind::Folder | PartKind::Link(_) => 0,
        }
    }
}

/// The bytes of all files. Parts that are checked have a sum.
pub(crate) fn total_size(parts: &[Part]) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.size()))
}

/// The parts of what a node reports to be at a path.
///
/// # Errors
///
/// [`ErrorKind::InvalidSpec`] for a link that leads out of the tree; [`ErrorKind::Damaged`] for
/// names that are none.
pub(crate) fn of_entries(entries: Vec<Entry>) -> Result<Vec<Part>> {
    let part = |Entry { path, kind, identity }| {
        let kind = match kind {
            EntryKind::File { executable } => {
                PartKind::File { size: identity.size, executable, check: Check::Identity(identity) }
            }
            EntryKind::Folder => PartKind::Folder,
            EntryKind::Link(target) => PartKind::Link(target),
        };
        Part { path, kind }
    };
    checked(entries.into_iter().map(part).collect())
}

/// The parts that the manifest of an artifact lists.
///
/// # Errors
///
/// [`ErrorKind::Damaged`] for bytes that are no manifest, and otherwise as [`of_entries`].
pub(crate) fn of_manifest(manifest: &[u8]) -> Result<Vec<Part>> {
    let count = rmp::decode::read_array_len(&mut &*manifest).unwrap_or_default();
    if count as usize > MOST_ENTRIES {
        return Err(damaged(&format!("its list has {count} files, and may have {MOST_ENTRIES}")));
    }
    let listed: Vec<Listed> = rmp_serde::from_slice(manifest)
        .map_err(|error| damaged(&format!("its list of files cannot be read: {error}")))?;
    let part = |Listed(path, kind, size, sha256, executable, target): Listed| {
        let kind = match kind {
            ListedKind::File => PartKind::File { size, executable, check: Check::Digest(sha256) },
            ListedKind::Folder => PartKind::Folder,
            ListedKind::Link => PartKind::Link(path_of(&target)),
        };
        Part { path: path_of(&path), kind }
    };
    checked(listed.into_iter().map(part).collect())
}

/// The manifest that lists these parts, of which the files have digests.
///
/// # Errors
///
/// [`ErrorKind::Protocol`] when a part cannot be encoded.
pub(crate) fn manifest_of(parts: &[Part]) -> Result<Bytes> {
    let bytes = |path: &Path| Bytes::copy_from_slice(path.as_os_str().as_bytes());
    let listed = |part: &Part| {
        let path = bytes(&part.path);
        match &part.kind {
            PartKind::File { size, executable, check } => {
                let digest = match check {
                    Check::Digest(digest) => digest.clone(),
                    Check::Identity(_) => String::new(),
                };
                Listed(path, ListedKind::File, *size, digest, *executable, Bytes::new())
            }
            PartKind::Folder => Listed(path, ListedKind::Folder, 0, String::new(), false, Bytes::new()),
            PartKind::Link(target) => Listed(path, ListedKind::Link, 0, String::new(), false, bytes(target)),
        }
    };
    let listed: Vec<Listed> = parts.iter().map(listed).collect();
    let packed = rmp_serde::to_vec(&listed)
        .map_err(|error| Error::new(ErrorKind::Protocol, format!("a list of files cannot be encoded: {error}")))?;
    Ok(packed.into())
}

/// An entry of a manifest.
#[derive(Deserialize, Serialize)]
struct Listed(Bytes, ListedKind, u64, String, bool, Bytes);

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum ListedKind {
    File,
    Folder,
    Link,
}

/// The same parts, if none of them leads out of the tree.
///
/// # Errors
///
/// As [`of_entries`].
pub(crate) fn checked(parts: Vec<Part>) -> Result<Vec<Part>> {
    let Some((root, below)) = parts.split_first() else { return Err(damaged("its list of files is empty")) };
    let is_alone = !matches!(root.kind, PartKind::Folder);
    if !root.path.as_os_str().is_empty() || matches!(root.kind, PartKind::Link(_)) || (is_alone && !below.is_empty()) {
        return Err(damaged("its list of files does not begin with a file alone or a folder"));
    }
    if parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.size())).is_none() {
        return Err(damaged("the sizes of its files are no sizes"));
    }
    for Part { path, kind } in below {
        let is_name = |component: Component<'_>| matches!(component, Component::Normal(_));
        let (depth, bytes) = (path.components().count(), path.as_os_str().as_bytes());
        // Components leave out what a path has twice or in vain.
        let plain: PathBuf = path.components().collect();
        if depth == 0 || !path.components().all(is_name) || plain.as_os_str() != path.as_os_str() || bytes.contains(&0)
        {
            return Err(no_name(path));
        }
        if let PartKind::Link(target) = kind
            && !stays_inside(target, depth - 1)
        {
            let message = format!("the link `{}` leads to `{}`", path.display(), target.display());
            return Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(
                "a link is brought along if it leads from its own folder, or from one above within the tree, down to \
                 what lies in the tree: replace the link by what it leads to, or remove it",
            ));
        }
    }
    Ok(parts)
}

/// Whether a link in a folder at this depth of a tree leads to something in the tree: `..` only at
/// its beginning, because elsewhere it may follow another link.
fn stays_inside(target: &Path, depth: usize) -> bool {
    let up = target.components().take_while(|component| *component == Component::ParentDir).count();
    let mut down = target.components().skip(up).filter(|component| *component != Component::CurDir);
    up <= depth && down.all(|component| matches!(component, Component::Normal(_)))
}

/// The most files, folders and links of a tree.
pub(crate) const MOST_ENTRIES: usize = if cfg!(test) { 10_000 } else { 1_000_000 };

fn no_name(path: &Path) -> Error {
    damaged(&format!("`{}` is no path of a file below a folder", path.display()))
}

pub(super) fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, format!("what arrived from the node is not what was there: {what}"))
        .with_hint("something has changed the files in the node's own folder, or the disk is damaged: make it again")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn folder() -> Part {
        Part { path: PathBuf::new(), kind: PartKind::Folder }
    }

    fn file(path: &[u8]) -> Part {
        let kind = PartKind::File { size: 1, executable: false, check: Check::Digest(String::new()) };
        Part { path: OsStr::from_bytes(path).into(), kind }
    }

    fn link(path: &str, target: &str) -> Part {
        Part { path: path.into(), kind: PartKind::Link(target.into()) }
    }

    #[test]
    fn names_that_lead_out_of_the_tree_are_refused() {
        for path in ["../a", "/etc/passwd", "a/../b", "..", "a/..", "", "a//b", "a/./b", "a/", "./a", "a\0b"] {
            let error = checked(vec![folder(), file(path.as_bytes())]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{path}");
        }
        for path in [&b"a"[..], b"a/b/c", b"...", b" ", b"\xff\xfe", b"a\nb"] {
            assert!(checked(vec![folder(), file(path)]).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn links_that_lead_out_of_the_tree_are_refused_with_their_names() {
        let outside = [
            ("l", "/etc"),
            ("l", ".."),
            ("l", "../x"),
            ("a/l", "../../x"),
            // `m` may be a link, whose parent is another folder than it seems.
            ("a/l", "m/../x"),
            ("a/l", "./../../x"),
        ];
        for (path, target) in outside {
            let error = checked(vec![folder(), link(path, target)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{path} -> {target}");
            assert!(error.message().contains(target) && error.message().contains(path), "{error}");
        }
        for (path, target) in [("l", "x"), ("l", "."), ("l", "./x/y"), ("a/l", "../x"), ("a/b/l", "../../x/y")] {
            assert!(checked(vec![folder(), link(path, target)]).is_ok(), "{path} -> {target}");
        }
    }

    #[test]
    fn a_tree_begins_with_a_folder_or_is_a_file_alone() {
        assert!(checked(vec![file(b"")]).is_ok() && checked(vec![folder()]).is_ok());
        for parts in [vec![], vec![file(b""), file(b"a")], vec![link("", "a")], vec![file(b"a")]] {
            assert_eq!(checked(parts).unwrap_err().kind(), ErrorKind::Damaged);
        }
    }

    #[test]
    fn bytes_that_are_no_manifest_are_refused() {
        for bytes in [&b""[..], b"\x91", b"\x91\x01", b"\xc0", b"{}", b"\xdd\x10\x00\x00\x00"] {
            assert_eq!(of_manifest(bytes).unwrap_err().kind(), ErrorKind::Damaged);
        }
        let huge = Check::Digest(String::new());
        let file = |path: &str| Part {
            path: path.into(),
            kind: PartKind::File { size: u64::MAX, executable: false, check: huge.clone() },
        };
        assert_eq!(checked(vec![folder(), file("a"), file("b")]).unwrap_err().kind(), ErrorKind::Damaged);
    }
}
