//! SSH servers that act as hosts, each with a folder of its own for claims and machines.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use skyward_core::error::Result;
use skyward_core::ids::{Attempt, LaunchId, MachineId, MachineNumber, PoolId};
use skyward_core::provider::{
    Host, Hosts, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Place, Provider,
};
use skyward_core::remote::Command;
use skyward_core::remote::ssh::{HostKeys, Key};
use skyward_core::testkit::provider_suite::Service;

use crate::sshd::{Options, Sshd};

/// The servers that a test runs against. Dropping the value ends them with everything that was
/// started on them.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) servers: Vec<Sshd>,
}

impl Scene {
    /// Starts `count` servers.
    pub(crate) fn new(count: usize) -> Self {
        Self::with(count, &Options::new())
    }

    /// Starts `count` servers with these options.
    pub(crate) fn with(count: usize, options: &Options) -> Self {
        let start = || Sshd::start(options).unwrap_or_else(|error| panic!("cannot start an SSH server: {error}"));
        Self { servers: (0..count).map(|_| start()).collect() }
    }

    /// A provider with connections of its own, as another process would have.
    pub(crate) fn hosts(&self, slots: u32) -> Hosts {
        Hosts::new((0..self.servers.len()).map(|server| self.host(server).slots(slots)))
    }

    pub(crate) fn host(&self, server: usize) -> Host {
        self.host_at(server, self.servers[server].address())
    }

    /// A host by another name of its address.
    pub(crate) fn host_at(&self, server: usize, address: &str) -> Host {
        let sshd = &self.servers[server];
        Host::new(address)
            .port(sshd.port())
            .user(sshd.user())
            .key(Key::file(sshd.client_key()))
            .host_keys(HostKeys::pinned(sshd.host_key()))
            .folder(self.base(server).to_str().unwrap())
    }

    /// The host by another name: resolvers also take an IPv4 address as one number.
    pub(crate) fn renamed(&self, server: usize) -> Host {
        let address: std::net::Ipv4Addr = self.servers[server].address().parse().unwrap();
        self.host_at(server, &u32::from(address).to_string())
    }

    /// The folder of a host's claims and machines.
    pub(crate) fn base(&self, server: usize) -> PathBuf {
        self.servers[server].folder().join("s")
    }

    /// The folders of machines on a host.
    pub(crate) fn machines(&self, server: usize) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.base(server)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| !path.ends_with("claims")).collect()
    }

    /// The file of a slot.
    pub(crate) fn claim(&self, server: usize, slot: u32) -> PathBuf {
        // The file is below a folder named by the host's identity.
        let hosts = std::fs::read_dir(self.base(server).join("claims")).unwrap().flatten().map(|entry| entry.path());
        hosts.map(|host| host.join(format!("slot-{slot}"))).find(|claim| claim.exists()).unwrap()
    }

    /// Whether a process waits for the lock of a slot.
    pub(crate) fn is_waited_for(&self, server: usize, slot: u32) -> bool {
        let inode = format!(":{} ", self.claim(server, slot).metadata().unwrap().ino());
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|lock| lock.contains(" -> ") && lock.contains(&inode))
    }

    /// The keeper of the machine in a slot.
    pub(crate) fn keeper(&self, server: usize, slot: u32) -> u32 {
        let record = std::fs::read_to_string(self.claim(server, slot)).unwrap();
        record.lines().find_map(|line| line.strip_prefix("keeper ")).unwrap().parse().unwrap()
    }
}

#[async_trait]
impl Service for Scene {
    async fn leftovers(&self, pool: &PoolId) -> Option<Vec<String>> {
        let mut left = Vec::new();
        for server in 0..self.servers.len() {
            let (base, pool) = (self.base(server), pool.as_str());
            for search in ["find \"$0\" -name \"*$1*\"", "grep -rlF -e \"$1\" \"$0\""] {
                let found =
                    std::process::Command::new("sh").args(["-c", search]).arg(&base).arg(pool).output().unwrap();
                left.extend(String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned));
            }
        }
        Some(left)
    }

    fn elsewhere(&self) -> Option<Arc<dyn Provider>> {
        let folder = self.base(0).with_file_name("o");
        Some(Arc::new(Hosts::new([self.host(0).folder(folder.to_str().unwrap())])))
    }
}

/// A program that replaces one of the servers' hosts. Dropping the value removes it.
pub(crate) struct Tool(PathBuf);

impl Tool {
    /// A tool that is a shell script.
    pub(crate) fn new(name: &str, script: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("skyward-tool-{}", PoolId::random()));
        std::fs::create_dir(&folder).unwrap();
        let tool = Self(folder);
        tool.add(name, script);
        tool
    }

    /// Adds another script beside it.
    pub(crate) fn add(&self, name: &str, script: &str) {
        std::fs::write(self.path(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o755)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn options(&self) -> Options {
        Options::new().env("PATH", &format!("{}:/usr/local/bin:/usr/bin:/bin", self.0.display()))
    }

    /// Options for hosts without bash. Add all tools before this call: it links the programs of
    /// this machine into the folder.
    pub(crate) fn options_without_bash(&self) -> Options {
        for folder in ["/usr/local/bin", "/usr/bin", "/bin"] {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                if !["bash", "rbash"].iter().any(|shell| name == *shell) {
                    // The first of two programs with one name counts; a tool that the test has
                    // added comes first.
                    let _ = std::os::unix::fs::symlink(entry.path(), self.0.join(name));
                }
            }
        }
        Options::new().env("PATH", self.0.to_str().unwrap())
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A batch of one machine with this lease.
pub(crate) fn batch(pool: &PoolId, number: u32, lease: Duration) -> LaunchBatch {
    let number = MachineNumber(number);
    let request = LaunchRequest::new(LaunchId::of(pool, number, Attempt(1)), pool.clone(), number, lease);
    // Pools set the same boot time: a machine without renewals ends with its lease all the same.
    let request = request.boot(Duration::from_secs(600));
    LaunchBatch::one(Offer::new("host", "the hosts", 1, 0), request)
}

/// Provider calls for one machine.
pub(crate) trait One {
    async fn launch_one(&self, batch: &LaunchBatch) -> Result<Machine>;
    async fn end(&self, machine: &MachineId) -> Result<()>;
}

impl<P: Provider> One for P {
    async fn launch_one(&self, batch: &LaunchBatch) -> Result<Machine> {
        self.launch(batch).await.remove(0)
    }

    async fn end(&self, machine: &MachineId) -> Result<()> {
        self.terminate(std::slice::from_ref(machine)).await.remove(0)
    }
}

/// Ends a pool as its owner does, and retries temporary errors: a busy host may not answer in time.
pub(crate) async fn tear_down(hosts: &Hosts, pool: &PoolId) {
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(error) = hosts.teardown(pool).await {
        let processes =
            std::process::Command::new("ps").args(["-eo", "pid,ppid,pgid,stat,wchan:24,etimes,args"]).output();
        let processes = processes.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        println!("{error}\n{}", processes.unwrap_or_default());
        assert!(error.is_temporary() && Instant::now() < end, "{error}");
    }
}

/// Starts a process on a machine that outlives the command that starts it.
pub(crate) async fn start(hosts: &Hosts, machine: &Machine) -> Process {
    let remote = hosts.connect(machine, &place(hosts, machine).await).await.unwrap();
    let script = "setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!";
    let output = remote.run(&Command::script(script), &|_| {}).await.unwrap();
    Process::of(output.stdout.trim().parse().unwrap())
}

pub(crate) async fn report(hosts: &Hosts, machine: &Machine) -> MachineReport {
    hosts.inspect(std::slice::from_ref(&machine.id)).await.unwrap().remove(0)
}

pub(crate) async fn state(hosts: &Hosts, machine: &Machine) -> MachineState {
    report(hosts, machine).await.state
}

pub(crate) async fn place(hosts: &Hosts, machine: &Machine) -> Place {
    report(hosts, machine).await.place.unwrap()
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "this never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sets the lease in a machine's folder to a renewal that long ago.
pub(crate) fn renew(folder: &str, ago: Duration) {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs_f64(uptime) - ago;
    let lease = std::fs::File::options().write(true).open(format!("{folder}/lease")).unwrap();
    lease.set_modified(time).unwrap();
}

/// A process of this host, identified by its id and its start time: while the tests beside this one
/// start thousands of processes, the id of a process that ended is soon the id of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Process {
    pub(crate) id: u32,
    /// In clock ticks since the host started; `None` if no process had the id.
    since: Option<u64>,
}

impl Process {
    /// The process that has this id now.
    pub(crate) fn of(id: u32) -> Self {
        Self { id, since: state_and_start(id).map(|(_, since)| since) }
    }

    /// The process that started this one: a worker's agent.
    pub(crate) fn parent(self) -> Self {
        Self::of(fields(self.id).unwrap()[1].parse().unwrap())
    }
}

/// Whether a process runs; a zombie does not.
pub(crate) fn lives(process: Process) -> bool {
    state_and_start(process.id).is_some_and(|(state, since)| state != "Z" && process.since == Some(since))
}

fn state_and_start(id: u32) -> Option<(String, u64)> {
    let fields = fields(id)?;
    Some((fields[0].clone(), fields[19].parse().unwrap()))
}

/// The fields of `/proc/<id>/stat` after the name (proc_pid_stat(5), from field 3 on).
fn fields(id: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    Some(stat.rsplit(") ").next()?.split(' ').map(str::to_owned).collect())
}

pub(crate) fn kill(signal: &str, pid: u32) {
    assert!(
        std::process::Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap().success()
    );
}

/// A lease that outlives every test.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(3600);
/// A lease that expires while a test waits.
pub(crate) const SHORT_LEASE: Duration = Duration::from_secs(3);
