//! Files that this process has read and parsed already: many payloads of a crate are functions of the
//! same files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::encoding::Decoded;
use super::module::{Lines, Module};
use super::reading::{Found, read_text};
use super::version::Target;

/// The text of a file, and what is made of it.
pub(super) struct Kept {
    decoded: Decoded,
    /// By the path in messages and the version of Python, of which there is one of each as a rule.
    modules: Mutex<Vec<(String, Target, Arc<Module>)>>,
}

impl Kept {
    pub(super) fn of(decoded: Decoded) -> Arc<Self> {
        Arc::new(Self { decoded, modules: Mutex::default() })
    }

    pub(super) fn decoded(&self) -> &Decoded {
        &self.decoded
    }

    /// The text, parsed once.
    pub(super) fn module(&self, path: String, target: &Target) -> Arc<Module> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., module)) = modules.iter().find(|(known, of, _)| *known == path && of == target) {
            return Arc::clone(module);
        }
        let module = Arc::new(Module::parse(&*path, &*self.decoded.text, Lines::Own, target.clone()));
        modules.push((path, target.clone(), Arc::clone(&module)));
        module
    }
}

/// The file at this path, which messages show as `written`: as it was read before, unless it has
/// changed.
pub(super) fn kept(at: &Path, written: &str) -> Found<Arc<Kept>> {
    let stamp = Stamp::of(at);
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if let (Some(stamp), Some((known, file))) = (&stamp, files.get(at))
        && known == stamp
    {
        return Ok(Arc::clone(file));
    }
    let file = Kept::of(read_text(at, written)?);
    if let Some(stamp) = stamp {
        // An editor's process lives for days.
        let bytes: u64 = files.values().map(|(stamp, _)| stamp.length).sum();
        if bytes > MOST_BYTES {
            files.clear();
        }
        files.insert(at.to_owned(), (stamp, Arc::clone(&file)));
    }
    Ok(file)
}

/// What changes with a file.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: SystemTime,
    /// What a tool cannot set that keeps the time of modification, such as `rsync`: the file's number, and
    /// the time at which it was changed in any way.
    identity: (u64, i64, i64),
}

impl Stamp {
    /// None where the system has no such times.
    fn of(at: &Path) -> Option<Self> {
        let metadata = fs::metadata(at).ok()?;
        Some(Self { length: metadata.len(), modified: metadata.modified().ok()?, identity: identity(&metadata) })
    }
}

#[cfg(unix)]
fn identity(metadata: &fs::Metadata) -> (u64, i64, i64) {
    use std::os::unix::fs::MetadataExt as _;

    (metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
}

/// Other systems show no such facts.
#[cfg(not(unix))]
fn identity(_: &fs::Metadata) -> (u64, i64, i64) {
    (0, 0, 0)
}

static FILES: Mutex<BTreeMap<PathBuf, (Stamp, Arc<Kept>)>> = Mutex::new(BTreeMap::new());

/// Bytes of files that are kept, with their trees, which take some fifty times as much memory.
const MOST_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_parsed_again_when_it_has_changed() {
        let at = std::env::temp_dir().join(format!("skyward-python-{}-kept.py", std::process::id()));
        let module = || kept(&at, "kept.py").unwrap().module("kept.py".to_owned(), &Target::oldest());
        fs::write(&at, "x = 1\n").unwrap();
        let first = module();
        assert!(Arc::ptr_eq(&first, &module()), "what has not changed is the same");
        let other = kept(&at, "kept.py").unwrap().module("other.py".to_owned(), &Target::oldest());
        assert!(!Arc::ptr_eq(&first, &other), "messages name another path");
        fs::write(&at, "x = 1\ny = 2\n").unwrap();
        let longer = module();
        assert!(!Arc::ptr_eq(&first, &longer) && longer.text.ends_with("y = 2\n"));
        fs::write(&at, "x = 1\ny = 3\n").unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(1);
        fs::File::options().write(true).open(&at).unwrap().set_modified(later).unwrap();
        assert!(module().text.ends_with("y = 3\n"), "of the same length, at another time");
        let copy = at.with_extension("copy");
        fs::write(&copy, "x = 1\ny = 4\n").unwrap();
        fs::File::options().write(true).open(&copy).unwrap().set_modified(later).unwrap();
        fs::rename(&copy, &at).unwrap();
        assert!(!cfg!(unix) || module().text.ends_with("y = 4\n"), "of the same length and time, another file");
        fs::remove_file(&at).unwrap();
        assert!(kept(&at, "kept.py").is_err());
    }
}
