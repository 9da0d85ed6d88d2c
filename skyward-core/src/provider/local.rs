//! Nodes on this host.

mod claims;
mod folders;
mod held;
pub(super) mod host;
mod inherited;
mod key;
mod lock;
mod marked;
mod root;
mod timing;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use self::claims::DEVICES;
use self::folders::Folders;
use self::host::Look;
use self::marked::Marks;
use self::timing::KILLED_GONE;
use super::models::{UnsaidMemory, serves};
use super::{
    Architecture, Capabilities, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Part, Place,
    PoolRecord, PoolRequest, Provider, Requirements, launch_each, terminate_each,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{MachineId, PoolId};
use crate::remote::{Process, Remote};

/// Nodes on this host (Linux). Each node is a folder, a loopback address, and the processes of this
/// user that carry the node's mark in their environment, with their descendants.
///
/// The folders are in `$SKYWARD_RUNTIME_DIR`, or else in `skyward-<user id>` in `$XDG_RUNTIME_DIR`
/// or the folder for temporary files. Each node has an address of its own in 127.0.0.0/8. Nodes
/// share the host's cores and memory. An accelerator that a pool asks for is given to one node
/// only.
///
/// Processes on a node get those of the client's environment variables that a program needs to run
/// and to install packages, as the guide's page on pools lists them, and those that
/// [`inherit`](Local::inherit) names. Workers also get the variables of the image.
///
/// A client that is the first process of a container, or a sub-reaper, inherits processes of its
/// nodes, and takes their exit statuses when nodes are inspected and terminated; those of children
/// that the client's own code has started are left alone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> skyward_core::Result<()> {
/// # use skyward_core as skyward;
/// use skyward::provider::{Local, Provider, Requirements};
///
/// let offers = Local::new().offers(&Requirements::default()).await?;
/// assert_eq!(offers[0].usd_per_hour, Some(0.0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Local {
    root: Option<PathBuf>,
    inherited: Vec<String>,
    /// The open records of the pools that were prepared or adopted here. The lock on each shows
    /// that its client lives.
    held: Arc<Mutex<BTreeMap<PoolId, Arc<File>>>>,
}

impl Local {
    /// Keeps the nodes' folders in the default folder, see [`Local`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the nodes' folders in this folder, which only this user may write to. Its path must be
    /// short: paths of sockets below it have at most 107 bytes.
    #[must_use]
    pub fn runtime_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.root = Some(folder.into());
        self
    }

    /// Passes these variables of the client's environment, where they are set, on to all processes
    /// of the nodes. A `*` at the end of a name stands for any rest.
    ///
    /// For a value that only payloads need and that nobody else may see, use a [secret of the
    /// image](crate::spec::Image::secret).
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::provider::Local;
    ///
    /// let local = Local::new().inherit(["MLFLOW_TRACKING_URI", "DATA_*"]);
    /// ```
    #[must_use]
    pub fn inherit(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.inherited.extend(names.into_iter().map(Into::into));
        self
    }

    /// The provider whose machines are where this identity says, if that is on this machine.
    pub(crate) fn of_identity(identity: &str) -> Option<Self> {
        Folders::root_of(identity).map(|root| Self::new().runtime_dir(root))
    }

    fn folders(&self) -> Folders {
        Folders::new(self.root.as_deref())
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<PoolId, Arc<File>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn launch_one(&self, batch: &LaunchBatch, request: &LaunchRequest) -> Result<Machine> {
        let devices = match batch.offer.accelerator {
            Some(_) => blocking(|| Ok(host::devices())).await?,
            None => Vec::new(),
        };
        // A few small file operations, whose only await points are waits for locks: no part of them
        // runs on after the future is dropped.
        self.folders().create(batch, request, &devices).await
    }

    async fn terminate_one(&self, machine: &MachineId) -> Result<()> {
        let (folders, machine) = (self.folders(), machine.clone());
        blocking(move || {
            let folder = folders.machine(&machine)?;
            let marks = Marks::of(&machine, &folder);
            let inherited = inherited::marked(machine.as_str());
            end(&machine, &marks)?;
            folders.remove(&folder)?;
            // Nothing can be started in a removed folder; this ends what was started just before
            // the removal.
            end(&machine, &marks)?;
            inherited::collect(&inherited);
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl Provider for Local {
    fn name(&self) -> &str {
        "local"
    }

    /// The folder of its machines, and this machine.
    async fn identity(&self) -> Result<String> {
        self.folders().identity()
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().outlives_client().adopts().shared_host().settles_in(Duration::ZERO)
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let (requirements, folders) = (requirements.clone(), self.folders());
        blocking(move || {
            folders.check()?;
            let disk = folders.disk_gib();
            let look = if requirements.accelerator.is_some() { Look::Close } else { Look::Quick };
            let offers = host::offers(look);
            if let Some(words) = host::unseen(&offers, &requirements) {
                SAID.call_once(|| tracing::info!("{words}"));
            }
            Ok(offers
                .into_iter()
                .map(|offer| Offer { disk_gib: disk, architecture: Architecture::of_client(), ..offer })
                .filter_map(|offer| fitted(offer, &requirements))
                .collect())
        })
        .await
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        // As for a machine.
        let record = self.folders().prepare(pool).await?;
        self.held().insert(pool.pool.clone(), record);
        Ok(())
    }

    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        let record = self.folders().adopt(pool).await?;
        self.held().insert(pool.pool.clone(), record);
        Ok(())
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        launch_each(batch, |request| self.launch_one(batch, request)).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        let (folders, machines) = (self.folders(), machines.to_vec());
        blocking(move || {
            inherited::collect(&[]);
            let there: Vec<_> =
                machines.iter().map(|machine| Ok(folders.machine(machine)?.exists())).collect::<Result<_>>()?;
            let marks = if there.contains(&false) { marks()? } else { Default::default() };
            let report = |(machine, there): (&MachineId, bool)| match there {
                true => folders.running(machine),
                false if marks.contains(machine.as_str()) => Ok(MachineReport::new(MachineState::Ending)),
                false => Ok(MachineReport::new(MachineState::Gone)),
            };
            machines.iter().zip(there).map(report).collect()
        })
        .await
    }

    async fn connect(&self, machine: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        let folder = self.folders().machine(&machine.id)?;
        if !folder.is_dir() {
            let message = format!("the machine {} is gone: its folder {} does not exist", machine.id, folder.display());
            return Err(Error::new(ErrorKind::Provider, message));
        }
        let key = key::make(&folder).map_err(|error| {
            let message = format!("cannot write the key of the machine {} into {}", machine.id, folder.display());
            Error::new(ErrorKind::Provider, message).with_source(error)
        })?;
        let process = Process::new().inherit(&self.inherited).folder(folder);
        let process = process.env(marked::MARK, machine.id.as_str()).env(marked::KEY, key);
        // Other nodes share this host: a node that asked for no accelerator sees none.
        let devices = machine.facts.get(DEVICES).map_or("", String::as_str);
        Ok(Box::new(process.env(DEVICES, devices)))
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        terminate_each(machines, |machine| self.terminate_one(machine)).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        for machine in self.list(pool).await? {
            self.terminate_one(&machine.id).await?;
        }
        self.held().remove(pool);
        let (folders, pool) = (self.folders(), pool.clone());
        blocking(move || folders.remove(&folders.pool(&pool)?)).await
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        let (folders, pool) = (self.folders(), pool.clone());
        blocking(move || {
            let mut machines = folders.machines(&pool)?;
            for mark in marks()? {
                if machines.iter().all(|machine| machine.id.as_str() != mark) {
                    machines.extend(folders.of_mark(&pool, &mark));
                }
            }
            Ok(machines)
        })
        .await
    }

    /// The pools below the same folder. A pool expires one lease from now while its client lives,
    /// which the lock on its record shows, or while a process of one of its machines runs.
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let folders = self.folders();
        blocking(move || folders.pools(&marks()?, SystemTime::now())).await
    }
}

/// The offer as one node gets it; none when the host does not meet the requirements.
fn fitted(mut offer: Offer, requirements: &Requirements) -> Option<Offer> {
    if let Some(wanted) = &requirements.accelerator {
        let has = offer.accelerator.as_mut()?;
        if !serves(has, wanted, UnsaidMemory::TooLittle) {
            return None;
        }
        has.count = wanted.count;
    }
    requirements.are_met_by(&offer).then_some(offer)
}

fn end(machine: &MachineId, marks: &Marks) -> Result<()> {
    let left = marks.end(KILLED_GONE).map_err(unread)?;
    if left.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = left.iter().take(SHOWN).map(u32::to_string).collect();
    let (count, what) = (left.len(), format!("processes of the machine {machine} did not end within {KILLED_GONE:?}"));
    Err(Error::new(ErrorKind::Provider, format!("{count} {what}"))
        .with_context("processes", ids.join(" "))
        .with_hint(format!(
            "they may be waiting for a disk or a driver, belong to another user, or start others faster than they can \
             be ended: `ps -o pid,user,stat,wchan,args -p {}`",
            ids.join(",")
        ))
        .temporary())
}

fn marks() -> Result<BTreeSet<String>> {
    marked::marks().map_err(unread)
}

/// The error where the processes of this host cannot be read, so that those of a machine may be there.
fn unread(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Provider, "cannot read the list of processes in /proc")
        .with_hint("this process may have too many open files: raise its limit, `ulimit -n`")
        .with_source(error)
        .temporary()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::new(ErrorKind::Provider, "the local provider was interrupted").with_source(error)),
    }
}

/// The hint where other pools have accelerators of a host.
pub(super) const ACCELERATORS_TAKEN: &str =
    "wait for the end of a pool that has accelerators of the host, or ask for fewer nodes or accelerators on each";
/// The most processes that an error names.
const SHOWN: usize = 20;
/// Whether the log has said that this host has accelerators that a pool does not ask for.
static SAID: Once = Once::new();

#[cfg(test)]
mod tests;
