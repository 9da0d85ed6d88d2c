//! The services of a machine, run as systemd would run them.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::console::Console;
use super::namespace::{Namespace, child_of};
use super::unit::{Exec, Service, Unit};
use crate::http::Abort;
use crate::timing::{SERVICE_COMMAND, SERVICE_STOP};

/// The services of a machine, and what is needed to start more.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) namespace: Namespace,
    pub(crate) console: Console,
    /// The environment variables of every process that is started.
    pub(crate) environment: Vec<(String, String)>,
    running: Mutex<HashMap<String, Running>>,
}

/// A unit that was started.
#[derive(Debug)]
struct Running {
    state: watch::Receiver<State>,
    /// The process group of its main command on the host.
    group: watch::Receiver<Option<Pid>>,
    patience: Duration,
    stop: Vec<Exec>,
    signal: Signal,
    kills_all: bool,
    /// Set when the unit must not be started again.
    is_stopped: Arc<AtomicBool>,
    _task: Abort<()>,
}

/// As `systemctl is-active` says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Activating,
    Active,
    Inactive,
    Failed,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Activating => "activating",
            Self::Active => "active",
            Self::Inactive => "inactive",
            Self::Failed => "failed",
        }
    }
}

impl Services {
    pub(crate) fn new(namespace: Namespace, console: Console, environment: Vec<(String, String)>) -> Self {
        Self { namespace, console, environment, running: Mutex::default() }
    }

    /// Runs a command as root with an input, and returns whether it succeeded and what it wrote.
    pub(crate) async fn run(&self, who: &str, program: &[String], input: &[u8]) -> Result<(bool, String)> {
        let mut command = self.namespace.command(program);
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).env("HOME", "/root");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let output = self.follow(who, &mut child);
        if let Some(mut stdin) = child.stdin.take() {
            // A command need not read its input.
            let _ = stdin.write_all(input).await;
        }
        let status = timeout(SERVICE_COMMAND, child.wait()).await;
        let status =
            status.with_context(|| format!("{} did not end within {SERVICE_COMMAND:?}", program.join(" ")))??;
        let mut text = String::new();
        for task in output {
            // What it left behind may hold its output open.
            if let Ok(Ok(lines)) = timeout(Duration::from_millis(500), task).await {
                text += &lines;
            }
        }
        Ok((status.success(), text))
    }

    /// Starts a unit. Waits as systemd does: until the unit runs, or until it has ended if it is of
    /// the type `oneshot`.
    pub(crate) async fn start(self: &Arc<Self>, name: &str, is_waiting: bool) -> Result<()> {
        let name = full(name);
        if matches!(self.state(&name), State::Active | State::Activating) {
            return Ok(());
        }
        let unit = self.read(&name).await?;
        let (sender, mut state) = watch::channel(State::Activating);
        let (group_sender, group) = watch::channel(None);
        let own = Arc::clone(self);
        let (patience, stop, signal, kills_all) = match &unit {
            Unit::Service(service) => (service.patience, service.stop.clone(), service.signal, service.kills_all),
            Unit::Timer { .. } => (Duration::ZERO, Vec::new(), Signal::TERM, true),
        };
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&is_stopped);
        let is_oneshot = matches!(&unit, Unit::Service(service) if service.is_oneshot);
        let started = name.clone();
        let task = tokio::spawn(async move {
            match unit {
                Unit::Service(service) => own.serve(&started, &service, &sender, &group_sender, &stopped).await,
                Unit::Timer { after, starts } => {
                    let _ = sender.send(State::Active);
                    sleep(after).await;
                    let service = starts.unwrap_or_else(|| started.replace(".timer", ".service"));
                    if let Err(error) = Arc::clone(&own).start_later(service).await {
                        own.console.write("systemd", format!("{started}: {error:#}"));
                    }
                    let _ = sender.send(State::Inactive);
                }
            }
        });
        let running =
            Running { state: state.clone(), group, patience, stop, signal, kills_all, is_stopped, _task: Abort(task) };
        self.lock().insert(name.clone(), running);
        if !is_waiting {
            return Ok(());
        }
        let settled = state.wait_for(|state| *state != State::Activating);
        let settled = *timeout(SERVICE_COMMAND, settled).await.with_context(|| format!("{name} did not start"))??;
        if settled == State::Failed || (settled == State::Inactive && !is_oneshot && self.has_failed(&name)) {
            bail!("Job for {name} failed. See the console.");
        }
        Ok(())
    }

    /// The same from within a unit. Boxed, because the future would otherwise contain itself.
    fn start_later(self: Arc<Self>, name: String) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> {
        Box::pin(async move { self.start(&name, false).await })
    }

    /// Stops a unit: its stop commands, then its signal, then SIGKILL.
    pub(crate) async fn stop(&self, name: &str) -> Result<()> {
        let name = full(name);
        let Some(mut running) = self.lock().remove(&name) else { return Ok(()) };
        running.is_stopped.store(true, Ordering::Relaxed);
        for exec in &running.stop {
            self.run(&name, &exec.program, b"").await?;
        }
        let Some(group) = *running.group.borrow() else { return Ok(()) };
        // What entered the machine waits for the command, and would end before it.
        let main = child_of(group.as_raw_nonzero().get().unsigned_abs());
        let send = |signal| main.map(|main| kill_process(main, signal));
        let _ = send(running.signal);
        let ended = running.state.wait_for(|state| matches!(state, State::Inactive | State::Failed));
        let _ = timeout(running.patience.min(SERVICE_STOP), ended).await;
        let _ = if running.kills_all { Some(kill_process_group(group, Signal::KILL)) } else { send(Signal::KILL) };
        Ok(())
    }

    /// Keeps units from being started again, because the machine ends.
    pub(crate) fn halt(&self) {
        let running = std::mem::take(&mut *self.lock());
        drop(running);
    }

    pub(crate) fn state(&self, name: &str) -> State {
        self.lock().get(&full(name)).map_or(State::Inactive, |running| *running.state.borrow())
    }

    /// Whether there is such a unit file.
    pub(crate) async fn read(&self, name: &str) -> Result<Unit> {
        let name = full(name);
        let mut cat = self.namespace.command(["/bin/sh", "-c", FIND, "sh", &name]);
        let output = timeout(SERVICE_COMMAND, cat.output()).await.context("the unit cannot be read")??;
        if !output.status.success() {
            bail!("Unit {name} not found.");
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let unit = Unit::parse(&name, &text).with_context(|| format!("Unit {name} is not understood"))?;
        if let Unit::Service(service) = &unit
            && !service.ignored.is_empty()
        {
            self.console.write("systemd", format!("{name}: not played here: {}", service.ignored.join(", ")));
        }
        Ok(unit)
    }

    /// Checks a unit file with `systemd-analyze`, where the host has it.
    pub(crate) async fn verify(&self, name: &str) -> Result<()> {
        let words = ["/bin/sh", "-c", VERIFY, "sh", &full(name)].map(str::to_owned);
        let (is_good, words) = self.run("systemd-analyze", &words, b"").await?;
        if !is_good {
            bail!("systemd-analyze verify: {}", words.trim());
        }
        Ok(())
    }

    /// Runs a service, and starts it again as its settings say.
    async fn serve(
        &self,
        name: &str,
        service: &Service,
        state: &watch::Sender<State>,
        group: &watch::Sender<Option<Pid>>,
        is_stopped: &AtomicBool,
    ) {
        let mut starts: VecDeque<Instant> = VecDeque::new();
        loop {
            let (burst, interval) = service.limit;
            starts.retain(|start| start.elapsed() < interval);
            if !interval.is_zero() && starts.len() >= burst {
                self.console.write("systemd", format!("{name}: Start request repeated too quickly."));
                let _ = state.send(State::Failed);
                return;
            }
            starts.push_back(Instant::now());
            let is_success = match self.serve_once(name, service, state, group).await {
                Ok(is_success) => is_success,
                Err(error) => {
                    self.console.write("systemd", format!("{name}: {error:#}"));
                    false
                }
            };
            let _ = group.send(None);
            if is_stopped.load(Ordering::Relaxed) || !service.restart.holds(is_success) {
                let end = match is_success {
                    true if service.stays => State::Active,
                    true => State::Inactive,
                    false => State::Failed,
                };
                let _ = state.send(end);
                return;
            }
            let _ = state.send(State::Activating);
            sleep(service.pause).await;
        }
    }

    async fn serve_once(
        &self,
        name: &str,
        service: &Service,
        state: &watch::Sender<State>,
        group: &watch::Sender<Option<Pid>>,
    ) -> Result<bool> {
        let commands =
            service.before.iter().map(|exec| (exec, false)).chain(service.start.iter().map(|exec| (exec, true)));
        for (exec, is_main) in commands {
            let mut child = self.command(service, exec).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
            let output = self.follow(name, &mut child);
            let id = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
            let _ = group.send(id);
            if is_main && !service.is_oneshot {
                self.console.write("systemd", format!("Started {name}."));
                let _ = state.send(State::Active);
            }
            let status = child.wait().await?;
            drop(output);
            if service.kills_all
                && let Some(group) = id
            {
                // Usually there is no process left to signal.
                let _ = kill_process_group(group, Signal::KILL);
            }
            if !status.success() && !exec.may_fail {
                self.console.write("systemd", format!("{name}: {} ended with {status}", exec.program.join(" ")));
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn command(&self, service: &Service, exec: &Exec) -> Command {
        let mut program = Vec::new();
        if service.user.is_some() || service.group.is_some() {
            let user = service.user.as_deref().unwrap_or("root");
            program.extend(["setpriv", "--reuid", user, "--regid", service.group.as_deref().unwrap_or(user)]);
            program.extend(["--init-groups", "--"]);
        }
        if let Some(folder) = &service.folder {
            program.extend(["env", "--chdir", folder.as_str(), "--"]);
        }
        program.extend(exec.program.iter().map(String::as_str));
        let mut command = self.namespace.command(program);
        command.env("PATH", UNIT_PATH);
        if let Some(user) = &service.user {
            let home = if user == "root" { "/root".to_owned() } else { format!("/home/{user}") };
            command.env("HOME", home).env("USER", user).env("LOGNAME", user).env("SHELL", "/bin/bash");
        }
        command.envs(self.environment.iter().filter(|(name, _)| name != "PATH").map(|(name, value)| (name, value)));
        command.envs(&service.environment);
        command
    }

    /// Writes what a process writes to the console, and keeps it.
    pub(crate) fn follow(&self, who: &str, child: &mut Child) -> Vec<tokio::task::JoinHandle<String>> {
        let stdout = child.stdout.take().map(|output| follow(self.console.clone(), who.to_owned(), output));
        let stderr = child.stderr.take().map(|output| follow(self.console.clone(), who.to_owned(), output));
        stdout.into_iter().chain(stderr).collect()
    }

    fn has_failed(&self, name: &str) -> bool {
        self.state(name) == State::Failed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn follow(
    console: Console,
    who: String,
    output: impl AsyncRead + Unpin + Send + 'static,
) -> tokio::task::JoinHandle<String> {
    tokio::spawn(async move {
        let mut kept = String::new();
        let mut lines = BufReader::new(output).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            let line = String::from_utf8_lossy(&line);
            console.write(&who, &line);
            if kept.len() < KEPT {
                kept += &line;
                kept.push('\n');
            }
        }
        kept
    })
}

/// A name without a type is a service's.
fn full(name: &str) -> String {
    if name.contains('.') { name.to_owned() } else { format!("{name}.service") }
}

const FIND: &str = r#"for folder in /etc/systemd/system /run/systemd/system /usr/local/lib/systemd/system /usr/lib/systemd/system /lib/systemd/system; do
    if [ -f "$folder/$1" ]; then exec cat "$folder/$1"; fi
done
exit 1"#;
const VERIFY: &str = r#"command -v systemd-analyze >/dev/null || exit 0
for folder in /etc/systemd/system /run/systemd/system; do
    if [ -f "$folder/$1" ]; then exec systemd-analyze verify --recursive-errors=no "$folder/$1"; fi
done"#;
/// The `PATH` of systemd's services.
const UNIT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Bytes of an output.
const KEPT: usize = 256 << 10;
