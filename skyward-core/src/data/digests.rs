//! The digests of a folder's files, which are kept in the user's cache: reading a large data set takes
//! minutes, and its files rarely change.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::listing::{Listing, identity_of};
use super::source::cannot_read;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Check, Identity, PartKind};
use crate::spec::hex;

/// A file and its digest, as the cache has them.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    path: PathBuf,
    identity: Identity,
    changed: i64,
    sha256: String,
}

/// A file whose digest is needed.
struct Wanted<'l> {
    /// Its index in the list.
    index: usize,
    path: &'l Path,
    identity: Identity,
    changed: i64,
}

/// The digests of all files of a folder, by their indices in the list. The call blocks on the disk.
///
/// # Errors
///
/// - [`ErrorKind::Changed`]: a file is not the one that was listed.
/// - [`ErrorKind::Io`]: a file cannot be read.
pub(super) fn digests_of(listing: &Listing, cache: Option<&Path>) -> Result<HashMap<usize, String>> {
    let at = cache.map(|cache| cache.join(hex(&Sha256::digest(listing.root.as_os_str().as_bytes()))));
    let known = at.as_deref().map(read).unwrap_or_default();
    let wanted = listing.parts.iter().zip(&listing.changed).enumerate();
    let wanted: Vec<Wanted<'_>> = wanted
        .filter_map(|(index, (part, changed))| match &part.kind {
            PartKind::File { check: Check::Identity(identity), .. } => {
                Some(Wanted { index, path: &part.path, identity: *identity, changed: *changed })
            }
            _ => None,
        })
        .collect();
    let mut found = HashMap::with_capacity(wanted.len());
    let mut unknown = Vec::new();
    for file in &wanted {
        match known.get(file.path) {
            Some(known) if known.identity == file.identity && known.changed == file.changed => {
                found.insert(file.index, known.sha256.clone());
            }
            _ => unknown.push(file),
        }
    }
    let began = nanoseconds(SystemTime::now());
    found.extend(hash_all(&listing.root, &unknown)?);
    if let Some(at) = at
        && !unknown.is_empty()
    {
        // A file that was changed just now may change again without another time.
        let settled = began.saturating_sub(SETTLED.as_nanos() as i64);
        let files = wanted.iter().filter(|file| file.identity.modified < settled && file.changed < settled);
        let known = files.filter_map(|file| {
            let Wanted { index, path, identity, changed } = *file;
            Some(Known { path: path.to_owned(), identity, changed, sha256: found.get(&index)?.clone() })
        });
        let known: Vec<Known> = known.collect();
        if let Err(error) = write(&at, &known) {
            tracing::debug!(path = %at.display(), %error, "the digests of a data set are not kept");
        }
    }
    Ok(found)
}

/// The folder of this user's cache where digests are kept; `None` if the user has no home folder.
pub(super) fn cache_of_user() -> Option<PathBuf> {
    let from = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let standard = || from("XDG_CACHE_HOME").filter(|folder| folder.is_absolute());
    let home = || Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(".cache"));
    let cache = from("SKYWARD_CACHE_DIR").or_else(|| Some(standard().or_else(home)?.join("skyward")))?;
    Some(cache.join("digests"))
}

/// Reads files on some threads at once.
fn hash_all(root: &Path, files: &[&Wanted<'_>]) -> Result<Vec<(usize, String)>> {
    let next = AtomicUsize::new(0);
    let hashed = Mutex::new(Ok(Vec::with_capacity(files.len())));
    let lock = || hashed.lock().unwrap_or_else(PoisonError::into_inner);
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS).min(files.len());
    let work = || {
        let mut buffer = vec![0; BUFFER];
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let digest = hash(&root.join(file.path), &file.identity, &mut buffer);
            let mut hashed = lock();
            match (&mut *hashed, digest) {
                (Ok(all), Ok(digest)) => all.push((file.index, digest)),
                (Ok(_), Err(error)) => *hashed = Err(error),
                (Err(_), _) => return,
            }
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    hashed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn hash(path: &Path, identity: &Identity, buffer: &mut [u8]) -> Result<String> {
    let mut file = open(path, identity)?;
    let mut digest = Sha256::new();
    loop {
        match file.read(buffer) {
            Ok(0) => break,
            Ok(count) => digest.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cannot_read(path, &error)),
        }
    }
    check(path, &file, identity)?;
    Ok(hex(&digest.finalize()))
}

/// Opens a file of a data set, if it is still the one that was listed.
///
/// # Errors
///
/// [`ErrorKind::Changed`] if it is another one; [`ErrorKind::Io`] if it cannot be read.
pub(super) fn open(path: &Path, identity: &Identity) -> Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = File::options().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => differs(path),
        _ => cannot_read(path, &error),
    })?;
    check(path, &file, identity)?;
    Ok(file)
}

/// Checks that an open file is the one that was listed.
pub(super) fn check(path: &Path, file: &File, identity: &Identity) -> Result<()> {
    let metadata = file.metadata().map_err(|error| cannot_read(path, &error))?;
    if identity_of(&metadata) == *identity { Ok(()) } else { Err(differs(path)) }
}

fn differs(path: &Path) -> Error {
    let message =
        format!("{} is not the file any more that it was when the pool began to use its data set", path.display());
    Error::new(ErrorKind::Changed, message)
        .with_hint("leave a data set as it is while a pool uses it: write new files into another folder")
}

fn read(at: &Path) -> HashMap<PathBuf, Known> {
    // Without it, all files are read again.
    let known: Vec<Known> = fs::read(at).ok().and_then(|bytes| rmp_serde::from_slice(&bytes).ok()).unwrap_or_default();
    known.into_iter().map(|known| (known.path.clone(), known)).collect()
}

fn write(at: &Path, known: &[Known]) -> io::Result<()> {
    let Some(folder) = at.parent() else { return Ok(()) };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let half = at.with_extension(format!("{:016x}.part", rand::random::<u64>()));
    let packed = rmp_serde::to_vec(known).map_err(io::Error::other)?;
    let written = fs::write(&half, packed).and_then(|()| fs::rename(&half, at));
    if written.is_err() {
        let _ = fs::remove_file(&half);
    }
    written
}

fn nanoseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos().try_into().unwrap_or(i64::MAX))
}

/// Older changes have another time than any that comes.
const SETTLED: Duration = Duration::from_secs(2);
const MOST_THREADS: usize = 8;
const BUFFER: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;

    use super::super::scratch::Scratch;
    use super::super::source::Data;
    use super::*;

    fn digests(folder: &Scratch, cache: &Scratch) -> Vec<String> {
        let listing = Listing::of(&Data::folder(folder.path())).unwrap();
        let mut found: Vec<_> = digests_of(&listing, Some(cache.path())).unwrap().into_iter().collect();
        found.sort();
        found.into_iter().map(|(_, digest)| digest).collect()
    }

    fn age(path: &Path) {
        let file = File::options().append(true).open(path).unwrap();
        file.set_times(FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(60))).unwrap();
    }

    #[test]
    fn a_file_that_changes_has_another_digest_whatever_its_times_say() {
        let (folder, cache) = (Scratch::new(), Scratch::new());
        let path = folder.path().join("a");
        fs::write(&path, "one").unwrap();
        age(&path);
        let first = digests(&folder, &cache);
        assert_eq!(first, [hex(&Sha256::digest("one"))]);
        fs::write(&path, "two").unwrap();
        age(&path);
        assert_eq!(digests(&folder, &cache), [hex(&Sha256::digest("two"))]);
    }

    #[test]
    fn a_kept_digest_is_used_as_long_as_the_file_is_the_same() {
        let (folder, cache) = (Scratch::new(), Scratch::new());
        fs::write(folder.path().join("a"), "one").unwrap();
        let listing = Listing::of(&Data::folder(folder.path())).unwrap();
        let at = cache.path().join(hex(&Sha256::digest(listing.root.as_os_str().as_bytes())));
        let Check::Identity(identity) = (match &listing.parts[1].kind {
            PartKind::File { check, .. } => check.clone(),
            kind => panic!("{kind:?}"),
        }) else {
            panic!("a listed file has an identity")
        };
        let known = |changed| {
            let path = PathBuf::from("a");
            write(&at, &[Known { path, identity, changed, sha256: "kept".into() }]).unwrap();
        };
        known(listing.changed[1]);
        assert_eq!(digests(&folder, &cache), ["kept"]);
        known(listing.changed[1] - 1);
        assert_eq!(digests(&folder, &cache), [hex(&Sha256::digest("one"))]);
        fs::write(&at, "no MessagePack").unwrap();
        assert_eq!(digests(&folder, &cache), [hex(&Sha256::digest("one"))]);
    }

    #[test]
    fn a_digest_of_a_file_that_was_just_written_is_not_kept() {
        let (folder, cache) = (Scratch::new(), Scratch::new());
        fs::write(folder.path().join("a"), "one").unwrap();
        digests(&folder, &cache);
        let kept: Vec<_> = fs::read_dir(cache.path()).unwrap().collect();
        assert!(kept.iter().all(|file| read(&file.as_ref().unwrap().path()).is_empty()));
    }

    #[test]
    fn a_file_that_was_replaced_since_it_was_listed_is_refused() {
        let (folder, cache) = (Scratch::new(), Scratch::new());
        for (index, replace) in [
            (|path: &Path| fs::write(path, "other").unwrap()) as fn(&Path),
            |path| fs::remove_file(path).unwrap(),
            |path| {
                fs::write(path.with_extension("new"), "one").unwrap();
                fs::rename(path.with_extension("new"), path).unwrap();
            },
        ]
        .into_iter()
        .enumerate()
        {
            let path = folder.path().join(format!("a{index}"));
            fs::write(&path, "one").unwrap();
            let listing = Listing::of(&Data::folder(folder.path())).unwrap();
            replace(&path);
            let error = digests_of(&listing, Some(cache.path())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Changed, "{index}: {error}");
            let _ = fs::remove_file(&path);
        }
    }
}
