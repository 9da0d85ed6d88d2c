//! The service of the example as a separate process, with its own folders.

use std::fs;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use skyward::ids::PoolId;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::example::client::Client;

/// The folders in which the services of one test keep their ledger and machines.
pub(crate) struct Folders(PathBuf);

/// A running service. Dropping the value kills it.
pub(crate) struct Service {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) pool: PoolId,
    pub(crate) client: Client,
}

impl Folders {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("se{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["the_service", "--exact", "--include-ignored", "--nocapture"])
            .env(ARGUMENTS, arguments.join(" "))
            .env("SKYWARD_STATE_DIR", self.0.join("state"))
            .env("SKYWARD_RUNTIME_DIR", self.0.join("run"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Starts a service, and waits until it listens.
    pub(crate) async fn start(&self, arguments: &[&str]) -> Service {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let pool = PoolId::new(line(&mut lines, "pool ").await);
        let address = line(&mut lines, "listening on http://").await;
        Service { child, lines, pool, client: Client(address.parse().unwrap()) }
    }

    /// The pools in the ledger.
    pub(crate) fn pools(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("state/ledger")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter_map(|name| name.strip_suffix(".ledger").map(str::to_owned)).collect()
    }

    /// The folders of machines.
    pub(crate) fn machines(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("run")).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|n| n.starts_with("p-")).collect()
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Service {
    pub(crate) async fn signal(&self, name: &str) {
        signal(name, self.child.id().unwrap()).await;
    }

    /// Waits until the service prints a line that begins with this text. Returns the rest of the
    /// line.
    pub(crate) async fn line(&mut self, begin: &str) -> String {
        line(&mut self.lines, begin).await
    }

    /// Waits until the service has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        tokio::time::timeout(SERVICE_STEP, self.child.wait()).await.unwrap().unwrap()
    }

    pub(crate) async fn health(&self) -> Value {
        self.client.get("/health").await.unwrap().body
    }

    /// Posts a training. Returns its path.
    pub(crate) async fn begin(&self, request: Value) -> String {
        let answer = self.client.post("/trainings", request.to_string()).await.unwrap();
        assert_eq!(answer.status, 202, "{:?}", answer.body);
        let place = answer.headers["location"].to_str().unwrap().to_owned();
        assert_eq!(answer.body["events"], format!("{place}/events"));
        place
    }
}

pub(crate) async fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().await.unwrap();
    assert!(status.success(), "cannot send {name} to {pid}");
}

/// The rest of the first line that begins with this text.
pub(crate) async fn line(lines: &mut Lines<BufReader<ChildStdout>>, begin: &str) -> String {
    let mut seen = Vec::new();
    let found = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(rest) = line.strip_prefix(begin) {
                return Some(rest.to_owned());
            }
            seen.push(line);
        }
        None
    };
    let found = tokio::time::timeout(SERVICE_STEP, found).await;
    found.ok().flatten().unwrap_or_else(|| panic!("the service did not print {begin:?}, but {seen:#?}"))
}

/// The variable with the command line of a service.
pub(crate) const ARGUMENTS: &str = "SKYWARD_TEST_SERVICE";
/// With an empty cache, the environment is built first.
const SERVICE_STEP: Duration = Duration::from_secs(300);
