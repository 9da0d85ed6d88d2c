//! Streams to sockets: forwarded by the server, or else through a program on the host.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use skyward_core::error::ErrorKind;
use skyward_core::remote::Remote;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::site::{Echo, TEST_STEP, connect, server, shell, until};
use crate::sshd::{Options, Sshd};

/// A server that forwards no streams, with no program on it that could do so instead.
fn bare() -> (Sshd, Home) {
    let home = Home(std::env::temp_dir().join(format!("skyward-home-{:08x}", rand::random::<u32>())));
    let bin = home.0.join("bin");
    fs::create_dir_all(&bin).unwrap();
    for program in ["sh", "bash", "head", "grep", "cat"] {
        let path =
            ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(program)).into_iter().find(|path| path.exists());
        symlink(path.unwrap(), bin.join(program)).unwrap();
    }
    // With another home folder, no start-up file sets the search path again.
    let options = Options::new().without_streams().env("PATH", bin.to_str().unwrap());
    (server(&options.env("HOME", home.0.to_str().unwrap())), home)
}

struct Home(PathBuf);

impl Drop for Home {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn megabytes_return_through_each_kind_of_stream_and_its_end_is_seen() {
    for options in [Options::new(), Options::new().without_streams()] {
        let sshd = server(&options);
        let remote = connect(&sshd).await;
        let echo = Echo::start(sshd.path("s"));
        let stream = remote.open(echo.path()).await.unwrap();
        let (mut read, mut write) = tokio::io::split(stream);
        let bytes: Vec<u8> = (0..=255).cycle().take(8 << 20).collect();
        let sent = async {
            write.write_all(&bytes).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut back = Vec::new();
        let (_, received) = tokio::join!(sent, timeout(TEST_STEP, read.read_to_end(&mut back)));
        assert_eq!(received.unwrap().unwrap(), bytes.len());
        assert!(back == bytes);
    }
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn without_forwarding_a_program_connects_the_socket_and_ends_with_the_stream() {
    let sshd = server(&Options::new().without_streams());
    let remote = connect(&sshd).await;
    let echo = Echo::start(sshd.path("s"));
    for _ in 0..3 {
        let mut stream = remote.open(echo.path()).await.unwrap();
        echo.check(&mut stream).await;
        drop(stream);
        until("the other end sees the end", || echo.open() == 0).await;
    }
    let error = remote.open(sshd.path("nobody").to_str().unwrap()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.is_temporary());
    // A socket on which no process listens any more.
    drop(std::os::unix::net::UnixListener::bind(sshd.path("old")).unwrap());
    let error = remote.open(sshd.path("old").to_str().unwrap()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.is_temporary());
    assert!(error.message().contains("refused"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_missing_program_is_reported_and_the_python_of_an_environment_is_found() {
    let (sshd, home) = bare();
    let remote = connect(&sshd).await;
    let echo = Echo::start(sshd.path("s"));
    let error = remote.open(echo.path()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Bootstrap, "{error}");
    assert!(!error.is_temporary(), "{error}");
    assert!(error.hint().unwrap().contains("AllowStreamLocalForwarding"), "{error}");
    let bin = home.0.join(".cache/skyward/envs/some/bin");
    fs::create_dir_all(&bin).unwrap();
    symlink("/usr/bin/python3", bin.join("python")).unwrap();
    let mut stream = remote.open(echo.path()).await.unwrap();
    echo.check(&mut stream).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_stream_that_is_read_late_does_not_hold_up_others() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let echo = Echo::start(sshd.path("s"));
    let mut late = remote.open(echo.path()).await.unwrap();
    // All bytes come back, and wait in the client: fewer than one stream may hold before the
    // connection waits for its reader.
    timeout(Duration::from_secs(20), late.write_all(&[0; 16 << 20])).await.unwrap().unwrap();
    assert_eq!(shell(&remote, "echo on").await, "on\n");
    let mut other = remote.open(echo.path()).await.unwrap();
    echo.check(&mut other).await;
}
