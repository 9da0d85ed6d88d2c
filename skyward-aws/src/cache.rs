//! Answers of AWS that stay the same for hours, in the user's cache folder.
//!
//! A file that is old, damaged or of another version is ignored. A file that cannot be written
//! costs no more than the next call.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

/// A folder of cached answers, of one account in one region.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

/// An answer, and when it was given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept<T> {
    version: u32,
    read_at: u64,
    pub(crate) value: T,
}

impl Cache {
    /// The cache in `$XDG_CACHE_HOME/skyward/aws/<account>/<region>`; one that keeps nothing, where
    /// the user has no cache folder.
    pub(crate) fn of_user(account: &str, region: &str) -> Self {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
        match base {
            Some(base) => Self::within(&base, account, region),
            None => Self::off(),
        }
    }

    pub(crate) fn within(base: &Path, account: &str, region: &str) -> Self {
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        match is_name(account) && is_name(region) {
            true => Self { folder: Some(base.join("skyward").join("aws").join(account).join(region)) },
            false => Self::off(),
        }
    }

    /// A cache that keeps nothing.
    pub(crate) fn off() -> Self {
        Self { folder: None }
    }

    /// The answer under this name, unless it is older than `lifetime`.
    pub(crate) async fn read<T: DeserializeOwned>(
        &self,
        name: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Option<Kept<T>> {
        let path = self.folder.as_ref()?.join(format!("{name}.json"));
        let file = path.clone();
        let text = match spawn_blocking(move || bytes_of(&file)).await.unwrap_or_else(|_| Err(lost())) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "the cached answer cannot be read");
                return None;
            }
        };
        let kept: Kept<T> = match serde_json::from_slice(&text) {
            Ok(kept) => kept,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "the cached answer is damaged, or of another version");
                return None;
            }
        };
        (kept.version == VERSION && kept.is_fresh(now, lifetime)).then_some(kept)
    }

    /// Keeps an answer for other processes and later ones.
    pub(crate) async fn write<T: Serialize>(&self, name: &str, kept: &Kept<T>) {
        let Some(folder) = self.folder.clone() else { return };
        let path = folder.join(format!("{name}.json"));
        let written = match serde_json::to_vec(kept) {
            Ok(text) => spawn_blocking({
                let path = path.clone();
                move || replace(&folder, &path, &text)
            })
            .await
            .unwrap_or_else(|_| Err(lost())),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = written {
            tracing::debug!(path = %path.display(), %error, "the answer cannot be cached");
        }
    }
}

impl<T> Kept<T> {
    pub(crate) fn new(value: T, now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { version: VERSION, read_at: since.as_secs(), value }
    }

    /// Whether the answer is at most `lifetime` old. An answer from the future was written by
    /// another clock, so its age is unknown.
    pub(crate) fn is_fresh(&self, now: SystemTime, lifetime: Duration) -> bool {
        // In whole seconds, as `read_at` is: an answer of this very second must not count as one
        // from the future.
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        now.checked_sub(self.read_at).is_some_and(|age| age <= lifetime.as_secs())
    }
}

fn bytes_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = fs::File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    match read as u64 > MOST_BYTES {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than any answer")),
        false => Ok(bytes),
    }
}

/// A reader sees the old file or the new one, and never a part of it.
fn replace(folder: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}.{number}", std::process::id()));
    // A killed process of the same number may have left such a file.
    let fill = || {
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600).open(&beside)?.write_all(text)?;
        fs::rename(&beside, path)
    };
    fill().inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// The runtime ended before the file was read or written.
fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the runtime has ended")
}

/// Changes with the shape of any cached answer.
const VERSION: u32 = 1;
const MOST_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// A folder that is removed with the test.
    pub(crate) struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("skyward-aws-cache-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    #[tokio::test]
    async fn an_answer_is_kept_for_its_lifetime() {
        let folder = Folder::new("lifetime");
        let cache = Cache::within(&folder.0, "123456789012", "eu-west-1");
        assert_eq!(cache.read::<Vec<u8>>("types", at(0), DAY).await, None);
        cache.write("types", &Kept::new(vec![1u8, 2], at(1000))).await;
        let read = async |now| cache.read::<Vec<u8>>("types", now, DAY).await.map(|kept| kept.value);
        assert_eq!(read(at(1000)).await, Some(vec![1, 2]));
        assert_eq!(read(at(1000 + 86_400)).await, Some(vec![1, 2]));
        assert_eq!(read(at(1001 + 86_400)).await, None, "it is too old");
        assert_eq!(read(at(999)).await, None, "it is of the future");
        assert_eq!(cache.read::<Vec<u8>>("prices", at(1000), DAY).await, None);
        let other = Cache::within(&folder.0, "123456789012", "eu-west-2");
        assert_eq!(other.read::<Vec<u8>>("types", at(1000), DAY).await, None);
    }

    #[tokio::test]
    async fn what_is_damaged_or_of_another_version_is_not_there() {
        let folder = Folder::new("damaged");
        let cache = Cache::within(&folder.0, "1", "r");
        cache.write("types", &Kept::new(7u32, at(10))).await;
        let path = folder.0.join("skyward/aws/1/r/types.json");
        for text in
            ["", "{", "7", r#"{"version":0,"read_at":10,"value":7}"#, r#"{"version":1,"read_at":10,"value":"x"}"#]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(cache.read::<u32>("types", at(10), DAY).await, None, "{text}");
        }
        cache.write("types", &Kept::new(8u32, at(10))).await;
        assert_eq!(cache.read::<u32>("types", at(10), DAY).await.map(|kept| kept.value), Some(8));
    }

    #[tokio::test]
    async fn files_are_private_and_nothing_else_is_left() {
        let folder = Folder::new("private");
        let cache = Cache::within(&folder.0, "1", "r");
        cache.write("types", &Kept::new(7u32, at(10))).await;
        let inner = folder.0.join("skyward/aws/1/r");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&inner), 0o700);
        assert_eq!(mode(&inner.join("types.json")), 0o600);
        assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_cache_that_cannot_be_written_costs_nothing() {
        let folder = Folder::new("blocked");
        std::fs::write(folder.0.join("skyward"), "a file where a folder would be").unwrap();
        let cache = Cache::within(&folder.0, "1", "r");
        cache.write("types", &Kept::new(7u32, at(10))).await;
        assert_eq!(cache.read::<u32>("types", at(10), DAY).await, None);
        let off = Cache::off();
        off.write("types", &Kept::new(7u32, at(10))).await;
        assert_eq!(off.read::<u32>("types", at(10), DAY).await, None);
    }

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        for (account, region) in [("..", "eu-west-1"), ("1", "../.."), ("", "eu-west-1"), ("1/2", "eu-west-1")] {
            assert!(Cache::within(Path::new("/base"), account, region).folder.is_none(), "{account} {region}");
        }
    }
}
