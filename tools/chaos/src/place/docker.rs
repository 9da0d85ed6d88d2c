//! Nodes that are containers: known by a label with the mark of the round; their processes are
//! known by their container.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use skyward_tools::context::Context;
use skyward_tools::image::Images;
use skyward_tools::process::Run;

use super::{Act, Ground, Machines, Target, Victim, processes};
use crate::processes::Process;
use crate::timing::{CONTAINER_END, CONTAINER_POLL};
use crate::words::Provider;

/// An engine, with the image of the nodes and an environment that is built.
pub(super) struct Engine {
    image: String,
}

struct Containers {
    image: String,
    folder: PathBuf,
    mark: String,
    /// The containers' own volumes.
    volumes: RefCell<BTreeSet<String>>,
    /// Which container is cut off from which network.
    cut: Vec<(String, String)>,
}

/// Finds an engine and makes the image and an environment, or returns why it cannot.
pub(super) fn prepare(context: &Context, client: &Path) -> Result<Result<Box<dyn Ground>, String>> {
    let images = match Images::ensure(context)? {
        Ok(images) => images,
        Err(reason) => return Ok(Err(reason)),
    };
    let engine = Engine { image: images.node };
    super::warm(&engine, client)?;
    Ok(Ok(Box::new(engine)))
}

impl Ground for Engine {
    fn machines(&self, folder: &Path, mark: &str) -> Result<Box<dyn Machines>> {
        // Tasks leave lines here as any user of their containers.
        let shared = folder.join("shared");
        fs::create_dir_all(&shared)?;
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777))?;
        Ok(Box::new(Containers {
            image: self.image.clone(),
            folder: folder.to_owned(),
            mark: mark.to_owned(),
            volumes: RefCell::default(),
            cut: Vec::new(),
        }))
    }
}

impl Containers {
    /// All containers, with their states in the engine's list: of a stuck container, the engine may
    /// return nothing else.
    fn containers(&self) -> Vec<(String, String)> {
        let label = format!("label={LABEL}={}", self.mark);
        let format = "{{.ID}} {{.State}} {{.Mounts}}";
        let listed = lines(&["ps", "--all", "--no-trunc", "--filter", &label, "--format", format]);
        let mut containers = Vec::new();
        for line in &listed {
            let mut words = line.splitn(3, ' ');
            let (Some(id), Some(state)) = (words.next(), words.next()) else { continue };
            let mounts = words.next().unwrap_or_default().split(',');
            let own =
                mounts.filter(|name| !(name.is_empty() || name.contains('/') || name.starts_with("skyward-cache-")));
            self.volumes.borrow_mut().extend(own.map(str::to_owned));
            containers.push((id.to_owned(), state.to_owned()));
        }
        containers.sort();
        containers
    }

    fn processes(&self, victim: Victim) -> Vec<Target> {
        let containers = self.containers();
        let found = processes::family(|process| containers.iter().any(|(id, _)| is_in(process, id)));
        found.iter().filter(|process| victim.is(process)).map(processes::Process::target).collect()
    }

    /// The network of a container.
    fn network(&self, container: &str) -> Option<String> {
        let id = format!("id={container}");
        lines(&["ps", "--all", "--filter", &id, "--format", "{{.Networks}}"]).into_iter().find(|name| !name.is_empty())
    }

    fn cut(&mut self, container: &str, act: Act) -> bool {
        if act == Act::Continue {
            let Some(at) = self.cut.iter().position(|(id, _)| id == container) else { return false };
            let (id, network) = self.cut.swap_remove(at);
            return docker(&["network", "connect", &network, &id]).is_ok();
        }
        let Some(network) = self.network(container) else { return false };
        let cut = docker(&["network", "disconnect", "--force", &network, container]).is_ok();
        if cut {
            self.cut.push((container.to_owned(), network));
        }
        cut
    }
}

impl Machines for Containers {
    fn provider(&self) -> Provider {
        let shared = self.folder.join("shared").to_string_lossy().into_owned();
        let label = (LABEL.to_owned(), self.mark.clone());
        Provider::Docker { image: self.image.clone(), label, bind: (shared, SHARED.to_owned()) }
    }

    /// The label of a client's user, which everything that the client makes has.
    fn env(&self) -> Vec<(String, String)> {
        vec![("USER".to_owned(), self.mark.clone())]
    }

    fn executions(&self) -> String {
        format!("{SHARED}/executions")
    }

    fn executed(&self) -> String {
        fs::read_to_string(self.folder.join("shared/executions")).unwrap_or_default()
    }

    fn find(&self, victim: Victim) -> Vec<Target> {
        match victim {
            Victim::Machine | Victim::Network => {
                let running = self.containers().into_iter().filter(|(_, state)| state == "running");
                running.map(|(id, _)| Target::Machine { victim, id }).collect()
            }
            _ => self.processes(victim),
        }
    }

    fn act(&mut self, target: &Target, act: Act) -> bool {
        match target {
            Target::Machine { victim: Victim::Network, id } => self.cut(id, act),
            Target::Machine { id, .. } => match act {
                Act::Kill => docker(&["kill", id]).is_ok(),
                Act::Stop => pause(id),
                Act::Continue => docker(&["unpause", id]).is_ok(),
            },
            Target::Process { pid, .. } => target.signal(act) || signal_inside(*pid, act),
        }
    }

    fn running(&self) -> Vec<Target> {
        let there = self.containers().into_iter().filter(|(_, state)| state != "created");
        there.map(|(id, state)| Target::Machine { victim: Victim::Machine, id: format!("{id} ({state})") }).collect()
    }

    fn left(&self) -> Vec<(&'static str, Vec<String>)> {
        let containers = self.containers().into_iter().map(|(id, state)| format!("{id} ({state})")).collect();
        let label = format!("label=skyward.client={}", self.mark);
        let networks = lines(&["network", "ls", "--filter", &label, "--format", "{{.Name}}"]);
        let mut volumes = lines(&["volume", "ls", "--quiet"]);
        volumes.retain(|name| self.volumes.borrow().contains(name));
        vec![("are containers", containers), ("are networks", networks), ("are volumes", volumes)]
    }

    fn clear(&mut self) {
        for (id, _) in self.containers() {
            let _ = docker(&["rm", "--force", "--volumes", &id]);
        }
        let left = self.left();
        for network in left.iter().filter(|(what, _)| *what == "are networks").flat_map(|(_, names)| names) {
            let _ = docker(&["network", "rm", network]);
        }
        for volume in self.volumes.borrow().iter() {
            let _ = docker(&["volume", "rm", "--force", volume]);
        }
        // With another user's engine, the files of tasks belong to another user.
        if fs::remove_dir_all(self.folder.join("shared")).is_err() {
            let bind = format!("{}:/folder", self.folder.display());
            let _ = docker(&["run", "--rm", "--volume", &bind, &self.image, "rm", "-rf", "/folder/shared"]);
        }
    }
}

/// A process that belongs to another user is reached through its engine, by the id that it has in
/// its container.
fn signal_inside(pid: u32, act: Act) -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let (status, groups) = (read("status"), read("cgroup"));
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last());
    let is_id = |word: &&str| word.len() == 64 && word.chars().all(|c| c.is_ascii_hexdigit());
    let container = groups.split(|c: char| !c.is_ascii_alphanumeric()).find(is_id);
    let (Some(inner), Some(container)) = (inner, container) else { return false };
    let signal = match act {
        Act::Kill => "-KILL",
        Act::Stop => "-STOP",
        Act::Continue => "-CONT",
    };
    docker(&["exec", "--user", "0", container, "sh", "-c", "kill \"$1\" \"$2\"", "sh", signal, inner]).is_ok()
}

/// Pauses a container, but first lets commands begin that its engine is just starting in it.
///
/// An engine of version 20.10 that freezes the first process of a command, `runc init`, waits for
/// the process while it holds the container's lock. Then neither a client nor a user can end or
/// unpause the container through the engine. This fault of the engine would hide how clients handle
/// a paused machine.
fn pause(container: &str) -> bool {
    if docker(&["pause", container]).is_err() {
        return false;
    }
    let begin = Instant::now();
    let mut clean = 0;
    // A command that was about to start when the container was frozen becomes visible a little
    // later.
    while clean < CLEAN_LOOKS && begin.elapsed() < CONTAINER_END {
        clean += 1;
        if is_starting(container) {
            clean = 0;
            if !freeze(container, false) {
                return true;
            }
            while is_starting(container) && begin.elapsed() < CONTAINER_END {
                thread::sleep(CONTAINER_POLL);
            }
            freeze(container, true);
        }
        thread::sleep(CONTAINER_POLL);
    }
    true
}

/// Whether the engine is starting a command in a container.
fn is_starting(container: &str) -> bool {
    let starts = |process: &Process| process.arguments == ["runc", "init"] && is_in(process, container);
    !processes::family(starts).is_empty()
}

fn is_in(process: &Process, container: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).unwrap_or_default().contains(container)
}

/// Freezes or thaws a container without its engine, if this user may.
fn freeze(container: &str, frozen: bool) -> bool {
    let of_group = |process: &Process| {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).ok()?;
        let path = |kind: &str| groups.lines().find_map(|line| line.split_once(kind)?.1.strip_prefix('/'));
        Some(match path(":freezer:") {
            Some(path) => (format!("/sys/fs/cgroup/freezer/{path}/freezer.state"), ["THAWED", "FROZEN"]),
            None => (format!("/sys/fs/cgroup/{}/cgroup.freeze", path("0::")?), ["0", "1"]),
        })
    };
    let members = processes::family(|process| is_in(process, container));
    let group = members.iter().find_map(of_group);
    group.is_some_and(|(file, words)| fs::write(file, words[usize::from(frozen)]).is_ok())
}

fn docker(arguments: &[&str]) -> Result<String> {
    Run::new("timeout").args([DEADLINE, "docker"].iter().chain(arguments)).read()
}

fn lines(arguments: &[&str]) -> Vec<String> {
    docker(arguments).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// For each command, in seconds.
const DEADLINE: &str = "30";
const CLEAN_LOOKS: u32 = 5;
/// The label with the mark.
const LABEL: &str = "skyward-chaos";
/// The folder of the round, in its containers.
const SHARED: &str = "/chaos";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    #[ignore = "needs docker"]
    fn a_container_that_is_paused_while_commands_are_started_in_it_can_go_on() {
        let images = lines(&["image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "skyward-node"]);
        let image = images.first().expect("an engine has the image of nodes: cargo xtask image");
        for round in 0..4 {
            let id = docker(&["run", "--detach", "--rm", "--init", image, "sleep", "600"]).unwrap();
            let id = id.trim();
            let exec = || Command::new("docker").args(["exec", id, "true"]).stderr(Stdio::null()).spawn().unwrap();
            let commands: Vec<_> = (0..8).map(|_| exec()).collect();
            // None of them is certain to be hit.
            thread::sleep(Duration::from_millis(100 + 40 * round));
            assert!(pause(id));
            let went_on = docker(&["unpause", id]);
            freeze(id, false);
            docker(&["rm", "--force", id]).unwrap();
            commands.into_iter().for_each(|mut command| drop(command.wait()));
            went_on.unwrap();
        }
    }
}
