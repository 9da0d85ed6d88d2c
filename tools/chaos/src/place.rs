//! Where pools are, and what a fault can hit there. Nothing else of the player depends on the
//! provider.

mod aws;
mod docker;
mod local;
mod ssh;

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::Signal;
use skyward_tools::context::Context;
use skyward_tools::ec2::Build;

use crate::plan::{Fault, How};
use crate::processes;
use crate::round::command;
use crate::words::{CLIENT, END_OF_INSTANCES, LEASE, Provider, START_OF_INSTANCES};

/// Where pools are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// This host.
    Local,
    /// Containers of a Docker engine.
    Docker,
    /// OpenSSH servers on addresses of this host.
    Ssh,
    /// Instances of an EC2 on loopback.
    Aws,
}

/// What a fault can hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Worker,
    Agent,
    /// The mover, which reads files for the client, once it runs.
    Mover,
    /// The keeper, which ends a machine when its lease is over.
    Keeper,
    /// What connects the client with an agent or a worker: a socket, or the process that carries
    /// its bytes. Killed, it is cut, and the client may connect again.
    Connection,
    /// The server that takes new connections.
    Listener,
    /// A machine as a whole.
    Machine,
    /// The network between a machine and others: stopped, it loses all packets.
    Network,
    /// The rental of a machine: killed, the provider gives notice that it takes the machine back,
    /// and does so a little later.
    Notice,
    /// The provider's service: killed, it loses answers; stopped, it refuses all calls.
    Service,
    Client,
}

/// A place, which all rounds of a run share.
pub(crate) trait Ground: Sync {
    /// Prepares a thread before it plays rounds.
    fn enter(&self) -> Result<()> {
        Ok(())
    }

    /// Begins a round, without machines yet. Its files go into the folder, and all its processes
    /// get the mark.
    fn machines(&self, folder: &Path, mark: &str) -> Result<Box<dyn Machines>>;
}

/// The machines of one round.
pub(crate) trait Machines {
    /// The arguments of its client.
    fn provider(&self) -> Provider;

    /// The environment variables of its client.
    fn env(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The folder where tasks leave a line for each execution, by its path on a node.
    fn executions(&self) -> String;

    /// The lines that tasks have left.
    fn executed(&self) -> String;

    /// The targets that a fault can hit now, always in the same order. The round itself finds its
    /// client.
    fn find(&self, victim: Victim) -> Vec<Target>;

    /// Hits the victim, if it still exists.
    fn act(&mut self, target: &Target, act: Act) -> bool {
        target.signal(act)
    }

    /// Makes machines reachable again after faults of their servers and networks.
    fn heal(&mut self) {}

    /// The processes and machines that still run.
    fn running(&self) -> Vec<Target>;

    /// Processes that end soon after the connection that has started them.
    fn passing(&self) -> Vec<Target> {
        Vec::new()
    }

    /// What else is left, by kind.
    fn left(&self) -> Vec<(&'static str, Vec<String>)>;

    /// Ends what is left.
    fn clear(&mut self) {
        for target in self.running() {
            self.act(&target, Act::Kill);
        }
    }
}

/// Something that can be hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Process {
        pid: u32,
        name: String,
    },
    /// Something else of this machine of the round.
    Machine {
        victim: Victim,
        id: String,
    },
}

/// What a fault does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Kill,
    Stop,
    Continue,
}

impl Place {
    /// All places.
    pub(crate) const ALL: [Self; 4] = [Self::Local, Self::Docker, Self::Ssh, Self::Aws];

    /// The place's name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
            Self::Ssh => "ssh",
            Self::Aws => "aws",
        }
    }

    /// The victims there, and the share of each among a hundred faults.
    pub(crate) fn victims(self) -> &'static [(Victim, u32)] {
        match self {
            Self::Local => &[
                (Victim::Worker, 30),
                (Victim::Agent, 20),
                (Victim::Mover, 5),
                (Victim::Connection, 25),
                (Victim::Client, 20),
            ],
            Self::Docker => &[
                (Victim::Worker, 15),
                (Victim::Agent, 15),
                (Victim::Mover, 5),
                (Victim::Keeper, 10),
                (Victim::Connection, 10),
                (Victim::Machine, 15),
                (Victim::Network, 15),
                (Victim::Client, 15),
            ],
            Self::Ssh => &[
                (Victim::Worker, 15),
                (Victim::Agent, 15),
                (Victim::Mover, 5),
                (Victim::Keeper, 10),
                (Victim::Connection, 15),
                (Victim::Listener, 10),
                (Victim::Network, 15),
                (Victim::Client, 15),
            ],
            Self::Aws => &[
                (Victim::Worker, 10),
                (Victim::Agent, 10),
                (Victim::Mover, 5),
                (Victim::Keeper, 10),
                (Victim::Connection, 10),
                (Victim::Listener, 10),
                (Victim::Machine, 15),
                (Victim::Notice, 8),
                (Victim::Service, 10),
                (Victim::Client, 12),
            ],
        }
    }

    /// The victim for a number below a hundred.
    pub(crate) fn victim(self, number: u32) -> Victim {
        let mut below = 0;
        let chosen = self.victims().iter().find(|(_, share)| {
            below += share;
            number < below
        });
        chosen.map_or(Victim::Client, |(victim, _)| *victim)
    }

    /// Whether machines still end without their client after these faults.
    pub(crate) fn ends_alone(self, faults: &[Fault]) -> bool {
        let lost = |victim| faults.iter().any(|fault| fault.victim == victim);
        let stopped = |victim| faults.iter().any(|fault| fault.victim == victim && fault.how == How::Stop);
        match self {
            Self::Local => !lost(Victim::Agent),
            Self::Docker => !(stopped(Victim::Keeper) || stopped(Victim::Machine)),
            Self::Ssh => !(stopped(Victim::Keeper) || lost(Victim::Keeper) && lost(Victim::Agent)),
            // A killed server is started again.
            Self::Aws => !(stopped(Victim::Keeper) || stopped(Victim::Machine) || stopped(Victim::Service)),
        }
    }

    /// The number of nodes of a pool there.
    pub(crate) fn nodes(self) -> std::ops::RangeInclusive<u32> {
        match self {
            Self::Local => 1..=3,
            Self::Docker | Self::Ssh => 2..=2,
            Self::Aws => 1..=2,
        }
    }

    /// How many rounds can run at once without delaying each other beyond their deadlines.
    pub(crate) fn most_jobs(self) -> usize {
        match self {
            Self::Local | Self::Docker | Self::Ssh => 8,
            Self::Aws => 2,
        }
    }

    /// How long a machine may live after its client is gone.
    pub(crate) fn lives_alone(self) -> Duration {
        match self {
            Self::Local | Self::Docker | Self::Ssh => Duration::from_millis(LEASE),
            // A keeper that was never renewed waits for as long as its machine's start may take.
            Self::Aws => Duration::from_millis(START_OF_INSTANCES + LEASE),
        }
    }

    /// For a client's life: its pool's start, all deadlines of its tasks, and the pool's end.
    pub(crate) fn patience(self) -> Duration {
        match self {
            Self::Local | Self::Docker | Self::Ssh => Duration::from_secs(120),
            Self::Aws => Duration::from_millis(START_OF_INSTANCES + END_OF_INSTANCES) + Duration::from_secs(90),
        }
    }

    /// Makes the place, with the program of the clients. The inner error is the reason why no
    /// rounds can be played here.
    pub(crate) fn prepare(
        self,
        context: &Context,
        client: &Path,
        build: Build,
    ) -> Result<Result<Box<dyn Ground>, String>> {
        match self {
            Self::Local => Ok(Ok(Box::new(local::Host))),
            Self::Docker => docker::prepare(context, client),
            Self::Ssh => ssh::prepare(context, client),
            Self::Aws => aws::prepare(context, client, build),
        }
    }
}

impl Victim {
    /// Whether a machine may be out of reach when a fault hits it, so that its client cannot end
    /// it.
    pub(crate) fn leads_to_machines(self, place: Place) -> bool {
        match place {
            Place::Ssh => matches!(self, Self::Connection | Self::Listener | Self::Network),
            Place::Aws => self == Self::Service,
            // An engine does not need a container's network to end it.
            Place::Local | Place::Docker => false,
        }
    }
}

impl Target {
    /// For what is a process on this host.
    fn signal(&self, act: Act) -> bool {
        match self {
            Self::Process { pid, .. } => processes::signal(*pid, act.signal()),
            Self::Machine { .. } => false,
        }
    }
}

impl Act {
    /// What a process gets.
    fn signal(self) -> Signal {
        match self {
            Self::Kill => Signal::KILL,
            Self::Stop => Signal::STOP,
            Self::Continue => Signal::CONT,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { name, .. } => f.write_str(name),
            Self::Machine { victim, id } => write!(f, "{victim} {id}"),
        }
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Worker => "a worker",
            Self::Agent => "an agent",
            Self::Mover => "a mover",
            Self::Keeper => "a keeper",
            Self::Connection => "a connection",
            Self::Listener => "a listener",
            Self::Machine => "a machine",
            Self::Network => "a network",
            Self::Notice => "the rental of a machine",
            Self::Service => "the service",
            Self::Client => "the client",
        })
    }
}

/// Builds the workers' environment in the cache that the rounds use.
fn warm(ground: &dyn Ground, client: &Path) -> Result<()> {
    let mark = format!("{}.warm", std::process::id());
    let folder = std::env::temp_dir().join(format!("sc{mark}"));
    let mut machines = ground.machines(&folder, &mark)?;
    let provider = serde_json::to_string(&machines.provider())?;
    let output = command(client, &folder, &mark, machines.as_ref()).args([CLIENT, "warm", &provider]).output()?;
    machines.clear();
    fs::remove_dir_all(folder)?;
    if !output.status.success() {
        bail!(
            "no environment can be built: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The names in a folder.
pub(crate) fn names(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| wanted(name)).collect()
}
