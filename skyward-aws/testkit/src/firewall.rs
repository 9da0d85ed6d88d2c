//! The firewall of a cloud: only what its security groups allow reaches a machine. The rest is
//! dropped, so that a client waits in vain, as on EC2.
//!
//! All machines are on addresses of this host's loopback interface. A table of nftables for each
//! cloud looks at what goes to these addresses:
//!
//! - Processes of a machine are in a control group of their own, by which the kernel knows them.
//!   Their connections come from the machine's private address, or from its public one if they go
//!   to a public one.
//! - All other processes of this host are clients. They reach private addresses from an address
//!   within the network, like another machine there, and public ones from 127.0.0.1, or from where a
//!   test has moved them.
//! - A connection that has begun goes on when its rule is removed, as on EC2, which tracks
//!   connections:
//!   <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/security-group-connection-tracking.html>.
//!
//! Not enforced are rules for what machines send, rules for IPv6, and lists of prefixes, of which
//! the machines have none.

mod cgroup;
mod ruleset;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, bail};
use tokio::sync::Mutex;

use self::cgroup::Cgroup;
pub(crate) use self::cgroup::enter;
pub(crate) use self::ruleset::{Interface, Network, Permit, Source, View};
use self::ruleset::{Machine, Ruleset};
use crate::network::Addresses;
use crate::timing::{FIREWALL_AGAIN, FIREWALL_PROBE};

/// The firewall. It ends with [`Firewall::close`], or at the latest when this is dropped.
#[derive(Debug)]
pub(crate) struct Firewall {
    table: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rules: Ruleset,
    /// The control groups of machines by the ids of their instances.
    groups: BTreeMap<String, Cgroup>,
    is_closed: bool,
}

impl Firewall {
    /// Starts it; the inner error is why this host cannot have one.
    ///
    /// # Errors
    /// When a table cannot be made although this host has shown that it can.
    pub(crate) async fn start(addresses: &Addresses) -> Result<Result<Self, String>> {
        static PROBED: OnceLock<std::result::Result<(), String>> = OnceLock::new();
        let network = addresses.network();
        let (table, stale) = (addresses.table(), Addresses::abandoned_tables(&tables()));
        tokio::task::spawn_blocking(move || -> Result<Result<Self, String>> {
            for (table, _lock) in stale {
                let _ = nft(&format!("delete table ip {table}\n"));
            }
            cgroup::remove_abandoned();
            let firewall = Self {
                table: table.clone(),
                state: Mutex::new(State {
                    rules: Ruleset::new(&table, network),
                    groups: BTreeMap::new(),
                    is_closed: false,
                }),
            };
            // What one process of this host can, the next cloud of the process can, too.
            if let Err(reason) = PROBED.get_or_init(|| probe(&table, network).map_err(|error| format!("{error:#}"))) {
                return Ok(Err(format!("this host cannot enforce the rules of security groups: {reason}")));
            }
            nft(&firewall.state.blocking_lock().rules.to_string())?;
            Ok(Ok(firewall))
        })
        .await?
    }

    /// Makes the control group of a machine, whose processes have to enter it. A second call returns
    /// the same.
    pub(crate) async fn admit(&self, id: &str, private: Option<Ipv4Addr>, public: Option<Ipv4Addr>) -> Result<PathBuf> {
        let mut state = self.state.lock().await;
        if let Some(group) = state.groups.get(id) {
            return Ok(group.folder().to_owned());
        }
        let group = Cgroup::make(id)?;
        let (folder, machine) = (group.folder().to_owned(), Machine { group: group.place(), private, public });
        state.groups.insert(id.to_owned(), group);
        state.rules.machines.insert(id.to_owned(), machine);
        state.load().await?;
        Ok(folder)
    }

    /// Removes the control group of a machine that has ended.
    pub(crate) async fn dismiss(&self, id: &str) -> Result<()> {
        let mut state = self.state.lock().await;
        state.rules.machines.remove(id);
        // The rules name the group, so they go first.
        state.load().await?;
        state.groups.remove(id);
        Ok(())
    }

    /// Sets what the interfaces and groups of EC2 are.
    pub(crate) async fn show(&self, view: View) -> Result<()> {
        let mut state = self.state.lock().await;
        if state.rules.view == view {
            return Ok(());
        }
        state.rules.view = view;
        state.load().await
    }

    /// Moves clients outside of the network to another address, and drops the connections from the
    /// one before.
    pub(crate) async fn move_client(&self, address: Ipv4Addr) -> Result<()> {
        let mut state = self.state.lock().await;
        state.rules.move_client(address);
        state.load().await
    }

    /// Removes all rules, which do not come back.
    pub(crate) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.is_closed = true;
        let script = format!("delete table ip {}\n", self.table);
        let _ = tokio::task::spawn_blocking(move || nft(&script)).await;
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        // It is gone if it was closed.
        let _ = nft(&format!("delete table ip {}\n", self.table));
    }
}

impl State {
    /// Makes the kernel do as the rules say. It does not block its thread, nor leave it to another one
    /// by `block_in_place`: machines end with the thread that has started them.
    async fn load(&self) -> Result<()> {
        if self.is_closed {
            return Ok(());
        }
        let script = self.rules.to_string();
        tokio::task::spawn_blocking(move || nft(&script)).await?
    }
}

/// Changes tables of the kernel all at once, or not at all.
fn nft(script: &str) -> Result<()> {
    let mut words = String::new();
    for _ in 0..ATTEMPTS {
        let mut child = Command::new("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start `nft`: apt-get install -y nftables")?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(script.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        // Another process may have changed its table at the same time.
        if words.contains("No such file or directory") {
            break;
        }
        std::thread::sleep(FIREWALL_AGAIN);
    }
    bail!("nft refuses the rules of security groups: {words}")
}

/// The names of all tables.
fn tables() -> Vec<String> {
    let listed = Command::new("nft").args(["list", "tables", "ip"]).stdin(Stdio::null()).output();
    let text = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter_map(|line| line.rsplit(' ').next()).map(str::to_owned).collect()
}

/// Tries all that the firewall needs of the kernel: a machine reaches itself from its own address,
/// and nobody else reaches it.
fn probe(table: &str, network: Network) -> Result<()> {
    let group = Cgroup::make("probe")?;
    let own = network.probe();
    let mut rules = Ruleset::new(table, network);
    rules.machines.insert("probe".into(), Machine { group: group.place(), private: Some(own), public: None });
    nft(&rules.to_string())?;
    let listener = TcpListener::bind((own, 0)).with_context(|| format!("cannot listen on {own}"))?;
    let address = listener.local_addr()?;
    let end = || nft(&format!("delete table ip {table}\n"));
    let outside = TcpStream::connect_timeout(&address, FIREWALL_PROBE);
    if !outside.is_err_and(|error| error.kind() == ErrorKind::TimedOut) {
        end()?;
        bail!("the kernel does not drop what no rule allows");
    }
    let script = format!("exec 3<>/dev/tcp/{}/{}", address.ip(), address.port());
    let inside = cgroup::enter(Some(group.folder()), "timeout").args(["5", "bash", "-c", &script]).output()?;
    let come = listener.set_nonblocking(true).and_then(|()| listener.accept());
    end()?;
    match come.map(|(_, from)| from) {
        Ok(SocketAddr::V4(from)) if *from.ip() == own => Ok(()),
        Ok(from) => bail!("a process of a control group came from {from}, not from {own}"),
        Err(_) => {
            let words = String::from_utf8_lossy(&inside.stderr);
            bail!("a process of a control group does not reach its own machine: {}", words.trim())
        }
    }
}

/// How often a change is tried.
const ATTEMPTS: u32 = 5;
