//! The folders of pools and machines on this host, and the record in each.
//!
//! `<root>/<pool>/<node>/machine.json` exists from the moment a machine does. Adding a machine
//! takes a lock on `<root>`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::claims::{ADDRESS, DEVICES, free_address, free_devices};
use super::held::{self, Written};
use super::lock::wait_for;
use super::marked::user;
use super::root::{ROOT, Root, make_private};
use crate::error::{Error, ErrorKind, Refusal, Result};
use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
use crate::provider::timing::{LONGEST_LEASE, UNRECORDED_LEASE};
use crate::provider::{
    Facts, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Place, PoolRecord, PoolRequest, client,
};
use crate::spec::hex;

/// The folder that contains all pools of this user on this host.
#[derive(Debug, Clone)]
pub(super) struct Folders {
    root: Root,
}

impl Folders {
    /// In the given folder, or else in the host's folder for short-lived files.
    pub(super) fn new(given: Option<&Path>) -> Self {
        Self { root: Root::new(given) }
    }

    /// Checks that the folder can be used, before anything is created.
    pub(super) fn check(&self) -> Result<()> {
        self.root.check()
    }

    /// The root as an absolute path, and this machine.
    pub(super) fn identity(&self) -> Result<String> {
        let root = std::path::absolute(self.root.path()).map_err(|error| cannot("find", self.root.path(), error))?;
        match root.to_str() {
            Some(root) => Ok(format!("{root} on {}", client::machine())),
            None => Err(Error::new(ErrorKind::Provider, format!("the path {} is not UTF-8", root.display()))
                .with_hint(format!("set {ROOT} to a folder with a plain name"))),
        }
    }

    /// The root that an identity names, if it is on this machine.
    pub(super) fn root_of(identity: &str) -> Option<&str> {
        identity.strip_suffix(&client::machine())?.strip_suffix(" on ")
    }

    pub(super) fn pool(&self, pool: &PoolId) -> Result<PathBuf> {
        Ok(self.root.path().join(simple(pool.as_str())?))
    }

    pub(super) fn machine(&self, machine: &MachineId) -> Result<PathBuf> {
        let (pool, node) = split(machine)?;
        Ok(self.root.path().join(pool).join(node))
    }

    /// Creates a pool's folder, and in it a record of the pool's owner. The record is locked until
    /// the returned file is dropped.
    pub(super) async fn prepare(&self, pool: &PoolRequest) -> Result<Arc<File>> {
        let folder = self.pool(&pool.pool)?;
        self.root.make()?;
        let failed = |error: io::Error| cannot("create", &folder, error);
        make_private(&folder).map_err(failed)?;
        held::note(&folder).map_err(failed)?;
        let record = Written::new(&pool.owner, pool.lease).hold(&folder).await.map_err(failed)?;
        held::of_process(record).map_err(failed)
    }

    /// Takes over the record of a pool, unless the process that holds it lives. Creates what is
    /// gone, as [`prepare`](Self::prepare) does.
    pub(super) async fn adopt(&self, pool: &PoolRequest) -> Result<Arc<File>> {
        let folder = self.pool(&pool.pool)?;
        self.root.make()?;
        // Of two that adopt at the same time, the second one finds the first. No machine is added
        // meanwhile, during which the record is locked too.
        let _lock = self.lock().await?;
        let is_held =
            held::is_kept(&folder).await.map_err(|error| cannot("lock", &folder.join(held::RECORD), error))?;
        if is_held {
            let message = format!("another process holds the pool {}, so its client lives", pool.pool);
            return Err(Error::refused(Refusal::Denied, message).with_hint(format!(
                "end that process first: `lslocks | grep {}` shows it",
                folder.join(held::RECORD).display()
            )));
        }
        self.prepare(pool).await
    }

    /// The pools that have a folder. A pool lives while its client lives or a process has one of
    /// these marks.
    pub(super) fn pools(&self, marks: &BTreeSet<String>, now: SystemTime) -> Result<Vec<PoolRecord>> {
        let mut pools = Vec::new();
        for folder in subfolders(self.root.path()).map_err(|error| cannot("read", self.root.path(), error))? {
            let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
            let written = Written::read(&folder).unwrap_or_else(|| Written::new("", UNRECORDED_LEASE));
            let lives = held::is_held(&folder) || marks.iter().any(|mark| pool_of(mark) == Some(name));
            let age = if lives { Duration::ZERO } else { held::age(&folder) };
            let expires = (now + written.lease().min(LONGEST_LEASE)).checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
            pools.push(PoolRecord::new(PoolId::new(name), expires).owner(written.owner));
        }
        Ok(pools)
    }

    /// Creates a machine's folder and record, or finds those of an earlier call for the same
    /// launch. `devices` are the accelerators of the host.
    pub(super) async fn create(
        &self,
        batch: &LaunchBatch,
        request: &LaunchRequest,
        devices: &[String],
    ) -> Result<Machine> {
        let id = machine_id(request)?;
        let folder = self.machine(&id)?;
        self.check_length(&folder)?;
        self.root.make()?;
        let _lock = self.lock().await?;
        if let Some(machine) = read_record(&folder) {
            return Ok(machine);
        }
        let others = self.records()?;
        let address = free_address(request, &others)?;
        let mut machine = Machine::of(batch, request, id);
        machine.facts.insert(ADDRESS.into(), address.to_string());
        if let Some(wanted) = &batch.offer.accelerator {
            machine.facts.insert(DEVICES.into(), free_devices(request, wanted.count, devices, &others)?);
        }
        let failed = |error: io::Error| cannot("create", &folder, error);
        // Created beside its place and moved there, so that no folder is ever seen without its
        // record.
        let parent = self.pool(&request.pool)?;
        make_private(&parent).map_err(failed)?;
        // Locked only while the machine is created. The lock that shows a living client is the one
        // that `prepare` returned.
        let _record = Written::new(&request.owner, request.lease).hold(&parent).await.map_err(failed)?;
        held::note(&parent).map_err(failed)?;
        let new = parent.join(format!(".new-{:016x}", rand::random::<u64>()));
        make_private(&new).map_err(failed)?;
        let made = serde_json::to_vec_pretty(&machine)
            .map_err(io::Error::from)
            .and_then(|json| std::fs::write(new.join(RECORD), json))
            .and_then(|()| check_room(&new))
            .and_then(|()| if folder.exists() { remove_all(&folder) } else { Ok(()) })
            .and_then(|()| std::fs::rename(&new, &folder));
        if made.is_err() {
            let _ = remove_all(&new);
        }
        made.map(|()| machine).map_err(failed)
    }

    /// The free space on the disk of the root, which may not exist yet.
    pub(super) fn disk_gib(&self) -> Option<u32> {
        let root = std::path::absolute(self.root.path()).ok()?;
        let found = root.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok())?;
        u32::try_from(found.f_bavail.saturating_mul(found.f_frsize) >> 30).ok()
    }

    /// The machines of a pool that have a folder.
    pub(super) fn machines(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let parent = self.pool(pool)?;
        let folders = subfolders(&parent).map_err(|error| cannot("read", &parent, error))?;
        // A folder whose removal was interrupted has lost its record, but still is a machine.
        let of_name = |folder: &PathBuf| self.of_mark(pool, &format!("{pool}.{}", folder.file_name()?.to_str()?));
        let mut machines: Vec<_> =
            folders.iter().filter_map(|folder| read_record(folder).or_else(|| of_name(folder))).collect();
        machines.sort_by_key(|machine| machine.number);
        Ok(machines)
    }

    /// The report of a machine whose folder exists. One whose removal was interrupted has lost its
    /// record, and is ending.
    pub(super) fn running(&self, machine: &MachineId) -> Result<MachineReport> {
        let folder = self.machine(machine)?;
        Ok(match record(&folder) {
            Ok(Some(Machine { facts, .. })) => {
                let address = facts.get(ADDRESS).cloned().unwrap_or_default();
                let place = Place::new(address, folder.to_string_lossy()).on_client_host();
                MachineReport::new(MachineState::Running).at(place)
            }
            Ok(None) => MachineReport::new(MachineState::Ending),
            Err(error) => {
                let words = format!("its record in {} cannot be read: {error}", folder.display());
                MachineReport::new(MachineState::Unknown).saying(words)
            }
        })
    }

    /// The machine of this pool whose processes carry the mark, where its record is gone.
    pub(super) fn of_mark(&self, pool: &PoolId, mark: &str) -> Option<Machine> {
        let id = MachineId::new(mark);
        let (of, suffix) = split(&id).ok()?;
        let number = suffix.strip_prefix('n')?.split('-').next()?.parse().ok()?;
        if of != pool.as_str() {
            return None;
        }
        let launch = LaunchId::new(format!("{pool}-{suffix}"));
        let (number, offer) = (MachineNumber(number), OfferId::new("host"));
        Some(Machine { id, launch, pool: pool.clone(), number, offer, facts: Facts::new() })
    }

    pub(super) fn remove(&self, folder: &Path) -> Result<()> {
        remove_all(folder).map_err(|error| cannot("remove", folder, error))
    }

    fn records(&self) -> Result<Vec<Machine>> {
        let mut all = Vec::new();
        for pool in subfolders(self.root.path()).map_err(|error| cannot("read", self.root.path(), error))? {
            let folders = subfolders(&pool).map_err(|error| cannot("read", &pool, error))?;
            all.extend(folders.iter().filter_map(|folder| read_record(folder)));
        }
        Ok(all)
    }

    fn check_length(&self, folder: &Path) -> Result<()> {
        let length = folder.as_os_str().len();
        if length <= LONGEST {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Provider,
            format!("the path {} has {length} bytes, but sockets below it allow at most {LONGEST}", folder.display()),
        )
        .with_hint(format!("set {ROOT} to a shorter path, such as /tmp/sky-{}", user())))
    }

    /// Locks the root for the few file operations of one call.
    async fn lock(&self) -> Result<File> {
        let path = self.root.path().join(".lock");
        let failed = |error| cannot("lock", &path, error);
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        wait_for(&path, || file.try_lock()).await.map_err(failed)?;
        Ok(file)
    }
}

/// `<pool>.<node>`: split at the last dot, so that the folder follows from the id alone.
fn machine_id(request: &LaunchRequest) -> Result<MachineId> {
    let pool = simple(request.pool.as_str())?;
    let launch = request.launch.as_str();
    let named = launch.strip_prefix(pool).and_then(|rest| rest.strip_prefix('-')).filter(|rest| {
        rest.starts_with(&format!("n{}", request.number))
            && !rest.contains('.')
            && rest.len() <= 16
            && simple(rest).is_ok()
    });
    let suffix = match named {
        Some(rest) => rest.to_owned(),
        None => format!("n{}-{}", request.number, hex(&Sha256::digest(launch)[..4])),
    };
    Ok(MachineId::new(format!("{pool}.{suffix}")))
}

fn split(machine: &MachineId) -> Result<(&str, &str)> {
    let (pool, node) = machine.as_str().rsplit_once('.').ok_or_else(|| unknown(machine.as_str()))?;
    Ok((simple(pool)?, simple(node)?))
}

/// The pool that a mark names.
fn pool_of(mark: &str) -> Option<&str> {
    Some(mark.rsplit_once('.')?.0)
}

/// A name that is exactly one component of a path.
fn simple(name: &str) -> Result<&str> {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if plain && !name.is_empty() && !name.starts_with('.') { Ok(name) } else { Err(unknown(name)) }
}

fn unknown(name: &str) -> Error {
    Error::new(ErrorKind::Provider, format!("`{name}` cannot be a pool or machine of the local provider"))
        .with_hint("its ids consist of letters, digits, `-`, `_` and `.`")
}

fn read_record(folder: &Path) -> Option<Machine> {
    record(folder).ok().flatten()
}

/// The record in a machine's folder; none where the file does not exist.
fn record(folder: &Path) -> io::Result<Option<Machine>> {
    match std::fs::read(folder.join(RECORD)) {
        Ok(json) => Ok(Some(serde_json::from_slice::<Recorded>(&json)?.machine())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A machine as its record has it, including records of older versions.
#[derive(serde::Deserialize)]
struct Recorded {
    #[serde(flatten)]
    machine: Machine,
    /// The field that contained the address before it became a fact.
    address: Option<String>,
}

impl Recorded {
    fn machine(mut self) -> Machine {
        if let Some(address) = self.address {
            self.machine.facts.entry(ADDRESS.into()).or_insert(address);
        }
        self.machine
    }
}

fn subfolders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let hidden = |path: &PathBuf| path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir() && !hidden(path)).collect())
}

/// Fails where a node could not even start: its agent and its workers write small files first.
fn check_room(folder: &Path) -> io::Result<()> {
    let file = folder.join("room");
    std::fs::write(&file, vec![0; ROOM])?;
    std::fs::remove_file(file)
}

/// Removes a folder, including contents whose permissions a payload has removed.
fn remove_all(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(folder)?;
            std::fs::remove_dir_all(folder)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn open_up(folder: &Path) -> io::Result<()> {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(folder)?.flatten() {
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

pub(super) fn cannot(what: &str, path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::TimedOut {
        return Error::new(ErrorKind::Timeout, format!("cannot {what} {}: {error}", path.display())).with_hint(
            format!("`lslocks` shows the process, which may be stopped: end it, or set {ROOT} to another folder"),
        );
    }
    Error::new(ErrorKind::Provider, format!("cannot {what} {}", path.display()))
        .with_hint(format!("set {ROOT} to a folder of your own with space in it"))
        .with_source(error)
}

const RECORD: &str = "machine.json";
/// The bytes that a node of one worker writes until it is ready.
const ROOM: usize = 64 << 10;
/// A Unix socket's path has at most 107 bytes, and the names of sockets below the folder need some
/// of them.
const LONGEST: usize = 60;
