//! How long `ssh` takes on the same kind of instance, from the time when the instance runs: to log
//! in, to copy the files of a node, to start an agent and a worker, and to get the answer to a
//! call.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skyward::error::{Error, ErrorKind};
use skyward::ids::{LaunchId, MachineNumber, PoolId};
use skyward::provider::{LaunchBatch, LaunchRequest, Machine, Provider, Requirements};

use super::emulator::Emulator;
use super::watched::Watched;

/// A key for `ssh`, in a folder that is removed when this is dropped.
pub(crate) struct Key(std::path::PathBuf);

impl Key {
    pub(crate) fn make() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("skyward-bench-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let key = Self(folder);
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key.path()).status()?;
        if made.success() { Ok(key) } else { Err(io::Error::other(format!("ssh-keygen ended with {made}"))) }
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.join("key")
    }

    fn public(&self) -> io::Result<String> {
        Ok(std::fs::read_to_string(self.0.join("key.pub"))?.trim().to_owned())
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Seconds from the time when an instance of its own is reported as running until the call is
/// answered. `python` is the interpreter of the environment there.
pub(crate) async fn first_result_s(emulator: &Emulator, key: &Key, python: &str) -> skyward::Result<f64> {
    let public = key.public().map_err(super::beside)?;
    let aws = Watched::new(emulator.aws().public_key(public));
    // A launch id never starts two instances, so each pool has an id of its own.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let pool = PoolId::new(format!("bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    let machine = launch(&aws, &pool).await?;
    let took = use_it(&aws, &machine, (emulator.ssh_port(), key, python)).await;
    for ended in aws.terminate(std::slice::from_ref(&machine.id)).await {
        ended?;
    }
    // The security group can be removed once no instance uses it.
    let begin = Instant::now();
    while let Err(error) = aws.teardown(&pool).await {
        if begin.elapsed() > PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(POLL).await;
    }
    took
}

async fn launch(aws: &Watched, pool: &PoolId) -> skyward::Result<Machine> {
    let offers = aws.offers(&Requirements::default()).await?;
    let offer = offers.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Provider, "nothing is offered"))?;
    let (launch, number) = (LaunchId::new(format!("{pool}-0")), MachineNumber(0));
    let request = LaunchRequest::new(launch, pool.clone(), number, PATIENCE).boot(PATIENCE);
    let launched = aws.launch(&LaunchBatch::one(offer, request)).await.pop();
    launched.unwrap_or_else(|| Err(Error::new(ErrorKind::Provider, "nothing was launched")))
}

async fn use_it(aws: &Watched, machine: &Machine, (port, key, python): (u16, &Key, &str)) -> skyward::Result<f64> {
    let begin = Instant::now();
    let address = loop {
        let report = aws.inspect(std::slice::from_ref(&machine.id)).await?.pop();
        if let (Ok(_), Some(place)) = (aws.running(), report.and_then(|report| report.place)) {
            break place.address;
        }
        if begin.elapsed() > PATIENCE {
            return Err(Error::new(ErrorKind::Timeout, format!("{} does not run", machine.id)));
        }
        tokio::time::sleep(POLL).await;
    };
    let (path, python, running) = (key.path(), python.to_owned(), aws.running()?);
    super::blocking(move || {
        while running.elapsed() < PATIENCE {
            if answered(&path, &address, port, &python)? {
                return Ok(running.elapsed().as_secs_f64());
            }
            thread::sleep(POLL);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("`ssh` to {address} got no answer")))
    })
    .await
}

/// Whether an agent and a worker have answered; false while the instance refuses logins.
fn answered(key: &Path, address: &str, port: u16, python: &str) -> io::Result<bool> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut files = Command::new("tar")
        .args(["-C", root, "--exclude=__pycache__", "-c"])
        .args([BY_HAND, "skyward-core/python"])
        .stdout(Stdio::piped())
        .spawn()?;
    let script = format!("mkdir -p /tmp/by-hand && tar -C /tmp/by-hand -x && {python} /tmp/by-hand/{BY_HAND} 1");
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "none", "-T", "-o", "BatchMode=yes", "-o", "LogLevel=QUIET", "-o", "ConnectTimeout=5"])
        // The instance makes its own host key, and this comparison accepts any.
        .args([
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "IdentitiesOnly=yes",
            "-i",
        ])
        .arg(key)
        .args(["-p", &port.to_string(), "-l", "ubuntu", address, &script]);
    let output = match files.stdout.take() {
        Some(files) => ssh.stdin(files).stderr(Stdio::inherit()).output()?,
        None => return Err(io::Error::other("tar was started without its pipe")),
    };
    files.kill()?;
    files.wait()?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).contains("ready")),
        Some(NO_SESSION) => Ok(false),
        _ => Err(io::Error::other(format!("{ssh:?} ended with {}", output.status))),
    }
}

/// The program that starts an agent and a worker, by its path in the repository.
const BY_HAND: &str = "tools/bench/benches/machines/by_hand.py";
/// The exit status of an `ssh` that could not connect.
const NO_SESSION: i32 = 255;
const POLL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(120);
