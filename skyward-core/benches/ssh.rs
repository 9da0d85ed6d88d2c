//! What a stream over SSH costs, beside OpenSSH's own client on the same server: round trips and
//! bulk. Needs OpenSSH's server.
//!
//! ```sh
//! cargo bench -p skyward-core --features ssh --bench ssh
//! ```

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a program that measures may end at once")]

#[path = "../tests/support/sshd.rs"]
mod sshd;

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use skyward_core::remote::ssh::{HostKeys, Key, Target};
use skyward_core::remote::{ByteStream, Remote, Ssh};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::sshd::{Options, Sshd};

fn main() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for cipher in ["aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"] {
        // The client takes what it likes best among what the server has.
        let options = Options::new().line(format!("Ciphers {cipher}"));
        let sshd = Sshd::start(&options).unwrap();
        let bridged = Sshd::start(&options.without_streams()).unwrap();
        println!("{cipher}");
        for _ in 0..rounds {
            println!("  round trip of {SMALL} bytes, median in us");
            println!("    ssh host cat             {:8.1}", openssh_echo(&sshd));
            println!("    stream of the server     {:8.1}", runtime.block_on(echo(&sshd)));
            println!("    stream over the bridge   {:8.1}", runtime.block_on(echo(&bridged)));
            println!("  {} MiB, in MiB/s", BULK >> 20);
            println!("    ssh host cat, from there {:8.0}", openssh_from(&sshd));
            println!("    ssh host cat, to there   {:8.0}", openssh_to(&sshd));
            println!("    stream, from there       {:8.0}", runtime.block_on(from(&sshd)));
            println!("    stream, to there         {:8.0}", runtime.block_on(to(&sshd)));
            println!("    bridge, from there       {:8.0}", runtime.block_on(from(&bridged)));
            println!("    bridge, to there         {:8.0}", runtime.block_on(to(&bridged)));
            println!("    put, in MiB/s            {:8.0}", runtime.block_on(put(&sshd)));
        }
    }
}

fn openssh(sshd: &Sshd, script: &str) -> Child {
    let known = sshd.path("known_hosts");
    std::fs::write(&known, format!("[{}]:{} {}\n", sshd.address(), sshd.port(), sshd.host_key())).unwrap();
    Process::new("ssh")
        .args(["-F", "none", "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"])
        .arg("-o")
        .arg(format!("UserKnownHostsFile={}", known.display()))
        .arg("-i")
        .arg(sshd.client_key())
        .args(["-p", &sshd.port().to_string(), sshd.address(), script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn openssh_echo(sshd: &Sshd) -> f64 {
    let mut child = openssh(sshd, "cat");
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut buffer = [0; SMALL];
    let mut took = Vec::new();
    for _ in 0..TURNS {
        let begin = Instant::now();
        stdin.write_all(&buffer).unwrap();
        stdout.read_exact(&mut buffer).unwrap();
        took.push(begin.elapsed());
    }
    drop(stdin);
    child.wait().unwrap();
    median(took)
}

fn openssh_from(sshd: &Sshd) -> f64 {
    let mut child = openssh(sshd, &format!("echo go; head -c {BULK} /dev/zero"));
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 3]).unwrap();
    let begin = Instant::now();
    let mut buffer = vec![0; CHUNK];
    let mut left = BULK;
    while left > 0 {
        left -= stdout.read(&mut buffer).unwrap();
    }
    let rate = rate(begin);
    drop(child.stdin.take());
    child.wait().unwrap();
    rate
}

fn openssh_to(sshd: &Sshd) -> f64 {
    let mut child = openssh(sshd, &format!("echo go; head -c {BULK} >/dev/null; echo"));
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    stdout.read_exact(&mut [0; 3]).unwrap();
    let begin = Instant::now();
    let buffer = vec![0; CHUNK];
    for _ in 0..BULK / CHUNK {
        stdin.write_all(&buffer).unwrap();
    }
    stdout.read_exact(&mut [0; 1]).unwrap();
    let rate = rate(begin);
    child.wait().unwrap();
    rate
}

async fn open(sshd: &Sshd, service: fn(std::os::unix::net::UnixStream)) -> ByteStream {
    let path = serve(sshd.folder(), service);
    let target = Target::new(sshd.address())
        .port(sshd.port())
        .user(sshd.user())
        .key(Key::file(sshd.client_key()))
        .host_keys(HostKeys::pinned(sshd.host_key()));
    Ssh::connect(target).await.unwrap().open(path.to_str().unwrap()).await.unwrap()
}

/// A service for each connection to a new socket.
fn serve(folder: &Path, service: fn(std::os::unix::net::UnixStream)) -> PathBuf {
    let path = folder.join("s");
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        while let Ok((peer, _)) = listener.accept() {
            std::thread::spawn(move || service(peer));
        }
    });
    path
}

async fn echo(sshd: &Sshd) -> f64 {
    let mut stream = open(sshd, |mut peer| {
        let mut buffer = [0; SMALL];
        while peer.read_exact(&mut buffer).is_ok() {
            peer.write_all(&buffer).unwrap();
        }
    })
    .await;
    // As the pool does: in a task of its own.
    let turns = tokio::spawn(async move {
        let mut buffer = [0; SMALL];
        let mut took = Vec::new();
        for _ in 0..TURNS {
            let begin = Instant::now();
            stream.write_all(&buffer).await.unwrap();
            stream.read_exact(&mut buffer).await.unwrap();
            took.push(begin.elapsed());
        }
        took
    });
    median(turns.await.unwrap())
}

async fn from(sshd: &Sshd) -> f64 {
    let mut stream = open(sshd, |mut peer| {
        let chunk = vec![0; CHUNK];
        while peer.write_all(&chunk).is_ok() {}
    })
    .await;
    let read = tokio::spawn(async move {
        let mut buffer = vec![0; CHUNK];
        stream.read_exact(&mut buffer).await.unwrap();
        let begin = Instant::now();
        let mut left = BULK;
        while left > 0 {
            left = left.saturating_sub(stream.read(&mut buffer).await.unwrap());
        }
        rate(begin)
    });
    read.await.unwrap()
}

async fn to(sshd: &Sshd) -> f64 {
    let mut stream = open(sshd, |mut peer| {
        let mut chunk = vec![0; CHUNK];
        let mut left = BULK;
        while left > 0 {
            match peer.read(&mut chunk) {
                Ok(count @ 1..) => left = left.saturating_sub(count),
                _ => return,
            }
        }
        let _ = peer.write_all(b"!");
    })
    .await;
    let write = tokio::spawn(async move {
        let begin = Instant::now();
        let chunk = vec![0; CHUNK];
        for _ in 0..BULK / CHUNK {
            stream.write_all(&chunk).await.unwrap();
        }
        stream.read_exact(&mut [0; 1]).await.unwrap();
        rate(begin)
    });
    write.await.unwrap()
}

async fn put(sshd: &Sshd) -> f64 {
    let target = Target::new(sshd.address())
        .port(sshd.port())
        .user(sshd.user())
        .key(Key::file(sshd.client_key()))
        .host_keys(HostKeys::pinned(sshd.host_key()));
    let remote = Ssh::connect(target).await.unwrap();
    let bytes = vec![7; BULK / 8];
    let path = sshd.path("put");
    let _ = std::fs::remove_file(&path);
    let begin = Instant::now();
    remote.put(path.to_str().unwrap(), &bytes, 0o600).await.unwrap();
    rate(begin) / 8.0
}

fn median(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    took[took.len() / 2].as_secs_f64() * 1e6
}

fn rate(begin: Instant) -> f64 {
    (BULK >> 20) as f64 / begin.elapsed().as_secs_f64()
}

const SMALL: usize = 64;
const TURNS: usize = 5000;
const CHUNK: usize = 256 << 10;
/// More than the limit after which keys are made anew, 1 GiB.
const BULK: usize = 2 << 30;
