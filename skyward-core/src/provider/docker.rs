//! Nodes that are containers of a Docker engine.

mod builder;
mod cache;
mod clock;
mod container;
mod gpus;
mod image;
mod network;
mod operations;
mod shell;
mod timing;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use bollard::models::{SystemInfo, SystemVersion};
use futures_util::future::{join_all, try_join_all};
use tokio::sync::RwLock;
use tokio::time::Instant;

use self::builder::OnNode;
use self::container::{Node, Options, POOL};
use self::timing::ENGINE_ANSWER;
use super::ends::Ends;
use super::{
    Architecture, Capabilities, LaunchBatch, Machine, MachineReport, MachineState, Offer, Part, Place, PoolRecord,
    PoolRequest, Provider, Requirements, launch_each, terminate_each,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{MachineId, PoolId};
use crate::remote::Remote;
use crate::remote::docker::Engine;
use crate::spec::Accelerator;

/// Nodes that are containers of a Docker engine: version 20.10 or newer, or another engine with the
/// same API.
///
/// The engine is the one that `DOCKER_HOST` names, or else this host's. It may run on another host:
/// everything between the client and a container goes through the engine's socket. The image needs
/// a POSIX shell with the usual tools, and Python 3.10 or newer or a way to get it. What the pool's
/// image declares is installed in the container. The engine pulls an image that it does not have.
///
/// Each pool has a network of its own, in which its nodes reach each other. The containers and the
/// network have the pool's labels, and are removed with the pool. A container whose lease is not
/// renewed ends by itself, and the engine removes it.
///
/// # The environment is built once
///
/// Environments are kept in volumes named `skyward-cache-…`, one for each image and user of it, so
/// the next container finds them there. Containers that run payloads mount the volume read-only. A
/// builder container, which runs no payloads, builds what is missing, and is removed afterwards.
/// The volumes stay when a pool ends. [`clear_cache`](Self::clear_cache) removes them, or
/// `docker volume rm` by hand.
///
/// ```no_run
/// # use skyward_core as skyward;
/// # async fn run() -> skyward::Result<()> {
/// use skyward::pool::Pool;
/// use skyward::provider::Docker;
///
/// let docker = Docker::new("python:3.13-slim").cpus(2.0).memory_gib(4.0);
/// let pool = Pool::builder().provider(docker).nodes(2).start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Docker {
    engine: Engine,
    options: Options,
    accelerator: Option<Accelerator>,
    /// Held for writing while a pool's network is created, and for reading while a container is.
    /// `list` waits for both.
    making: Arc<Mutex<HashMap<PoolId, Arc<RwLock<()>>>>>,
    /// Held while accelerators are chosen, and while an image is pulled.
    choosing: Arc<tokio::sync::Mutex<()>>,
    /// Held, by the cache's name, while one of the machines builds in that cache.
    building: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
    ends: Ends,
    /// Set once a container of the image has been seen to have a shell.
    has_shell: Arc<OnceLock<()>>,
}

impl Docker {
    /// Containers of this image, by the name that `docker pull` takes.
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            engine: Engine::new(None),
            options: Options::new(image.into()),
            accelerator: None,
            making: Arc::default(),
            choosing: Arc::default(),
            building: Arc::default(),
            ends: Ends::default(),
            has_shell: Arc::default(),
        }
    }

    /// Uses this engine instead of the one that `DOCKER_HOST` names: `unix:///path/of/its/socket`.
    #[must_use]
    pub fn engine(mut self, url: &str) -> Self {
        self.engine = Engine::new(Some(url));
        self
    }

    /// Limits each node to this many CPU cores, fractions included. Default: all of the engine's.
    #[must_use]
    pub fn cpus(mut self, cpus: f64) -> Self {
        self.options.cpus = Some(cpus);
        self
    }

    /// Limits each node to this memory in GiB, without swap. Default: all of the engine's.
    #[must_use]
    pub fn memory_gib(mut self, gibibytes: f64) -> Self {
        self.options.memory_mib = Some(mebibytes(gibibytes));
        self
    }

    /// Sets the size of `/dev/shm` in GiB, through which data loaders pass batches. Default: half
    /// of the memory. Only what is in use takes memory.
    #[must_use]
    pub fn shm_gib(mut self, gibibytes: f64) -> Self {
        self.options.shm_mib = Some(mebibytes(gibibytes));
        self
    }

    /// Declares the accelerators of the engine's host, where the client cannot see them because the
    /// engine is on another host.
    #[must_use]
    pub fn accelerator(mut self, accelerator: Accelerator) -> Self {
        self.accelerator = Some(accelerator);
        self
    }

    /// Runs everything in the containers as this user: `name` or `uid:gid`. Default: the image's
    /// user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.options.user = Some(user.into());
        self
    }

    /// Sets an environment variable in the containers. `docker inspect` shows it, so use a [secret
    /// of the image](crate::spec::Image::secret) for secrets.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.options.env.push(format!("{key}={value}"));
        self
    }

    /// Mounts a folder of the engine's host in the containers, for reading and writing.
    #[must_use]
    pub fn bind(mut self, source: impl Into<String>, target: impl Into<String>) -> Self {
        self.options.binds.push((source.into(), target.into()));
        self
    }

    /// Keeps a folder of the containers in memory, limited to this many GiB.
    #[must_use]
    pub fn tmpfs(mut self, target: impl Into<String>, gibibytes: f64) -> Self {
        self.options.tmpfs.push((target.into(), mebibytes(gibibytes)));
        self
    }

    /// Adds a label to the containers.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.labels.push((key.into(), value.into()));
        self
    }

    /// Removes the volumes with environments that no container uses, of all images, and returns how
    /// many were removed. The next pool builds its environment again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Provider`] when the engine cannot be asked.
    ///
    /// # Cancel safety
    ///
    /// May be called again.
    pub async fn clear_cache(&self) -> Result<usize> {
        cache::clear(&self.engine, soon()).await
    }

    /// The lock that is held while one of this client's machines builds in a cache.
    fn building(&self, cache: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        building.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(building.entry(cache.to_owned()).or_default())
    }
}

#[async_trait]
impl Provider for Docker {
    fn name(&self) -> &str {
        "docker"
    }

    /// The engine, by its own id, wherever its socket is and whoever asks.
    async fn identity(&self) -> Result<String> {
        let url = self.engine.url();
        let asked = self
            .engine
            .ask("report its id", soon(), |docker| async move { Ok((docker.version().await?, docker.info().await?)) });
        let (version, info) = provider(asked.await)?;
        let engine = engine_identity(&version, &info).ok_or_else(|| {
            let message = format!("the Docker engine at {url} reports no id, so a later client could not recognise it");
            Error::new(ErrorKind::Provider, message)
        })?;
        Ok(format!("engine {engine}"))
    }

    fn parts(&self) -> Vec<Part> {
        Vec::new()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().outlives_client().adopts().shared_host().keeper()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let info = provider(
            self.engine.ask("report its resources", soon(), |docker| async move { docker.info().await }).await,
        )?;
        if let Some(os) = info.os_type.filter(|os| os != "linux") {
            let message =
                format!("the Docker engine at {} runs {os} containers, but nodes need Linux", self.engine.url());
            return Err(Error::new(ErrorKind::Provider, message).with_hint("switch the engine to Linux containers"));
        }
        let cpus = self.options.cpus.map_or(info.ncpu.unwrap_or(1), |cpus| cpus.floor().max(1.0) as i64);
        let total = info.mem_total.unwrap_or(0) as u64 >> 20;
        let memory = self.options.memory_mib.unwrap_or(total).min(total);
        // A host sold with 16 GiB has slightly less.
        let memory_gib = u32::try_from((memory + (1 << 9)) >> 10).unwrap_or(u32::MAX);
        let place = info.name.unwrap_or_else(|| self.engine.url().to_owned());
        let plain = Offer::new(container::OFFER, place, u32::try_from(cpus).unwrap_or(u32::MAX), memory_gib)
            .architecture(info.architecture.as_deref().and_then(Architecture::of_linux));
        let mut offers = match &requirements.accelerator {
            None => vec![plain],
            Some(wanted) => gpus::offers(plain, wanted, self.accelerator.as_ref()).await,
        };
        offers.retain(|offer| requirements.are_met_by(offer));
        Ok(offers)
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        self.make_network(pool.clone()).await
    }

    async fn adopt(&self, pool: &PoolRequest) -> Result<()> {
        // All that this value knows of a pool comes from the engine.
        self.prepare(pool).await
    }

    async fn launch(&self, batch: &LaunchBatch) -> Vec<Result<Machine>> {
        launch_each(batch, |request| self.launch_one(&batch.offer, request)).await
    }

    async fn inspect(&self, machines: &[MachineId]) -> Result<Vec<MachineReport>> {
        if machines.is_empty() {
            return Ok(Vec::new());
        }
        let containers = self.containers(POOL.to_owned()).await?;
        let have_ends = containers.iter().any(|found| container::ends_in(found).is_some());
        let time = if have_ends { Some(self.time().await?) } else { None };
        let now = Instant::now();
        let report = async |machine: &MachineId| {
            let found = containers.iter().find(|found| container::is_named(found, machine.as_str()));
            // A builder container belongs to its machine and is no machine itself.
            let rest = || containers.iter().any(|found| container::machine(found).is_some_and(|of| of.id == *machine));
            let report = match found {
                Some(found) if container::has_ended(found) => {
                    MachineReport { lived: self.lived(found).await, ..container::report(found, time) }
                }
                Some(found) => container::report(found, time),
                None if rest() => MachineReport::new(MachineState::Ending),
                None => MachineReport::new(MachineState::Gone),
            };
            self.ends.see(machine, report, now)
        };
        Ok(join_all(machines.iter().map(report)).await)
    }

    async fn connect(&self, machine: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        let containers = self.containers(container::launch_label(&machine.launch)).await?;
        let found = containers.iter().find(|found| container::is_named(found, machine.id.as_str()));
        match found.map(container::state) {
            Some(MachineState::Running) => match found.and_then(Node::of) {
                Some(node) => Ok(Box::new(OnNode::new(self.clone(), node))),
                None => Err(Error::new(
                    ErrorKind::Provider,
                    format!("the container {} was created by another version of this library", machine.id),
                )
                .with_hint(format!(
                    "use that version, or remove the container and start the pool again: `docker rm -f {}`",
                    machine.id
                ))),
            },
            Some(MachineState::Starting) => {
                Err(Error::new(ErrorKind::Provider, format!("the container {} does not run yet", machine.id))
                    .temporary())
            }
            _ => Err(Error::new(ErrorKind::Provider, format!("the container {} is gone", machine.id))
                .with_hint("its lease expired, or somebody removed it: `docker events --since 10m` shows when")),
        }
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        terminate_each(machines, |machine| self.terminate_one(machine)).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let machines = self.list(pool).await?;
        try_join_all(machines.iter().map(|machine| self.terminate_one(&machine.id))).await?;
        provider(network::remove(&self.engine, pool, soon()).await)
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        // Waits for containers that are being created.
        drop(self.making(pool).write().await);
        let containers = self.containers(format!("{POOL}={pool}")).await?;
        // A builder container is listed as its machine, only where the machine's own container is
        // gone.
        let (builders, nodes): (Vec<_>, Vec<_>) = containers.iter().partition(|found| container::is_builder(found));
        let mut machines: Vec<_> = nodes.into_iter().chain(builders).filter_map(container::machine).collect();
        machines.sort_by(|a, b| (a.number, &a.id).cmp(&(b.number, &b.id)));
        machines.dedup_by(|a, b| a.id == b.id);
        Ok(machines)
    }

    /// The pools with a container or a network in this engine, of all users.
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let (now, engine) = (SystemTime::now(), self.time().await?);
        let containers = self.containers(POOL.to_owned()).await?;
        let networks = provider(network::pools(&self.engine, now, engine, soon()).await)?;
        let parts = containers.iter().filter_map(|found| container::pool(found, now, engine));
        Ok(PoolRecord::of_parts(parts.chain(networks)))
    }
}

/// What identifies an engine: its own id. Podman's engine makes up a new id for each answer and has
/// nothing else that never changes, so it is identified by the name of its host and its folder there.
fn engine_identity(version: &SystemVersion, info: &SystemInfo) -> Option<String> {
    let is_podman = version.components.iter().flatten().any(|component| component.name.contains("Podman"));
    match is_podman {
        true => Some(format!("Podman in {} on `{}`", info.docker_root_dir.as_ref()?, info.name.as_ref()?)),
        false => info.id.clone().filter(|id| !id.is_empty()),
    }
}

/// Turns an error of the connection to the engine into the provider's own error.
fn provider<T>(asked: Result<T>) -> Result<T> {
    asked.map_err(|error| error.with_kind(ErrorKind::Provider))
}

/// In whole MiB, at least one: an engine takes 0 for no bound at all.
fn mebibytes(gibibytes: f64) -> u64 {
    (gibibytes * 1024.0).ceil().max(1.0) as u64
}

/// The deadline of a request to an engine.
fn soon() -> Instant {
    Instant::now() + ENGINE_ANSWER
}

/// The environment variable that marks the processes of a machine.
const MARK: &str = "SKYWARD_MACHINE";

#[cfg(test)]
mod formats;
#[cfg(test)]
mod tests;
