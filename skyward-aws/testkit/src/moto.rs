//! The processes of moto, an EC2 without machines that listens on loopback.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, sleep, timeout};

use crate::network::{Addresses, free_port};
use crate::timing::{MOTO_POLL, MOTO_START};
use crate::{http, python};

/// A running moto. It ends when this is dropped, and with this process.
#[derive(Debug)]
pub(crate) struct Moto {
    pub(crate) address: SocketAddr,
    /// Its log file.
    pub(crate) log: PathBuf,
    fork: Fork,
}

impl Moto {
    /// Starts moto with its files in a folder, and waits until it answers. It listens on an address
    /// of this cloud alone: on a shared address, the moto of another cloud could take the port and
    /// answer in its place.
    pub(crate) async fn start(folder: &Path, addresses: &Addresses) -> Result<Self> {
        let host = addresses.service();
        let (log, images) = (folder.join("moto.log"), folder.join("images.json"));
        std::fs::write(&images, IMAGES)?;
        let mut last = None;
        // Another process may take the port before moto does.
        for _ in 0..ATTEMPTS {
            let port = free_port(host)?;
            let request = serde_json::json!({
                "host": host.to_string(), "port": port, "public": addresses.public(),
                "images": images, "folder": folder, "log": log,
            });
            let fork = tokio::task::spawn_blocking(move || fork(&request.to_string()));
            let fork = timeout(MOTO_START, fork).await.context("moto is not imported in time")???;
            let moto = Self { address: (host, port).into(), log: log.clone(), fork };
            match moto.wait().await {
                Ok(()) => return Ok(moto),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("moto was not tried")))
    }

    /// Ends it and waits until it is gone.
    pub(crate) async fn stop(self) {
        self.fork.end();
        let end = Instant::now() + MOTO_START;
        while self.fork.is_running() && Instant::now() < end {
            sleep(MOTO_POLL).await;
        }
    }

    async fn wait(&self) -> Result<()> {
        let end = Instant::now() + MOTO_START;
        loop {
            if !self.fork.is_running() {
                bail!("moto ended: {}", self.last_lines());
            }
            let request =
                Request::get("/moto-api/data.json").header("host", "localhost").body(Full::<Bytes>::default())?;
            if http::send(self.address, request).await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("moto does not answer on {} after {MOTO_START:?}: {}", self.address, self.last_lines());
            }
            sleep(MOTO_POLL).await;
        }
    }

    /// The last lines that it wrote.
    fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// A fork of the process that has imported moto.
#[derive(Debug)]
struct Fork {
    id: u32,
    /// The process itself, of which no later one can have the id.
    process: OwnedFd,
}

impl Fork {
    fn is_running(&self) -> bool {
        Path::new(&format!("/proc/{}", self.id)).exists()
    }

    fn end(&self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        self.end();
    }
}

/// The process that has imported moto and forks. It ends with its standard input, thus with this
/// process.
#[derive(Debug)]
struct Importer {
    child: Child,
    requests: ChildStdin,
    forks: BufReader<ChildStdout>,
}

/// Forks a moto. The first call starts the process that imports moto.
fn fork(request: &str) -> Result<Fork> {
    let mut importer = IMPORTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = importer.as_mut()
        && running.child.try_wait()?.is_some()
    {
        *importer = None;
    }
    let importer = match importer.as_mut() {
        Some(running) => running,
        None => importer.insert(Importer::start()?),
    };
    importer.fork(request)
}

/// Ends the process that imports moto, for a program that leaves no process when it has ended. The
/// next cloud starts another one.
pub fn end_importer() {
    if let Some(mut importer) = IMPORTER.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = importer.child.kill();
        let _ = importer.child.wait();
    }
}

static IMPORTER: Mutex<Option<Importer>> = Mutex::new(None);

impl Importer {
    fn start() -> Result<Self> {
        let mut child = Command::new(python::find()?)
            .args(["-u", "-c", SCRIPT])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(std::env::vars_os().filter(|(name, _)| name == "SKYWARD_XTASK_RUN"))
            .envs(ENVIRONMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Not that of this process, whose parent may wait until nobody holds it.
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start the Python with moto")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (requests, forks) = pipes.context("the Python with moto has no pipes")?;
        Ok(Self { child, requests, forks: BufReader::new(forks) })
    }

    fn fork(&mut self, request: &str) -> Result<Fork> {
        let mut answer = String::new();
        writeln!(self.requests, "{request}").and_then(|()| self.forks.read_line(&mut answer))?;
        let Ok(id) = answer.trim().parse::<i32>() else {
            let mut written = String::new();
            self.child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut written)).transpose()?;
            bail!("the Python with moto ended with {}: {}", self.child.wait()?, written.trim());
        };
        let process = Pid::from_raw(id).context("a process has the id 0")?;
        let process = pidfd_open(process, PidfdFlags::empty()).context("moto ended at once")?;
        Ok(Fork { id: id.unsigned_abs(), process })
    }
}

/// The access key of the hypervisor, whose calls moto allows whatever its policies say.
pub(crate) const TRUSTED_KEY: &str = "AKIALOOPBACKMACHINES";

const SCRIPT: &str = include_str!("../moto/moto_loopback.py");
const IMAGES: &str = include_str!("../moto/images.json");
/// Turns on what moto checks only on request.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("MOTO_ENABLE_AMI_VALIDATION", "true"),
    ("MOTO_ENABLE_KEYPAIR_VALIDATION", "true"),
    ("MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION", "true"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("PYTHONNOUSERSITE", "1"),
];
const ATTEMPTS: usize = 3;
