//! Nodes on SSH hosts: OpenSSH servers on addresses of this host, whose sessions give all processes
//! the mark of the round.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use skyward_tools::context::Context;
use skyward_tools::needs;
use skyward_tools::sshd::{Options, Sshd};

use super::{Act, Ground, Machines, Target, Victim, processes};
use crate::timing::{SSH_SERVER, SSH_SERVER_POLL};
use crate::words::{Host, Provider};

/// This host, with an environment that is built.
pub(super) struct Hosts {
    /// The folder with environments.
    cache: PathBuf,
    /// Whether packets can be dropped here.
    drops: AtomicBool,
}

struct Servers {
    servers: Vec<Sshd>,
    drops: bool,
    folder: PathBuf,
    mark: String,
}

/// Builds an environment on this host, or returns why there can be no servers.
pub(super) fn prepare(context: &Context, client: &Path) -> Result<Result<Box<dyn Ground>, String>> {
    if let Some(reason) = needs::SSHD.missing(context)? {
        return Ok(Err(reason.to_owned()));
    }
    // The environments of this user, because the network of a round reaches no package index.
    let cache = env::var_os("SKYWARD_CACHE_DIR").map(PathBuf::from);
    let cache = cache.or_else(|| context.cache.parent().map(Path::to_owned)).context("there is no cache")?;
    super::warm(&super::local::Host, client)?;
    Ok(Ok(Box::new(Hosts { cache, drops: AtomicBool::new(true) })))
}

impl Ground for Hosts {
    /// Gives the thread, and all that it starts, a network of its own, so that rules about packets
    /// touch nothing else.
    fn enter(&self) -> Result<()> {
        if let Err(error) = own_network() {
            eprintln!("packets cannot be dropped here, so sessions are stopped instead: {error:#}");
            self.drops.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn machines(&self, folder: &Path, mark: &str) -> Result<Box<dyn Machines>> {
        let start = |host: usize| {
            // The servers share one host, so each has claims of its own.
            let runtime = folder.join(format!("host{host}"));
            let options = Options::new()
                // A host that loses packets learns by this that its client is gone; the system's
                // own retries would take minutes.
                .line("ClientAliveInterval 5")
                .line("ClientAliveCountMax 2")
                .env(processes::MARK, mark)
                // The user's start-up files may take long.
                .env("HOME", &folder.to_string_lossy())
                .env("SKYWARD_CACHE_DIR", &self.cache.to_string_lossy())
                .env("SKYWARD_RUNTIME_DIR", &runtime.to_string_lossy());
            Sshd::start(&options).context("cannot start an OpenSSH server")
        };
        let servers = (0..SERVERS).map(start).collect::<Result<_>>()?;
        let drops = self.drops.load(Ordering::Relaxed);
        Ok(Box::new(Servers { servers, drops, folder: folder.to_owned(), mark: mark.to_owned() }))
    }
}

impl Servers {
    /// The processes that sessions have started, without the sessions.
    fn in_sessions(&self) -> Vec<processes::Process> {
        let sessions: BTreeSet<u32> = self.servers.iter().flat_map(Sshd::sessions).collect();
        let mut below = processes::family(|process| sessions.contains(&process.pid));
        below.retain(|process| !sessions.contains(&process.pid));
        below
    }

    fn at(&mut self, address: &str) -> Option<&mut Sshd> {
        self.servers.iter_mut().find(|server| server.address() == address)
    }

    /// Drops all packets of a machine, or stops its sessions.
    fn cut(&mut self, address: &str, act: Act) -> bool {
        if self.drops {
            let word = if act == Act::Continue { "delete" } else { "add" };
            return nft(&format!("{word} element inet chaos cut {{ {address} }}")).is_ok();
        }
        let signal = if act == Act::Continue { "CONT" } else { "STOP" };
        self.at(address).is_some_and(|server| server.signal_sessions(signal) > 0)
    }

    fn listener(&mut self, address: &str, act: Act) -> bool {
        let Some(server) = self.at(address) else { return false };
        match act {
            Act::Kill => server.stop_listening(),
            Act::Stop => server.signal_listener("STOP"),
            Act::Continue if !server.is_listening() => return server.listen().is_ok(),
            Act::Continue => server.signal_listener("CONT"),
        }
        true
    }
}

impl Machines for Servers {
    fn provider(&self) -> Provider {
        let host = |server: &Sshd| Host {
            address: server.address().to_owned(),
            port: server.port(),
            user: server.user(),
            key: server.client_key(),
            host_key: server.host_key(),
        };
        Provider::Ssh { hosts: self.servers.iter().map(host).collect() }
    }

    fn executions(&self) -> String {
        self.folder.join("executions").to_string_lossy().into_owned()
    }

    fn executed(&self) -> String {
        fs::read_to_string(self.folder.join("executions")).unwrap_or_default()
    }

    fn find(&self, victim: Victim) -> Vec<Target> {
        let of = |server: &Sshd| Target::Machine { victim, id: server.address().to_owned() };
        match victim {
            Victim::Network | Victim::Listener => self.servers.iter().map(of).collect(),
            Victim::Connection => {
                let sessions: BTreeSet<u32> = self.servers.iter().flat_map(Sshd::sessions).collect();
                let found = processes::family(|process| sessions.contains(&process.pid)).into_iter();
                // One below a session is about to become a command.
                let found = found.filter(|one| sessions.contains(&one.pid) && !sessions.contains(&one.parent));
                found.map(|process| process.target()).collect()
            }
            _ => {
                let found = processes::marked(&self.mark).into_iter();
                found.filter(|process| victim.is(process)).map(|process| process.target()).collect()
            }
        }
    }

    fn act(&mut self, target: &Target, act: Act) -> bool {
        match target {
            Target::Machine { victim: Victim::Network, id } => self.cut(id, act),
            Target::Machine { id, .. } => self.listener(id, act),
            Target::Process { .. } => target.signal(act),
        }
    }

    fn heal(&mut self) {
        let _ = nft("flush set inet chaos cut");
        for server in &mut self.servers {
            server.signal_sessions("CONT");
            server.signal_listener("CONT");
            if !server.is_listening() {
                let _ = server.listen();
            }
        }
    }

    /// Processes that have left the session that started them.
    fn running(&self) -> Vec<Target> {
        let passing: BTreeSet<u32> = self.in_sessions().iter().map(|process| process.pid).collect();
        let marked = processes::marked(&self.mark).into_iter();
        marked.filter(|process| !passing.contains(&process.pid)).map(|process| process.target()).collect()
    }

    fn passing(&self) -> Vec<Target> {
        self.in_sessions().iter().map(processes::Process::target).collect()
    }

    fn left(&self) -> Vec<(&'static str, Vec<String>)> {
        let folders = (0..SERVERS).flat_map(|host| {
            let runtime = self.folder.join(format!("host{host}"));
            super::names(&runtime, |name| name != "claims")
        });
        vec![("are folders of machines", folders.collect())]
    }

    fn clear(&mut self) {
        for target in self.running() {
            target.signal(Act::Kill);
        }
        // Kept for the analysis of a failed round.
        for server in &self.servers {
            let _ = fs::write(self.folder.join(format!("sshd-{}", server.address())), server.log());
        }
    }
}

/// Moves this thread into a network of its own, which drops the packets of a set of addresses.
fn own_network() -> Result<()> {
    // It ends with this program, because then its input does.
    let mut holder = Command::new("unshare");
    let mut holder = holder.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    let moved = enter(holder.id());
    // The namespace goes on with this thread and what it starts.
    drop(holder.stdin.take());
    holder.wait()?;
    moved?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    if !up.success() {
        bail!("`ip link set lo up` ended with {up}");
    }
    nft(RULES)
}

fn enter(holder: u32) -> Result<()> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let path = format!("/proc/{holder}/ns/net");
    let end = Instant::now() + SSH_SERVER;
    while fs::read_link(&path)? == own {
        if Instant::now() > end {
            bail!("`unshare --net` made no network");
        }
        thread::sleep(SSH_SERVER_POLL);
    }
    move_into_link_name_space(fs::File::open(path)?.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}

fn nft(script: &str) -> Result<()> {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    nft.stdin.take().context("nft has no input")?.write_all(script.as_bytes())?;
    let output = nft.wait_with_output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(anyhow!("nft: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

const RULES: &str = "
table inet chaos {
    set cut { type ipv4_addr; }
    chain arrive {
        type filter hook input priority 0;
        ip daddr @cut drop
        ip saddr @cut drop
    }
}
";
const SERVERS: usize = 2;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::net::{SocketAddr, TcpStream};

    use super::*;

    #[test]
    #[ignore = "needs sshd, namespaces"]
    fn a_machine_that_is_cut_off_hears_nothing_until_it_is_healed() {
        // In a thread of its own, which stays in its network.
        let tried = thread::spawn(|| {
            own_network().expect("this user can make a network; run this test as root");
            let folder = std::env::temp_dir().join(format!("sct{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let hosts = Hosts { cache: folder.join("cache"), drops: AtomicBool::new(true) };
            let mut machines = hosts.machines(&folder, "test").unwrap();
            let Provider::Ssh { hosts } = machines.provider() else { panic!("other machines") };
            let address = |host: &Host| SocketAddr::new(host.address.parse().unwrap(), host.port);
            let reached = |host: &Host| TcpStream::connect_timeout(&address(host), Duration::from_millis(300)).is_ok();
            let target = machines.find(Victim::Network).swap_remove(0);
            assert!(machines.act(&target, Act::Stop));
            assert_eq!(hosts.iter().map(reached).collect::<Vec<_>>(), [false, true]);
            assert!(machines.act(&target, Act::Continue));
            assert!(reached(&hosts[0]));
            assert!(machines.act(&target, Act::Stop));
            let listener = machines.find(Victim::Listener).swap_remove(1);
            assert!(machines.act(&listener, Act::Kill));
            assert_eq!(hosts.iter().map(reached).collect::<Vec<_>>(), [false, false]);
            machines.heal();
            assert_eq!(hosts.iter().map(reached).collect::<Vec<_>>(), [true, true]);
            drop(machines);
            fs::remove_dir_all(&folder).unwrap();
        });
        tried.join().unwrap();
    }
}
