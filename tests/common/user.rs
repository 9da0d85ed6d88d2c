//! A user of this host: folders for the ledger and for machines, and clients that are separate
//! processes, namely the test program started again with a role.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use skyward::ids::PoolId;

use super::disk::Disk;
use super::{processes_of, unique};

/// The folders, and the started clients.
pub(crate) struct User {
    pub(crate) root: PathBuf,
    pub(crate) clients: Vec<Child>,
    /// The outputs of clients, kept open: a client must not fail because its output is closed.
    pub(crate) outputs: Vec<BufReader<ChildStdout>>,
}

impl User {
    pub(crate) fn new() -> Self {
        let root = std::env::temp_dir().join(format!("so{}-{}", std::process::id(), unique()));
        fs::create_dir_all(root.join("state")).unwrap();
        Self { root, clients: Vec::new(), outputs: Vec::new() }
    }

    pub(crate) fn command(&self, role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["client", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env("SKYWARD_STATE_DIR", self.root.join("state"))
            .env("SKYWARD_RUNTIME_DIR", self.root.join("run"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }

    /// Starts a client, which is killed at the end of the test if it still lives.
    pub(crate) fn start(&mut self, role: &str) -> usize {
        self.clients.push(self.command(role).spawn().unwrap());
        self.clients.len() - 1
    }

    /// Starts a client and waits until it prints a line that begins with this word.
    pub(crate) fn start_until(&mut self, role: &str, word: &str) -> (usize, String) {
        let client = self.start(role);
        let output = self.clients[client].stdout.take().unwrap();
        let mut seen = Vec::new();
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while output.read_line(&mut line).unwrap() > 0 {
            if let Some(rest) = line.strip_prefix(word) {
                let rest = rest.trim().to_owned();
                self.outputs.push(output);
                return (client, rest);
            }
            seen.push(std::mem::take(&mut line));
        }
        panic!("the client ended without the line: {seen:#?}");
    }

    pub(crate) fn kill(&mut self, client: usize) {
        self.clients[client].kill().unwrap();
        self.clients[client].wait().unwrap();
    }

    /// The messages of a client that runs to its end.
    pub(crate) fn run(&self, role: &str) -> String {
        finish(self.command(role).stdin(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.root.join("state/ledger")
    }

    pub(crate) fn pools(&self) -> Vec<PoolId> {
        let entries = fs::read_dir(self.ledger()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| Some(PoolId::new(name.strip_suffix(".ledger")?))).collect()
    }

    /// The folders of pools.
    pub(crate) fn machines(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("run")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("p-")).collect()
    }

    /// Whether the folder of any pool contains the folder of a machine, beside the record of the
    /// pool.
    pub(crate) fn has_a_machine(&self) -> bool {
        let is_machine = |entry: fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let entries = |pool: String| fs::read_dir(self.root.join("run").join(pool)).into_iter().flatten().flatten();
        self.machines().into_iter().any(|pool| entries(pool).any(is_machine))
    }

    #[track_caller]
    pub(crate) fn assert_nothing_left(&self, pool: &PoolId) {
        assert_eq!(processes_of(pool), Vec::<String>::new());
        assert_eq!(self.machines(), Vec::<String>::new());
        assert!(!self.pools().contains(pool), "{pool} is still in the ledger");
    }

    /// Puts the ledger on a disk of this many bytes.
    pub(crate) fn small_disk(&self, bytes: u64) -> Disk {
        Disk::mount(&self.root.join("state"), bytes)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        for client in &mut self.clients {
            let _ = client.kill();
            let _ = client.wait();
        }
        for pool in self.machines() {
            each_process(&PoolId::new(pool), "", |pid| signal("KILL", pid));
        }
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// The messages of a client: its lines that begin with `said`.
pub(crate) fn finish(mut client: Child) -> String {
    let end = Instant::now() + CLIENT_STEP;
    while client.try_wait().unwrap().is_none() && Instant::now() < end {
        std::thread::sleep(CHECK_PAUSE);
    }
    // A client that hangs must not outlive its test.
    let _ = client.kill();
    let mut output = String::new();
    client.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let status = client.wait().unwrap();
    assert!(status.success(), "{status}, {CLIENT_STEP:?} at most: {output}");
    output.lines().filter_map(|line| line.strip_prefix("said ")).collect::<Vec<_>>().join("\n")
}

/// Calls `act` with the id of each process of a pool whose command line contains these words.
pub(crate) fn each_process(pool: &PoolId, words: &str, act: impl Fn(&str)) {
    for line in processes_of(pool) {
        if let Some((pid, command)) = line.split_once(": ")
            && command.contains(words)
        {
            act(pid.trim_matches('"'));
        }
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(name: &str, pid: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), pid]).stderr(Stdio::null()).status();
}

/// Waits, without a runtime, until the condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + CLIENT_STEP;
    while !reached() {
        assert!(Instant::now() < end, "not within {CLIENT_STEP:?}: {what}");
        std::thread::sleep(CHECK_PAUSE);
    }
}

/// The variable that names the role of a client.
pub(crate) const ROLE: &str = "SKYWARD_TEST_ROLE";
const CLIENT_STEP: Duration = Duration::from_secs(120);
/// The pause between two checks.
const CHECK_PAUSE: Duration = Duration::from_millis(2);
