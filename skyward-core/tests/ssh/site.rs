//! Helpers of the tests: a server, and a target for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use skyward_core::remote::ssh::{HostKeys, Key, Target};
use skyward_core::remote::{ByteStream, Command, Remote, Ssh};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::sshd::{Options, Sshd};

/// Starts a server.
pub(crate) fn server(options: &Options) -> Sshd {
    Sshd::start(options).unwrap_or_else(|error| panic!("cannot start an SSH server: {error}"))
}

/// The target for a server, with its key pinned.
pub(crate) fn target(sshd: &Sshd) -> Target {
    Target::new(sshd.address())
        .port(sshd.port())
        .user(sshd.user())
        .key(Key::file(sshd.client_key()))
        .host_keys(HostKeys::pinned(sshd.host_key()))
}

/// A connection to a server.
pub(crate) async fn connect(sshd: &Sshd) -> Ssh {
    Ssh::connect(target(sshd)).await.unwrap_or_else(|error| panic!("{error:?}\n{}", sshd.log()))
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + TEST_STEP;
    while !holds() {
        assert!(Instant::now() < end, "not after {TEST_STEP:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs a script. Returns its standard output.
pub(crate) async fn shell(remote: &Ssh, script: &str) -> String {
    let output = remote.run(&Command::script(script), &|_| {}).await.unwrap();
    assert!(output.success(), "{output:?}");
    output.stdout
}

/// Whether a process exists and is not a zombie.
pub(crate) fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or("").starts_with('Z'))
}

/// Longer than any test step takes.
pub(crate) const TEST_STEP: Duration = Duration::from_secs(60);

/// A service on a Unix socket that sends back what it receives.
pub(crate) struct Echo {
    path: PathBuf,
    open: Arc<AtomicUsize>,
}

impl Echo {
    pub(crate) fn start(path: PathBuf) -> Self {
        let listener = UnixListener::bind(&path).unwrap();
        let open = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut peer, _)) = listener.accept().await {
                let count = Arc::clone(&count);
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let (mut read, mut write) = peer.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    count.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { path, open }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Checks that a stream reaches the service.
    pub(crate) async fn check(&self, stream: &mut ByteStream) {
        let round = async {
            stream.write_all(b"ping").await?;
            let mut back = [0; 4];
            stream.read_exact(&mut back).await?;
            Ok::<_, std::io::Error>(back)
        };
        assert_eq!(&tokio::time::timeout(TEST_STEP, round).await.unwrap().unwrap(), b"ping");
    }
}
