//! The namespaces that are a machine: its root, its processes, its name.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::firewall;
use crate::timing::{NAMESPACE, NAMESPACE_POLL};

/// The namespaces of a machine with their first process. Dropping this ends all processes in them.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// The id of its first process on the host.
    init: Pid,
    gone: watch::Receiver<bool>,
    /// The processes of the host that entered the namespaces; each waits for the program that it
    /// started there.
    entered: Mutex<HashSet<Pid>>,
    /// The control group of its processes.
    group: Option<PathBuf>,
}

/// What its root is made of.
#[derive(Debug)]
pub(crate) struct Root<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) cache: &'a Path,
    pub(crate) user: &'a str,
    pub(crate) name: &'a str,
    pub(crate) address: &'a str,
    /// Address and port of what plays systemd, as a path of bash.
    pub(crate) control: &'a str,
    pub(crate) gpus: u32,
}

/// A process of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: Pid,
    pub(crate) name: String,
}

impl Namespace {
    /// Makes the namespaces, and waits until the root is there.
    pub(crate) async fn start(root: &Root<'_>, group: Option<PathBuf>) -> Result<Self> {
        let gpus = root.gpus.to_string();
        // A machine counts its time from its own boot.
        let boot = format!("-{}", next_second().await?);
        let mut child = Command::from(firewall::enter(group.as_deref(), "setpriv"))
            // The machine ends with the thread that starts it, so that nothing is left when the
            // test is killed.
            .args(["--pdeathsig", "KILL", "--", "unshare", "--mount", "--pid", "--uts", "--time", "--fork"])
            .args(["--boottime", &boot])
            .args(["--kill-child=KILL", "--mount-proc", "--", "/bin/sh", "-c", INIT, "machine"])
            .args([root.folder, root.cache])
            .args([root.user, root.name, root.address, root.control, &gpus])
            .env_clear()
            .env("PATH", PATH)
            // `cargo xtask test` finds by this what a test has left running.
            .envs(std::env::vars_os().filter(|(name, _)| name == "SKYWARD_XTASK_RUN"))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .context("cannot start `setpriv` and `unshare` of the package util-linux")?;
        let ready = timeout(NAMESPACE, ready(&mut child)).await;
        ready.with_context(|| format!("the root of the machine was not made within {NAMESPACE:?}"))??;
        let unshare = child.id().context("unshare has ended")?;
        let init = child_of(unshare).context("the first process of the machine has ended")?;
        let (sender, gone) = watch::channel(false);
        tokio::spawn(async move {
            let _ = child.wait().await;
            let _ = sender.send(true);
        });
        Ok(Self { init, gone, entered: Mutex::default(), group })
    }

    /// The id of its first process on the host.
    pub(crate) fn id(&self) -> u32 {
        self.init.as_raw_nonzero().get().unsigned_abs()
    }

    /// A command that runs in it as root, with nothing of the host's environment.
    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, program: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::from(firewall::enter(self.group.as_deref(), "nsenter"));
        command.args([
            "--target",
            &self.id().to_string(),
            "--mount",
            "--pid",
            "--uts",
            "--time",
            "--root",
            "--wd",
            "--",
        ]);
        command.args(program).env_clear().env("PATH", PATH).current_dir("/").stdin(Stdio::null()).process_group(0);
        command
    }

    /// All its processes.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let space = |id: u32| fs::read_link(format!("/proc/{id}/ns/pid")).ok();
        let Some(own) = space(self.id()).filter(|_| !self.is_gone()) else { return Vec::new() };
        let ids = numbers().filter(|id| space(*id).as_ref() == Some(&own));
        let named = ids.filter_map(|id| {
            let name = fs::read_to_string(format!("/proc/{id}/comm")).ok()?;
            Some(Process { id: Pid::from_raw(id.try_into().ok()?)?, name: name.trim().to_owned() })
        });
        named.collect()
    }

    /// Sends a signal to those of its processes that have a name.
    pub(crate) fn signal(&self, name: &str, signal: Signal) {
        for process in self.processes().into_iter().filter(|process| process.name == name) {
            // A process that is gone needs no signal.
            let _ = kill_process(process.id, signal);
        }
    }

    /// Continues the `nsenter` processes that entered it: each stops when its child stops, and does
    /// not continue with it.
    pub(crate) fn wake(&self) {
        let inside = self.processes();
        let parents = inside.iter().filter_map(|process| parent_of(process.id));
        let outside: Vec<Pid> = parents.filter(|parent| !inside.iter().any(|process| process.id == *parent)).collect();
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        entered.extend(outside);
        for process in entered.iter() {
            let _ = kill_process(*process, Signal::CONT);
        }
    }

    /// Ends it at once, as when the power goes.
    pub(crate) fn kill(&self) {
        if !self.is_gone() {
            self.wake();
            let _ = kill_process(self.init, Signal::KILL);
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    /// Waits until nothing of it is left.
    pub(crate) async fn gone(&self) {
        let end = Instant::now() + NAMESPACE;
        // The kernel reports the end of a first process only after all other processes of its
        // namespace were reaped.
        while timeout(NAMESPACE_POLL, self.gone.clone().wait_for(|gone| *gone)).await.is_err() && Instant::now() < end {
            self.wake();
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until the first process reports that it is ready, or returns why it did not.
async fn ready(child: &mut Child) -> Result<()> {
    let stdout = child.stdout.take().context("there is no output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).await?;
    if line.trim() != "ready" {
        let mut words = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut words).await?;
        }
        bail!("the root of the machine cannot be made: {}", words.trim());
    }
    Ok(())
}

/// Waits until the host has run for a whole number of seconds, and returns it. The time of a namespace
/// is behind the host's by whole seconds, so that a machine which began between two of them would be
/// up to a second old at its boot, and end too early.
async fn next_second() -> Result<u64> {
    let text = fs::read_to_string("/proc/uptime").context("cannot read /proc/uptime")?;
    let seconds: f64 =
        text.split(' ').next().and_then(|seconds| seconds.parse().ok()).context("/proc/uptime has no number")?;
    let next = seconds.ceil();
    sleep(Duration::from_secs_f64(next - seconds)).await;
    Ok(next as u64)
}

/// The one child of a process.
pub(crate) fn child_of(parent: u32) -> Option<Pid> {
    let parent = Pid::from_raw(parent.try_into().ok()?)?;
    numbers().filter_map(|id| Pid::from_raw(id.try_into().ok()?)).find(|id| parent_of(*id) == Some(parent))
}

fn parent_of(process: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the state and the parent follow its end.
    Pid::from_raw(stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?)
}

fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

const INIT: &str = include_str!("init.sh");
/// Of a machine of EC2 with Ubuntu.
pub(crate) const PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games:/usr/local/games";
