//! What is in a folder of this host, without the content.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use super::source::{Data, cannot_read};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Check, Identity, MOST_ENTRIES, Part, PartKind, checked, manifest_of};

/// The parts of a folder. Files have their identities instead of their digests.
#[derive(Debug)]
pub(super) struct Listing {
    /// Without links.
    pub(super) root: PathBuf,
    pub(super) parts: Vec<Part>,
    /// When the state of each part changed last, in nanoseconds since 1970: a program may set the
    /// time of the last modification, and not this one.
    pub(super) changed: Vec<i64>,
}

impl Listing {
    /// Lists all that is in a folder, each folder before what is in it. The call blocks on the disk.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: the folder does not exist.
    /// - [`ErrorKind::Io`]: a part of it cannot be read.
    /// - [`ErrorKind::InvalidSpec`]: it is no folder, or has a device, a pipe or a socket, a name that
    ///   is not UTF-8, a link that leads out of it, or too many files.
    pub(super) fn of(data: &Data) -> Result<Self> {
        data.check_folder()?;
        let folder = data.path();
        let root = fs::canonicalize(folder).map_err(|error| cannot_read(folder, &error))?;
        let mut found = Self { root, parts: Vec::new(), changed: Vec::new() };
        let mut walk = WalkBuilder::new(&found.root);
        walk.standard_filters(false).follow_links(false).sort_by_file_name(Ord::cmp);
        for entry in walk.build() {
            let entry = entry.map_err(|error| {
                let message = format!("{} cannot be listed: {error}", folder.display());
                Error::new(ErrorKind::Io, message).with_hint("give this user access to all files of the folder")
            })?;
            let below = entry.path().strip_prefix(&found.root).unwrap_or(Path::new("")).to_owned();
            let shown = folder.join(&below);
            let metadata = fs::symlink_metadata(entry.path()).map_err(|error| cannot_read(&shown, &error))?;
            found.add(entry.path(), below, &shown, &metadata)?;
            if found.parts.len() > MOST_ENTRIES {
                let message = format!("{} has more than {MOST_ENTRIES} files, folders and links", folder.display());
                return Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(PACK));
            }
        }
        found.parts = checked(found.parts)?;
        found.check_length(folder)?;
        Ok(found)
    }

    /// Refuses a list that is too long for a node.
    fn check_length(&self, folder: &Path) -> Result<()> {
        let files = self.parts.iter().filter(|part| matches!(part.kind, PartKind::File { .. })).count();
        // The digests come later.
        let length = manifest_of(&self.parts)?.len() + files * DIGEST;
        if length <= LONGEST_MANIFEST {
            return Ok(());
        }
        let (folder, length, most) = (folder.display(), length >> 20, LONGEST_MANIFEST >> 20);
        let message = format!("the list of the files in {folder} has {length} MiB, and may have {most}");
        Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(PACK))
    }

    fn add(&mut self, path: &Path, below: PathBuf, shown: &Path, metadata: &Metadata) -> Result<()> {
        if below.to_str().is_none() {
            let message = format!("the name {} is not UTF-8", shown.display());
            return Err(Error::new(ErrorKind::InvalidSpec, message)
                .with_hint("rename the file: a data set has names that are text"));
        }
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => PartKind::Folder,
            kind if kind.is_symlink() => {
                PartKind::Link(fs::read_link(path).map_err(|error| cannot_read(shown, &error))?)
            }
            kind if kind.is_file() => PartKind::File {
                size: metadata.len(),
                executable: metadata.permissions().mode() & 0o100 != 0,
                check: Check::Identity(identity_of(metadata)),
            },
            _ => {
                let message = format!("{} is no file, folder or link", shown.display());
                return Err(Error::new(ErrorKind::InvalidSpec, message).with_hint("remove it from the folder"));
            }
        };
        self.parts.push(Part { path: below, kind });
        self.changed.push(nanoseconds(metadata.ctime(), metadata.ctime_nsec()));
        Ok(())
    }
}

/// The identity of a file's content.
pub(super) fn identity_of(metadata: &Metadata) -> Identity {
    let modified = nanoseconds(metadata.mtime(), metadata.mtime_nsec());
    Identity { inode: metadata.ino(), size: metadata.len(), modified }
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// The most bytes of a list, which a node reads as a whole.
const LONGEST_MANIFEST: usize = if cfg!(test) { 64 << 10 } else { 64 << 20 };
/// The bytes of a SHA-256 in hexadecimal digits, and of its length.
const DIGEST: usize = 65;
const PACK: &str = "pack the files into archives, or make data sets of its folders";

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::super::scratch::Scratch;
    use super::*;

    #[test]
    fn all_parts_are_listed_with_folders_before_their_content() {
        let folder = Scratch::new();
        let root = folder.path();
        fs::create_dir_all(root.join("b/empty")).unwrap();
        fs::write(root.join("b/x"), "12").unwrap();
        fs::write(root.join(".hidden"), "1").unwrap();
        symlink("x", root.join("b/link")).unwrap();
        let listing = Listing::of(&Data::folder(root)).unwrap();
        let paths: Vec<&str> = listing.parts.iter().map(|part| part.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["", ".hidden", "b", "b/empty", "b/link", "b/x"]);
        assert_eq!(listing.parts[4].kind, PartKind::Link("x".into()));
        assert_eq!(listing.parts[5].size(), 2);
    }

    #[test]
    fn what_cannot_be_brought_is_refused_with_its_name() {
        let refusal = |prepare: &dyn Fn(&Path)| {
            let folder = Scratch::new();
            prepare(folder.path());
            Listing::of(&Data::folder(folder.path())).unwrap_err()
        };
        let socket = refusal(&|root| drop(UnixListener::bind(root.join("socket")).unwrap()));
        let link = refusal(&|root| symlink("/etc/hostname", root.join("outside")).unwrap());
        let name = refusal(&|root| fs::write(root.join(OsStr::from_bytes(b"caf\xe9")), "").unwrap());
        for (error, word) in [(socket, "socket"), (link, "outside"), (name, "UTF-8")] {
            assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
            assert!(error.message().contains(word), "{error}");
        }
        let missing = Listing::of(&Data::folder("/nothing/here")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
        let folder = Scratch::new();
        fs::write(folder.path().join("a"), "").unwrap();
        assert_eq!(Listing::of(&Data::folder(folder.path().join("a"))).unwrap_err().kind(), ErrorKind::InvalidSpec);
    }

    #[test]
    fn a_list_that_a_node_cannot_take_is_refused_before_anything_is_read() {
        let folder = Scratch::new();
        for number in 0..400 {
            fs::write(folder.path().join(format!("{number:0100}")), "").unwrap();
        }
        let error = Listing::of(&Data::folder(folder.path())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
        assert!(error.message().contains("list of the files"), "{error}");
    }
}
