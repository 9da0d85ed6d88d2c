use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::error::ErrorKind;
use crate::storage::Storage;
use crate::testkit::storage_suite;

/// A folder that does not exist yet, and is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("skyward-storage-{}-{number}", std::process::id())))
    }

    fn folder(&self) -> Folder {
        Folder::new(self.0.join("new/store"))
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.join("new/store").join(below)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_folder_fulfils_the_contract() {
    let (place, mut broken) = (Place::new(), Vec::new());
    storage_suite::all(&place.folder(), &mut broken).await;
    assert_eq!(broken, []);
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 0, "empty folders are removed, and the root stays");
}

#[tokio::test]
async fn a_folder_and_its_objects_are_their_owners_alone() {
    let place = Place::new();
    let storage = Storage::of(place.folder());
    storage.create(&path("a/b"), "x".into()).await.unwrap();
    let mode = |of: &str| fs::metadata(place.path(of)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(""), mode("a"), mode("a/b")), (0o700, 0o700, 0o600));
    assert_eq!(fs::metadata(place.0.join("new")).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[tokio::test]
async fn no_link_within_a_storage_is_followed() {
    let place = Place::new();
    let storage = Storage::of(place.folder());
    storage.create(&path("a/b"), "x".into()).await.unwrap();
    let outside = place.0.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(&outside, place.path("link")).unwrap();
    symlink(outside.join("secret"), place.path("a/secret")).unwrap();
    for (what, error) in [
        ("create", storage.create(&path("link/new"), "x".into()).await.map(drop)),
        ("read", storage.read(&path("link/secret"), 0..9).await.map(drop)),
        ("read", storage.read(&path("a/secret"), 0..9).await.map(drop)),
        ("remove", storage.remove(&path("link/secret")).await),
    ] {
        let error = error.unwrap_err();
        assert!(error.kind() == ErrorKind::Storage && !error.is_temporary(), "{what}: {error:?}");
        assert!(error.hint().is_some() && error.message().contains(what), "{what}: {error:?}");
    }
    let listed = storage.list(&path("a")).await.unwrap();
    assert_eq!(listed.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), ["a/b"]);
    assert_eq!(storage.list(&path("link")).await.unwrap(), []);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    // A removal takes the link, and not what it leads to.
    storage.remove(&path("a/secret")).await.unwrap();
    assert!(outside.join("secret").exists() && fs::symlink_metadata(place.path("a/secret")).is_err());
}

#[tokio::test]
async fn what_dead_writers_left_is_hidden_and_removed_after_a_day() {
    let place = Place::new();
    let storage = Storage::of(place.folder());
    storage.create(&path("a/b"), "x".into()).await.unwrap();
    let (new, old) = (place.path("a/.tmp~new"), place.path("a/.tmp~old"));
    fs::write(&new, "x").unwrap();
    fs::write(&old, "x").unwrap();
    let file = fs::File::options().write(true).open(&old).unwrap();
    file.set_modified(SystemTime::now() - LEFTOVER_AGE - Duration::from_secs(60)).unwrap();
    let other = place.path("a/not a name");
    fs::write(&other, "x").unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(storage.list(&path("a")).await.unwrap().len(), 1);
    assert!(new.exists() && !old.exists() && other.exists());
}

#[tokio::test]
async fn a_folder_that_cannot_be_used_is_an_error_that_says_why() {
    let place = Place::new();
    fs::create_dir_all(&place.0).unwrap();
    fs::write(place.0.join("new"), "a file").unwrap();
    let error = Storage::of(place.folder()).check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert!(error.message().contains("new/store") && error.hint().unwrap().contains("in the way"), "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn a_name_that_is_a_folder_exists_and_is_no_object() {
    let place = Place::new();
    let storage = Storage::of(place.folder());
    storage.create(&path("a/b"), "x".into()).await.unwrap();
    assert_eq!(storage.read(&path("a"), 0..9).await.unwrap_err().kind(), ErrorKind::NotFound);
    storage.remove(&path("a")).await.unwrap();
    assert_eq!(storage.read(&path("a/b"), 0..9).await.unwrap(), "x");
}

#[test]
fn a_full_disk_and_a_missing_permission_are_named() {
    for (errno, word, is_temporary) in [
        (Errno::NOSPC, "full", false),
        (Errno::DQUOT, "quota", false),
        (Errno::ACCESS, "permission", false),
        (Errno::ROFS, "mounted", false),
        (Errno::LOOP, "link", false),
        (Errno::IO, "pass", true),
        (Errno::STALE, "pass", true),
    ] {
        let error = failed("create a", "the folder /data", errno.into());
        assert!(error.hint().unwrap().contains(word) && error.is_temporary() == is_temporary, "{error:?}");
    }
}
