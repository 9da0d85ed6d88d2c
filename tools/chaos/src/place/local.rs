//! Nodes on this host: folders of this user, and processes that inherit the mark of the client.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fd::OwnedFd;
use rustix::net::{Shutdown, SocketAddrUnix, getpeername, shutdown};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::{Act, Ground, Machines, Target, Victim};
use crate::processes::{self, Process};
use crate::words::Provider;

/// This host, which is the same for all rounds.
pub(super) struct Host;

struct Nodes {
    folder: PathBuf,
    mark: String,
}

impl Ground for Host {
    fn machines(&self, folder: &Path, mark: &str) -> Result<Box<dyn Machines>> {
        Ok(Box::new(Nodes { folder: folder.to_owned(), mark: mark.to_owned() }))
    }
}

impl Machines for Nodes {
    fn provider(&self) -> Provider {
        Provider::Local
    }

    fn executions(&self) -> String {
        self.folder.join("executions").to_string_lossy().into_owned()
    }

    fn executed(&self) -> String {
        fs::read_to_string(self.folder.join("executions")).unwrap_or_default()
    }

    fn find(&self, victim: Victim) -> Vec<Target> {
        if victim == Victim::Connection {
            let clients = processes::marked(&self.mark).into_iter().filter(Process::is_client);
            return clients.flat_map(|client| connections(client.pid)).collect();
        }
        let found = processes::marked(&self.mark).into_iter();
        found.filter(|process| victim.is(process)).map(|process| process.target()).collect()
    }

    fn act(&mut self, target: &Target, act: Act) -> bool {
        match target {
            Target::Machine { victim: Victim::Connection, id } if act == Act::Kill => cut(id).is_some(),
            target => target.signal(act),
        }
    }

    fn running(&self) -> Vec<Target> {
        processes::marked(&self.mark).iter().map(Process::target).collect()
    }

    fn left(&self) -> Vec<(&'static str, Vec<String>)> {
        vec![("are folders of pools", super::names(&self.folder.join("run"), |name| name.starts_with("p-")))]
    }
}

/// The sockets that connect a client with its agents and workers, each named by the process and its
/// descriptor.
fn connections(client: u32) -> Vec<Target> {
    let mut descriptors: Vec<i32> = super::names(Path::new(&format!("/proc/{client}/fd")), |_| true)
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    descriptors.sort_unstable();
    let ids = descriptors.into_iter().map(|descriptor| format!("{client}:{descriptor}"));
    let ids = ids.filter(|id| socket(id).is_some_and(|(_, peer)| peer.ends_with(b".sock")));
    ids.map(|id| Target::Machine { victim: Victim::Connection, id }).collect()
}

/// Shuts down both directions of a connection, as the loss of a network does.
fn cut(id: &str) -> Option<()> {
    let (socket, _) = socket(id)?;
    shutdown(socket, Shutdown::Both).ok()
}

/// Another descriptor of a client's socket, and the path of its peer.
fn socket(id: &str) -> Option<(OwnedFd, Vec<u8>)> {
    let (pid, descriptor) = id.split_once(':')?;
    let process = pidfd_open(Pid::from_raw(pid.parse().ok()?)?, PidfdFlags::empty()).ok()?;
    let socket = pidfd_getfd(process, descriptor.parse().ok()?, PidfdGetfdFlags::empty()).ok()?;
    let peer: SocketAddrUnix = getpeername(&socket).ok()??.try_into().ok()?;
    let path = peer.path_bytes()?.to_vec();
    Some((socket, path))
}
