//! Files are written completely or not at all, and not twice.

use std::fs;
use std::future::poll_fn;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use skyward_core::error::ErrorKind;
use skyward_core::remote::Remote;
use tokio::time::timeout;

use crate::disk::Disk;
use crate::site::{connect, server, until};
use crate::sshd::Options;

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn an_identical_file_stays_and_gets_its_mode() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let path = sshd.path("a/b'c/file");
    let text = path.to_str().unwrap();
    let bytes = vec![7; 1 << 20];
    remote.put(text, &bytes, 0o600).await.unwrap();
    let first = fs::metadata(&path).unwrap();
    remote.put(text, &bytes, 0o755).await.unwrap();
    let again = fs::metadata(&path).unwrap();
    assert_eq!(first.ino(), again.ino());
    assert_eq!(again.permissions().mode() & 0o7777, 0o755);
    remote.put(text, b"other", 0o600).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"other");
    remote.put(text, b"", 0o600).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"");
    assert_eq!(names(path.parent().unwrap()), ["file"]);
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_dropped_put_leaves_the_old_file_and_no_part() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let folder = sshd.path("files");
    let path = folder.join("file");
    let text = path.to_str().unwrap();
    remote.put(text, b"old", 0o600).await.unwrap();
    let bytes = vec![7; 16 << 20];
    {
        let mut put = std::pin::pin!(remote.put(text, &bytes, 0o600));
        // Once the window is full, each further poll comes after a part of the bytes was written.
        let has_part = poll_fn(|context| match put.as_mut().poll(context) {
            Poll::Ready(ended) => panic!("done already: {ended:?}"),
            Poll::Pending if names(&folder).len() == 2 => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        });
        timeout(PUT, has_part).await.unwrap();
    }
    until("the part is gone", || names(&folder) == ["file"]).await;
    assert_eq!(fs::read(&path).unwrap(), b"old");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn an_unusable_folder_is_named() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let error = remote.put("/proc/none/file", b"x", 0o600).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bootstrap);
    assert!(error.message().starts_with("cannot write /proc/none/file on "), "{error}");
    assert!(remote.put("relative", b"x", 0o600).await.is_err());
}

#[tokio::test]
#[ignore = "needs sshd, mount"]
async fn a_full_disk_is_named() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let folder = sshd.path("disk");
    fs::create_dir(&folder).unwrap();
    let _disk = Disk::mount(&folder, 64 << 10);
    let path = folder.join("file");
    remote.put(path.to_str().unwrap(), b"old", 0o600).await.unwrap();
    let error = remote.put(path.to_str().unwrap(), &vec![7; 1 << 20], 0o600).await.unwrap_err();
    assert!(error.message().contains("the disk is full") && error.hint().unwrap().contains("df"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"old".to_vec());
    assert_eq!(names(&folder), vec!["file".to_owned()]);
}

/// The most memory that this process has had so far, in MiB.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_large_file_is_sent_without_a_copy_of_it() {
    const SIZE: usize = 256;
    // In a process of its own, because other tests need memory too.
    if std::env::var_os(ALONE).is_none() {
        let name = "files::a_large_file_is_sent_without_a_copy_of_it";
        let mut alone = tokio::process::Command::new(std::env::current_exe().unwrap());
        let ended = alone.args([name, "--exact", "--ignored"]).env(ALONE, "1").output().await.unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        return;
    }
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let (path, bytes) = (sshd.path("large"), vec![7; SIZE << 20]);
    let before = peak();
    remote.put(path.to_str().unwrap(), &bytes, 0o600).await.unwrap();
    let grown = peak() - before;
    assert!(grown < SIZE / 2, "{grown} MiB for a file of {SIZE} MiB");
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes.len() as u64);
}

const ALONE: &str = "SKYWARD_TEST_ALONE";

/// How long a file of some MiB may take on a busy host.
const PUT: Duration = Duration::from_secs(60);
