//! Nodes on instances of an EC2 on loopback: machines in namespaces of this host, whose processes
//! are known by their machine. Each round has an EC2 for itself, and leaves it for the next round.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use serde::Deserialize;
use skyward_tools::context::Context;
use skyward_tools::ec2::{Build, Ec2};
use skyward_tools::process::Run;

use super::{Act, Ground, Machines, Target, Victim, processes};
use crate::processes::Process;
use crate::timing::{INSTANCE_END, INSTANCE_POLL};
use crate::words::Provider;

/// Free EC2s, with built environments.
pub(super) struct Clouds {
    context: Context,
    build: Build,
    /// The folder that is the user's cache on all machines.
    cache: PathBuf,
    idle: Arc<Mutex<Vec<Ec2>>>,
}

struct Instances {
    /// None after it was given back.
    ec2: Option<Ec2>,
    idle: Arc<Mutex<Vec<Ec2>>>,
    /// Of the round, and in the cache of the machines.
    shared: PathBuf,
    mark: String,
}

/// An instance that has a machine.
#[derive(Debug, Deserialize)]
struct Instance {
    id: String,
    pid: Option<u32>,
    processes: Vec<u32>,
}

/// Starts an EC2 with an environment, or returns why it cannot.
pub(super) fn prepare(context: &Context, client: &Path, build: Build) -> Result<Result<Box<dyn Ground>, String>> {
    let cache = env::var_os("SKYWARD_CACHE_DIR").map(PathBuf::from);
    let cache = cache.or_else(|| context.cache.parent().map(Path::to_owned)).context("there is no cache")?;
    let clouds =
        Clouds { context: Context::discover()?, build, cache: cache.join("loopback-ec2"), idle: Arc::default() };
    match clouds.start()? {
        Ok(ec2) => lock(&clouds.idle).push(ec2),
        Err(reason) => return Ok(Err(reason)),
    }
    super::warm(&clouds, client)?;
    Ok(Ok(Box::new(clouds)))
}

impl Clouds {
    fn start(&self) -> Result<Result<Ec2, String>> {
        Ec2::with(&self.context, self.build, &["--cache", &self.cache.to_string_lossy()])
    }
}

impl Ground for Clouds {
    fn machines(&self, _: &Path, mark: &str) -> Result<Box<dyn Machines>> {
        let idle = lock(&self.idle).pop();
        let ec2 = match idle {
            Some(ec2) => ec2,
            None => self.start()?.map_err(|reason| anyhow!("{reason}"))?,
        };
        let shared = self.cache.join(CHAOS).join(mark);
        fs::create_dir_all(&shared)?;
        // Tasks run as the machines' user.
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777))?;
        Ok(Box::new(Instances { ec2: Some(ec2), idle: Arc::clone(&self.idle), shared, mark: mark.to_owned() }))
    }
}

impl Instances {
    fn ask(&self, line: &str) -> Result<serde_json::Value> {
        self.ec2.as_ref().context("the EC2 of this round has already been returned")?.ask(line)
    }

    fn does(&self, line: &str) -> bool {
        self.ask(line).is_ok()
    }

    fn instances(&self) -> Vec<Instance> {
        let listed = self.ask("instances").and_then(|answer| Ok(serde_json::from_value(answer)?));
        listed.unwrap_or_default()
    }

    /// All processes of the machines, or of one of them.
    fn processes(&self, of: Option<&str>) -> Vec<Process> {
        let instances = self.instances().into_iter().filter(|instance| of.is_none_or(|id| instance.id == id));
        let ids: Vec<u32> = instances.flat_map(|instance| instance.processes).collect();
        processes::family(|process| ids.contains(&process.pid))
    }

    /// Stops a machine, as an overloaded host does.
    fn freeze(&self, id: &str, act: Act) -> bool {
        let mut hit = false;
        // Processes that start while others are being stopped are found the next time.
        for _ in 0..LOOKS {
            for process in self.processes(Some(id)) {
                hit |= process.target().signal(act);
            }
        }
        hit
    }

    /// Starts the SSH server again, as systemd does on a machine of EC2.
    fn serve(&self, id: &str) -> bool {
        let unblocked = self.does(&format!("block_ssh {id} off"));
        if self.processes(Some(id)).iter().any(is_listener) {
            return unblocked;
        }
        let instances = self.instances();
        let pid = instances.iter().find(|instance| instance.id == id).and_then(|instance| instance.pid);
        let Some(pid) = pid.map(|pid| pid.to_string()) else { return false };
        let inside = ["--target", &pid, "--mount", "--pid", "--uts", "--root", "--wd", "--"];
        let restart = Run::new("timeout").args([DEADLINE, "nsenter"]).args(inside);
        restart.args(["systemctl", "restart", "ssh"]).read().is_ok()
    }

    fn service(&self, act: Act) -> bool {
        self.does(match act {
            Act::Kill => LOSE,
            Act::Stop => REFUSE,
            Act::Continue => "forgive",
        })
    }
}

impl Machines for Instances {
    fn provider(&self) -> Provider {
        let words = self.ec2.as_ref().map(Ec2::arguments).unwrap_or_default();
        let after =
            |name: &'static str| words.windows(2).filter(move |pair| pair[0] == name).map(|pair| pair[1].clone());
        let ssh_port = after("--ssh-port").next().and_then(|port| port.parse().ok()).unwrap_or_default();
        Provider::Aws { subnets: after("--subnet").collect(), ssh_port }
    }

    fn env(&self) -> Vec<(String, String)> {
        let environment = self.ec2.iter().flat_map(Ec2::environment);
        environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn executions(&self) -> String {
        format!("{HOME}/.cache/{CHAOS}/{}/executions", self.mark)
    }

    fn executed(&self) -> String {
        fs::read_to_string(self.shared.join("executions")).unwrap_or_default()
    }

    fn find(&self, victim: Victim) -> Vec<Target> {
        let instance = |instance: Instance| Target::Machine { victim, id: instance.id };
        match victim {
            Victim::Machine | Victim::Listener | Victim::Notice => {
                self.instances().into_iter().filter(|instance| instance.pid.is_some()).map(instance).collect()
            }
            Victim::Service => vec![Target::Machine { victim, id: "EC2".into() }],
            Victim::Connection => {
                self.processes(None).iter().filter(|process| is_session(process)).map(Process::target).collect()
            }
            _ => self.processes(None).iter().filter(|process| victim.is(process)).map(Process::target).collect(),
        }
    }

    fn act(&mut self, target: &Target, act: Act) -> bool {
        match target {
            Target::Machine { victim: Victim::Service, .. } => self.service(act),
            Target::Machine { victim: Victim::Notice, id } => self.does(&format!("interrupt {id} {NOTICE}")),
            Target::Machine { victim: Victim::Listener, id } => match act {
                Act::Kill => self.does(&format!("kill_sshd {id}")),
                Act::Stop => self.does(&format!("block_ssh {id} on")),
                Act::Continue => self.serve(id),
            },
            Target::Machine { id, .. } => match act {
                Act::Kill => self.does(&format!("kill {id}")),
                Act::Stop | Act::Continue => self.freeze(id, act),
            },
            Target::Process { .. } => target.signal(act),
        }
    }

    fn heal(&mut self) {
        self.does("forgive");
        for instance in self.instances() {
            self.serve(&instance.id);
        }
    }

    fn running(&self) -> Vec<Target> {
        let instances = self.instances().into_iter();
        instances.map(|instance| Target::Machine { victim: Victim::Machine, id: instance.id }).collect()
    }

    fn left(&self) -> Vec<(&'static str, Vec<String>)> {
        let left = match self.ec2.as_ref().map(Ec2::left) {
            Some(Ok(left)) => left,
            Some(Err(error)) => vec![format!("{error:#}")],
            None => Vec::new(),
        };
        vec![("are left in EC2", left)]
    }

    fn clear(&mut self) {
        self.does("forgive");
        let begin = Instant::now();
        for instance in self.instances() {
            self.does(&format!("kill {}", instance.id));
        }
        while !self.instances().is_empty() && begin.elapsed() < INSTANCE_END {
            thread::sleep(INSTANCE_POLL);
        }
        let _ = fs::remove_dir_all(&self.shared);
        // An EC2 with something left in it ends here, so that the next round starts clean.
        if let Some(ec2) = self.ec2.take()
            && ec2.left().is_ok_and(|left| left.is_empty())
        {
            lock(&self.idle).push(ec2);
        }
    }
}

/// The process that takes connections.
fn is_listener(process: &Process) -> bool {
    process.arguments.first().is_some_and(|word| word.contains("sshd") && word.contains("[listener]"))
}

/// The process that carries the bytes of a connection: `sshd: ubuntu`, with `@notty` where commands
/// were run. The one above it, with root's rights, could be killed and the connection go on.
fn is_session(process: &Process) -> bool {
    process.arguments.first().is_some_and(|word| word.starts_with("sshd") && word.contains(": ") && !word.contains('['))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder of all rounds in the machines' cache.
const CHAOS: &str = "chaos";
/// Of the machines' user.
const HOME: &str = "/home/ubuntu";
/// The notice before an instance is taken back, in seconds. EC2 gives 120, which is longer than a
/// round.
const NOTICE: u32 = 5;
/// Calls that take effect and whose answers are lost.
const LOSE: &str = "drop_after * 2";
/// As EC2 does when an account calls too often.
const REFUSE: &str = "error * 503 RequestLimitExceeded 1000000";
const LOOKS: u32 = 2;
/// For a command on a machine, in seconds.
const DEADLINE: &str = "30";
