//! The process of moto, an EC2 without machines that listens on loopback.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::network::{Addresses, free_port};
use crate::{http, python};

/// A running moto. It ends when this is dropped, and when the thread that started it ends.
#[derive(Debug)]
pub(crate) struct Moto {
    pub(crate) address: SocketAddr,
    /// Its log file.
    pub(crate) log: PathBuf,
    child: Child,
}

impl Moto {
    /// Starts moto with its files in a folder, and waits until it answers. It listens on an address
    /// of this cloud alone: on a shared address, the moto of another cloud could take the port and
    /// answer in its place.
    pub(crate) async fn start(folder: &Path, addresses: &Addresses) -> Result<Self> {
        let (host, public) = (addresses.service(), addresses.public());
        let python = tokio::task::spawn_blocking(python::find).await??;
        let (script, images) = (folder.join("moto_loopback.py"), folder.join("images.json"));
        std::fs::write(&script, SCRIPT)?;
        std::fs::write(&images, IMAGES)?;
        let mut last = None;
        // Another process may take the port before moto does.
        for _ in 0..ATTEMPTS {
            let log = folder.join("moto.log");
            let port = free_port(host)?;
            let output = std::fs::File::create(&log)?;
            let child = Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "--"])
                .arg(&python)
                .arg("-u")
                .arg(&script)
                .args([host.to_string(), port.to_string()])
                .arg(&images)
                .arg(&public)
                .env_clear()
                .env("PATH", "/usr/local/bin:/usr/bin:/bin")
                .envs(std::env::vars_os().filter(|(name, _)| name == "SKYWARD_XTASK_RUN"))
                .envs(ENVIRONMENT)
                .env("HOME", folder)
                .current_dir(folder)
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(output)
                .process_group(0)
                .kill_on_drop(true)
                .spawn()
                .context("cannot start moto; the program `setpriv` is of the package util-linux")?;
            let mut moto = Self { address: (host, port).into(), child, log };
            match moto.wait().await {
                Ok(()) => return Ok(moto),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("moto was not tried")))
    }

    /// Ends it and waits until it is gone.
    pub(crate) async fn stop(mut self) {
        let _ = self.child.kill().await;
    }

    async fn wait(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("moto ended with {status}: {}", self.log());
            }
            let request =
                Request::get("/moto-api/data.json").header("host", "localhost").body(Full::<Bytes>::default())?;
            if http::send(self.address, request).await.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("moto does not answer on {} after {PATIENCE:?}: {}", self.address, self.log());
            }
            sleep(POLL).await;
        }
    }

    /// The last lines that it wrote.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
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
/// How long moto may take to start: without bytecode and on a busy machine, its imports take many
/// seconds.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);
