//! Nodes that are containers of a Docker engine.

mod builder;
mod cache;
mod clock;
mod container;
mod gpus;
mod image;
mod network;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bollard::errors::Error as Answer;
use bollard::models::{ContainerSummary, SystemInfo, SystemVersion};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
};
use futures_util::future::try_join_all;
use tokio::sync::RwLock;
use tokio::time::Instant;

use self::builder::OnNode;
use self::container::{Node, Options, POOL};
use self::image::ImageFacts;
use super::ends::Ends;
use super::{
    Architecture, Capabilities, LaunchBatch, LaunchRequest, Machine, MachineReport, MachineState, Offer, Place,
    PoolRecord, PoolRequest, Provider, Requirements, client, launch_each, terminate_each,
};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{MachineId, PoolId};
use crate::remote::Remote;
use crate::remote::docker::{Engine, Fault, fault, reason};
use crate::spec::Accelerator;

/// Nodes that are containers of a Docker engine: of 20.10 or newer, or of what speaks its API.
///
/// The engine is the one that `DOCKER_HOST` names, or else this host's. It need not be on this host: all that passes between the client and a container goes through the
/// engine's socket. The image needs a POSIX shell with the usual tools, and Python of at least 3.10 or a way to get it; what a pool's image asks for is installed in the
/// container. An image that the engine does not have is pulled.
///
/// A pool has a network of its own, in which its nodes reach each other. The containers, the network and nothing else are labelled with the pool, and removed with it. A container
/// whose lease is not renewed ends by itself, and is removed by the engine.
///
/// # The environment is built once
///
/// Environments are kept in a volume, one for each image and user of it, named `skyward-cache-…`: the next container finds them there. Containers that run payloads can only read it; a
/// container that runs none builds what is missing, and is removed then. The volumes stay when a pool ends, and are
/// removed by [`clear_cache`](Self::clear_cache), or by hand with `docker volume rm`.
///
/// ```no_run
/// # async fn run() -> skyward_core::Result<()> {
/// use skyward_core::pool::Pool;
/// use skyward_core::provider::Docker;
///
/// let pool = Pool::builder().provider(Docker::new("python:3.13-slim").cpus(2.0).memory_mib(4096)).nodes(2).start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Docker {
    engine: Engine,
    options: Options,
    accelerators: Option<Accelerator>,
    /// Held while a pool's network is made, and, to read, while a container is: whoever lists them waits for these.
    making: Arc<Mutex<HashMap<PoolId, Arc<RwLock<()>>>>>,
    /// Held while accelerators are chosen, and while an image is pulled.
    choosing: Arc<tokio::sync::Mutex<()>>,
    /// Held, by the cache's name, while one of the machines builds in it.
    building: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
    ends: Ends,
    /// The pools that were prepared here.
    prepared: Arc<Mutex<HashMap<PoolId, PoolRequest>>>,
}

impl Docker {
    /// Containers of this image, as `docker pull` names it.
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            engine: Engine::new(None),
            options: Options::new(image.into()),
            accelerators: None,
            making: Arc::default(),
            choosing: Arc::default(),
            building: Arc::default(),
            ends: Ends::default(),
            prepared: Arc::default(),
        }
    }

    /// Another engine than the one that `DOCKER_HOST` names: `unix:///path/of/its/socket`.
    #[must_use]
    pub fn engine(mut self, url: &str) -> Self {
        self.engine = Engine::new(Some(url));
        self
    }

    /// The CPU cores that each node may use, in parts if need be. Without it, all of the engine's.
    #[must_use]
    pub fn cpus(mut self, cpus: f64) -> Self {
        self.options.cpus = Some(cpus);
        self
    }

    /// The memory that each node may use, in MiB; it gets no swap beside it. Without it, all of the engine's.
    #[must_use]
    pub fn memory_mib(mut self, mebibytes: u64) -> Self {
        self.options.memory_mib = Some(mebibytes);
        self
    }

    /// The size of `/dev/shm` in MiB, which data loaders use to pass batches on. Without it, half of the memory; it takes only what is used.
    #[must_use]
    pub fn shm_mib(mut self, mebibytes: u64) -> Self {
        self.options.shm_mib = Some(mebibytes);
        self
    }

    /// Which accelerators the engine's host has, where the client cannot see them: an engine on another host.
    #[must_use]
    pub fn accelerators(mut self, accelerators: Accelerator) -> Self {
        self.accelerators = Some(accelerators);
        self
    }

    /// Runs everything in the containers as this user, `name` or `uid:gid`. Without it, as the image says.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.options.user = Some(user.into());
        self
    }

    /// Sets a variable in the containers, which `docker inspect` shows: no secret. Secrets belong to the pool's image.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.options.env.push(format!("{key}={value}"));
        self
    }

    /// Shows a folder of the engine's host in the containers, to read and to write.
    #[must_use]
    pub fn bind(mut self, source: impl Into<String>, target: impl Into<String>) -> Self {
        self.options.binds.push((source.into(), target.into()));
        self
    }

    /// Keeps a folder of the containers in memory, with at most this many MiB.
    #[must_use]
    pub fn tmpfs(mut self, target: impl Into<String>, mebibytes: u64) -> Self {
        self.options.tmpfs.push((target.into(), mebibytes));
        self
    }

    /// Adds a label to the containers.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.labels.push((key.into(), value.into()));
        self
    }

    /// Removes the volumes with environments that no container uses, of all images; how many. The next pool builds its environment anew.
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

    /// The containers with this label, also those that do not run.
    async fn containers(&self, label: String) -> Result<Vec<ContainerSummary>> {
        let filters = HashMap::from([("label".to_owned(), vec![label])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let listed = self.engine.ask("list its containers", soon(), |docker| {
            let options = options.clone();
            async move {
                match docker.list_containers(Some(options)).await {
                    Err(Answer::JsonDataError { contents, message, column }) => {
                        container::listed(&contents).ok_or(Answer::JsonDataError { contents, message, column })
                    }
                    listed => listed,
                }
            }
        });
        provider(listed.await)
    }

    /// The engine's time, which need not be this host's.
    async fn time(&self) -> Result<SystemTime> {
        let asked = self.engine.ask("tell its time", soon(), |docker| async move { docker.info().await });
        // Podman's engine need not tell it.
        let told = provider(asked.await)?.system_time;
        Ok(told.and_then(|time| clock::parse(&time)).unwrap_or_else(SystemTime::now))
    }

    /// The lock that is held while the network of the pool is made, and, to read, while a container is.
    fn making(&self, pool: &PoolId) -> Arc<RwLock<()>> {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        making.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(making.entry(pool.clone()).or_default())
    }

    /// The lock that is held while one of this client's machines builds in a cache.
    fn building(&self, cache: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        building.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(building.entry(cache.to_owned()).or_default())
    }

    /// Makes the container and starts it, unless it is there and runs.
    async fn make(
        &self,
        offer: &Offer,
        request: &LaunchRequest,
        pool: Option<&PoolRequest>,
        image: &ImageFacts,
    ) -> Result<()> {
        let (name, owner) = (container::name(&request.launch), pool.map(|pool| pool.owner.as_str()));
        for _ in 0..CHOICES {
            // Two launches of this client do not choose the same accelerators.
            let choosing = match &offer.accelerator {
                Some(_) => Some(Arc::clone(&self.choosing).lock_owned().await),
                None => None,
            };
            let devices = match &offer.accelerator {
                Some(wanted) => {
                    let all = gpus::all(self.accelerators.as_ref()).await;
                    gpus::choose(request, wanted.count, &all, &self.containers(POOL.to_owned()).await?)?
                }
                None => Vec::new(),
            };
            let body = container::body(&self.options, offer, request, owner, image, &devices);
            let options = CreateContainerOptionsBuilder::new().name(&name).build();
            let (this, of) = (self.clone(), name.clone());
            let guard = self.making(&request.pool).read_owned().await;
            // In a task of its own: the engine makes it also when nobody waits for its answer any more, and nobody could know until when. It is started there too, because a
            // container that does not run has no lease by which it would end.
            let made = tokio::spawn(async move {
                let _held = (guard, choosing);
                let docker = this.engine.api().await?;
                match docker.create_container(Some(options), body).await {
                    Ok(_) if devices.is_empty() => this.start(&of).await.map(|()| Made::New),
                    Ok(_) => this.start_with_devices(&of).await,
                    Err(error) if fault(&error) == Fault::Busy => Ok(Made::There),
                    Err(error) => Err(this.engine.told("make a container", &error)),
                }
            });
            let made = made.await.unwrap_or_else(|error| {
                Err(Error::new(ErrorKind::Provider, "the making of a container was interrupted").with_source(error))
            });
            match made? {
                Made::New => return Ok(()),
                Made::There => {
                    // Its name is taken from the moment on in which somebody else begins to make it.
                    drop(self.making(&request.pool).write().await);
                    if offer.accelerator.is_none() {
                        return self.start(&name).await;
                    }
                    // Whoever made it may not have come to look whether another one has its accelerators.
                    if !matches!(self.start_with_devices(&name).await?, Made::Taken) {
                        return Ok(());
                    }
                }
                Made::Taken => {}
            }
            tracing::debug!(container = name, "its accelerators are another container's");
        }
        let message = format!("other containers took the accelerators that were free for machine {}", request.number);
        Err(Error::new(ErrorKind::Provider, message).temporary())
    }

    /// Starts a container unless another one has its accelerators, which a client that chose at the same time may have given to both. Then it is removed.
    async fn start_with_devices(&self, name: &str) -> Result<Made> {
        let started = async {
            for stage in [gpus::Stage::Made, gpus::Stage::Started] {
                if gpus::is_taken(name, &self.containers(POOL.to_owned()).await?, stage) {
                    return Ok(Made::Taken);
                }
                if stage == gpus::Stage::Made {
                    self.start(name).await?;
                }
            }
            Ok(Made::New)
        };
        let started = started.await;
        if !matches!(started, Ok(Made::New)) {
            self.remove(name).await?;
        }
        started
    }

    /// Starts the container, if it does not run.
    async fn start(&self, name: &str) -> Result<()> {
        let docker = self.engine.api().await?;
        let Err(error) = docker.start_container(name, None).await else { return Ok(()) };
        if fault(&error) != Fault::Gone {
            // Of no use, and what is not running has no lease.
            let _ = self.remove(name).await;
        }
        let told = self.engine.told("start a container", &error);
        Err(match container::start_hint(&reason(&error)) {
            Some(hint) => told.with_hint(hint),
            None => told,
        })
    }

    /// Ends a container at once, and removes it with what it wrote.
    async fn remove(&self, name: &str) -> Result<()> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let docker = self.engine.api().await?;
        match docker.remove_container(name, Some(options)).await {
            Ok(()) => Ok(()),
            Err(error) if fault(&error) == Fault::Gone => Ok(()),
            // The engine removes it already, because it has ended.
            Err(error) if fault(&error) == Fault::Busy && reason(&error).contains("in progress") => Ok(()),
            Err(error) => Err(self.engine.told("remove a container", &error)),
        }
    }

    fn prepared(&self) -> MutexGuard<'_, HashMap<PoolId, PoolRequest>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the network of a pool, unless it is there.
    async fn make_network(&self, pool: PoolRequest) -> Result<()> {
        let this = self.clone();
        let guard = self.making(&pool.pool).write_owned().await;
        // In a task of its own, as a container: who makes it again, or removes it, must find what the engine was asked for.
        let made = tokio::spawn(async move {
            let _alone = guard;
            network::make(&this.engine, &pool, soon()).await
        });
        provider(made.await.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Provider, "the making of a network was interrupted").with_source(error))
        }))
    }

    async fn launch_one(&self, offer: &Offer, request: &LaunchRequest) -> Result<Machine> {
        let image = provider(image::ensure(&self.engine, &self.options, &self.choosing).await)?;
        let pool = self.prepared().get(&request.pool).cloned();
        let mut made = self.make(offer, request, pool.as_ref(), &image).await;
        if let (Err(error), Some(pool)) = (&made, pool)
            && network::is_missing(error.message(), &request.pool)
        {
            // It was removed as one of a pool without a machine whose lease is over, and this pool has gone on.
            tracing::info!(pool = %request.pool, "the network of the pool is gone, and is made again");
            self.make_network(pool.clone()).await?;
            made = self.make(offer, request, Some(&pool), &image).await;
        }
        provider(made)?;
        let found = self.containers(container::launch_label(&request.launch)).await?;
        found.iter().find_map(container::machine).ok_or_else(|| {
            let name = container::name(&request.launch);
            Error::new(ErrorKind::Provider, format!("the container {name} was removed while it was started"))
        })
    }

    async fn terminate_one(&self, machine: &MachineId) -> Result<()> {
        // What has another name was not made here, and is nobody's to remove.
        if !container::is_ours(machine) {
            return Ok(());
        }
        self.ends.forget(machine);
        let builder = container::builder_of(machine);
        let (builder, node) = tokio::join!(self.remove(&builder), self.remove(machine.as_str()));
        provider(node.and(builder))
    }
}

#[async_trait]
impl Provider for Docker {
    fn name(&self) -> &str {
        "docker"
    }

    /// The engine, by its own id, and this machine: only here is it known whether a client lives.
    async fn identity(&self) -> Result<String> {
        let url = self.engine.url();
        let asked = self
            .engine
            .ask("tell its id", soon(), |docker| async move { Ok((docker.version().await?, docker.info().await?)) });
        let (version, info) = provider(asked.await)?;
        let engine = engine_identity(&version, &info).ok_or_else(|| {
            let message = format!("the Docker engine at {url} has no id, by which it would be found again");
            Error::new(ErrorKind::Provider, message)
        })?;
        Ok(format!("engine {engine} at {url}, for {}", client::machine()))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().outlives_client().keeper()
    }

    async fn offers(&self, requirements: &Requirements) -> Result<Vec<Offer>> {
        let info =
            provider(self.engine.ask("tell what it has", soon(), |docker| async move { docker.info().await }).await)?;
        if let Some(os) = info.os_type.filter(|os| os != "linux") {
            let message =
                format!("the Docker engine at {} runs containers of {os}, and nodes are Linux", self.engine.url());
            return Err(Error::new(ErrorKind::Provider, message).with_hint("switch the engine to Linux containers"));
        }
        let cpus = self.options.cpus.map_or(info.ncpu.unwrap_or(1), |cpus| cpus.floor().max(1.0) as i64);
        let total = info.mem_total.unwrap_or(0) as u64 >> 20;
        let memory = self.options.memory_mib.unwrap_or(total).min(total);
        // A host sold with 16 GiB has a little less.
        let memory_gib = u32::try_from((memory + (1 << 9)) >> 10).unwrap_or(u32::MAX);
        let place = info.name.unwrap_or_else(|| self.engine.url().to_owned());
        let mut plain = Offer::new(container::OFFER, place, u32::try_from(cpus).unwrap_or(u32::MAX), memory_gib);
        plain.architecture = info.architecture.as_deref().and_then(Architecture::of_linux);
        let mut offers = match &requirements.accelerator {
            None => vec![plain],
            Some(wanted) => gpus::offers(plain, wanted, self.accelerators.as_ref()).await,
        };
        offers.retain(|offer| requirements.are_met_by(offer));
        Ok(offers)
    }

    async fn prepare(&self, pool: &PoolRequest) -> Result<()> {
        self.prepared().insert(pool.pool.clone(), pool.clone());
        self.make_network(pool.clone()).await
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
        let report = |machine: &MachineId| {
            let found = containers.iter().find(|found| container::is_named(found, machine.as_str()));
            // What builds for it is of it, and no machine by itself.
            let rest = || containers.iter().any(|found| container::machine(found).is_some_and(|of| of.id == *machine));
            let report = match found {
                Some(found) => container::report(found, time),
                None if rest() => MachineReport::new(MachineState::Ending),
                None => MachineReport::new(MachineState::Gone),
            };
            self.ends.see(machine, report, now)
        };
        Ok(machines.iter().map(report).collect())
    }

    async fn connect(&self, machine: &Machine, _: &Place) -> Result<Box<dyn Remote>> {
        let containers = self.containers(container::launch_label(&machine.launch)).await?;
        let found = containers.iter().find(|found| container::is_named(found, machine.id.as_str()));
        match found.map(container::state) {
            Some(MachineState::Running) => match found.and_then(Node::of) {
                Some(node) => Ok(Box::new(OnNode::new(self.clone(), node))),
                None => Err(Error::new(
                    ErrorKind::Provider,
                    format!("the container {} was made by another version of this library", machine.id),
                )),
            },
            Some(MachineState::Starting) => {
                Err(Error::new(ErrorKind::Provider, format!("the container {} does not run yet", machine.id))
                    .temporary())
            }
            _ => Err(Error::new(ErrorKind::Provider, format!("the container {} is gone", machine.id))
                .with_hint("its lease ran out, or somebody removed it: `docker events --since 10m` says when")),
        }
    }

    async fn terminate(&self, machines: &[MachineId]) -> Vec<Result<()>> {
        terminate_each(machines, |machine| self.terminate_one(machine)).await
    }

    async fn teardown(&self, pool: &PoolId) -> Result<()> {
        let machines = self.list(pool).await?;
        try_join_all(machines.iter().map(|machine| self.terminate_one(&machine.id))).await?;
        provider(network::remove(&self.engine, pool, soon()).await)?;
        self.prepared().remove(pool);
        Ok(())
    }

    async fn list(&self, pool: &PoolId) -> Result<Vec<Machine>> {
        // What is being made will be there.
        drop(self.making(pool).write().await);
        let containers = self.containers(format!("{POOL}={pool}")).await?;
        // A builder is listed as its machine, and only where that is gone.
        let (builders, nodes): (Vec<_>, Vec<_>) = containers.iter().partition(|found| container::is_builder(found));
        let mut machines: Vec<_> = nodes.into_iter().chain(builders).filter_map(container::machine).collect();
        machines.sort_by(|a, b| (a.number, &a.id).cmp(&(b.number, &b.id)));
        machines.dedup_by(|a, b| a.id == b.id);
        Ok(machines)
    }

    /// Those with a container or a network at the engine, whoever's.
    async fn pools(&self) -> Result<Vec<PoolRecord>> {
        let (now, engine) = (SystemTime::now(), self.time().await?);
        let containers = self.containers(POOL.to_owned()).await?;
        let networks = provider(network::pools(&self.engine, now, engine, soon()).await)?;
        let parts = containers.iter().filter_map(|found| container::pool(found, now, engine));
        Ok(PoolRecord::of_parts(parts.chain(networks)))
    }
}

/// What tells an engine from others: its own id. Podman's makes up another one for each answer, and is told by its host and its folder.
fn engine_identity(version: &SystemVersion, info: &SystemInfo) -> Option<String> {
    let is_podman = version.components.iter().flatten().any(|component| component.name.contains("Podman"));
    match is_podman {
        true => Some(format!("Podman in {} on `{}`", info.docker_root_dir.as_ref()?, info.name.as_ref()?)),
        false => info.id.clone().filter(|id| !id.is_empty()),
    }
}

/// Who made a container.
enum Made {
    New,
    There,
    /// Nobody: another container has its accelerators.
    Taken,
}

/// The provider's own error for one of the way to the engine.
fn provider<T>(asked: Result<T>) -> Result<T> {
    asked.map_err(|error| {
        if error.kind() == ErrorKind::Provider {
            return error;
        }
        let told = Error::new(ErrorKind::Provider, error.message());
        let told = if error.status() == crate::error::ErrorStatus::Temporary { told.temporary() } else { told };
        match error.hint() {
            Some(hint) => told.with_hint(hint),
            None => told,
        }
    })
}

/// When an engine that cannot be reached is given up; who asks tries again.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// How often accelerators are chosen that another client chooses too.
const CHOICES: usize = 3;
/// Marks the processes of a machine.
const MARK: &str = "SKYWARD_MACHINE";

#[cfg(test)]
mod tests;
