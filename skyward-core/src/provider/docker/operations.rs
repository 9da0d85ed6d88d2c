//! What is done in the engine for a pool: containers are listed, created, started and removed, and
//! networks are created. A creation that has begun is finished, also when nobody waits for it any
//! more.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use bollard::errors::Error as Answer;
use bollard::models::ContainerSummary;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
};
use tokio::sync::RwLock;

use super::container::{self, POOL};
use super::image::{self, ImageFacts};
use super::{Docker, clock, gpus, network, provider, shell, soon};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{MachineId, PoolId};
use crate::provider::local::ACCELERATORS_TAKEN;
use crate::provider::{LaunchRequest, Machine, Offer, PoolRequest};
use crate::remote::docker::{Fault, fault, reason};

impl Docker {
    /// The containers with this label, including stopped ones.
    pub(super) async fn containers(&self, label: String) -> Result<Vec<ContainerSummary>> {
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

    /// The engine's time, which may differ from this host's.
    pub(super) async fn time(&self) -> Result<SystemTime> {
        let asked = self.engine.ask("report its time", soon(), |docker| async move { docker.info().await });
        // Podman's engine may leave it out.
        let time = provider(asked.await)?.system_time;
        Ok(time.and_then(|time| clock::parse(&time)).unwrap_or_else(SystemTime::now))
    }

    /// How long a container lived that has ended and is still there. The engine removes it soon, so
    /// that it may be gone when it is asked about.
    pub(super) async fn lived(&self, found: &ContainerSummary) -> Option<Duration> {
        let name = container::own_name(found)?;
        let asked = self.engine.ask("report the end of a container", soon(), |docker| async move {
            docker.inspect_container(name, None).await
        });
        container::lived(found, &asked.await.ok()?.state?)
    }

    /// Launches a machine, unless it exists.
    pub(super) async fn launch_one(&self, offer: &Offer, request: &LaunchRequest) -> Result<Machine> {
        let image = provider(image::ensure(&self.engine, &self.options, &self.choosing).await)?;
        let mut made = self.make(offer, request, &image).await;
        if let Err(error) = &made
            && network::is_missing(error.message(), &request.pool)
        {
            // The network was removed as one of a pool without machines whose lease was over, but
            // the pool has continued.
            tracing::info!(pool = %request.pool, "the network of the pool is gone; it is created again");
            let LaunchRequest { pool, owner, lease, labels, .. } = request.clone();
            self.make_network(PoolRequest::new(pool, lease).owner(owner).labels(labels)).await?;
            made = self.make(offer, request, &image).await;
        }
        provider(made)?;
        let found = self.containers(container::launch_label(&request.launch)).await?;
        found.iter().find_map(container::machine).ok_or_else(|| {
            let name = container::name(&request.launch);
            Error::new(ErrorKind::Provider, format!("the container {name} was removed while it was being started"))
        })
    }

    /// Ends the container of a machine and the container that builds for it.
    pub(super) async fn terminate_one(&self, machine: &MachineId) -> Result<()> {
        // A container with another name is not this provider's, and must not be removed.
        if !container::is_ours(machine) {
            return Ok(());
        }
        self.ends.forget(machine);
        let builder = container::builder_of(machine);
        let (builder, node) = tokio::join!(self.remove(&builder), self.remove(machine.as_str()));
        provider(node.and(builder))
    }

    /// Creates the network of a pool, unless it exists.
    pub(super) async fn make_network(&self, pool: PoolRequest) -> Result<()> {
        let this = self.clone();
        let guard = self.making(&pool.pool).write_owned().await;
        // In a task of its own, as for a container: later calls that create or remove the network
        // must find the one that was requested.
        let made = tokio::spawn(async move {
            let _alone = guard;
            network::make(&this.engine, &pool, soon()).await
        });
        provider(made.await.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Provider, "creating a network was interrupted").with_source(error))
        }))
    }

    /// The lock that is held for writing while the pool's network is created, and for reading while
    /// a container is.
    pub(super) fn making(&self, pool: &PoolId) -> Arc<RwLock<()>> {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        making.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(making.entry(pool.clone()).or_default())
    }

    /// Creates the container and starts it, unless it runs already.
    async fn make(&self, offer: &Offer, request: &LaunchRequest, image: &ImageFacts) -> Result<()> {
        let name = container::name(&request.launch);
        for _ in 0..CHOICES {
            // So that two launches of this client do not choose the same accelerators.
            let choosing = match &offer.accelerator {
                Some(_) => Some(Arc::clone(&self.choosing).lock_owned().await),
                None => None,
            };
            let devices = match &offer.accelerator {
                Some(wanted) => {
                    let all = gpus::all(self.accelerator.as_ref()).await;
                    gpus::choose(request, wanted.count, &all, &self.containers(POOL.to_owned()).await?)?
                }
                None => Vec::new(),
            };
            let body = container::body(&self.options, offer, request, image, &devices);
            let options = CreateContainerOptionsBuilder::new().name(&name).build();
            let (this, of) = (self.clone(), name.clone());
            let guard = self.making(&request.pool).read_owned().await;
            // In a task of its own: the engine creates the container also when nobody waits for its
            // answer any more, and `list` has to wait for it. The task also starts the container,
            // because one that does not run has no lease to end it.
            let made = tokio::spawn(async move {
                let _held = (guard, choosing);
                let docker = this.engine.api().await?;
                let created = docker.create_container(Some(options), body).await;
                if created.is_ok() && this.has_shell.get().is_none() {
                    this.check_shell(&of).await?;
                }
                match created {
                    Ok(_) if devices.is_empty() => this.start(&of).await.map(|()| Made::New),
                    Ok(_) => this.start_with_devices(&of).await,
                    Err(error) if fault(&error) == Fault::Busy => Ok(Made::There),
                    Err(error) => Err(this.engine.failed("create a container", &error).with_context("container", of)),
                }
            });
            let made = made.await.unwrap_or_else(|error| {
                Err(Error::new(ErrorKind::Provider, "creating a container was interrupted").with_source(error))
            });
            match made? {
                Made::New => return Ok(()),
                Made::There => {
                    // The name is taken from the moment when another caller begins to create the
                    // container.
                    drop(self.making(&request.pool).write().await);
                    if offer.accelerator.is_none() {
                        return self.start(&name).await;
                    }
                    // That caller may not have checked yet whether another container has its
                    // accelerators.
                    if !matches!(self.start_with_devices(&name).await?, Made::Taken) {
                        return Ok(());
                    }
                }
                Made::Taken => {}
            }
            tracing::debug!(container = name, "another container has its accelerators");
        }
        let message = format!("other containers took the accelerators that were free for machine {}", request.number);
        Err(Error::new(ErrorKind::Provider, message).temporary().with_hint(ACCELERATORS_TAKEN))
    }

    /// Removes a container that has no shell, and explains it.
    async fn check_shell(&self, name: &str) -> Result<()> {
        let checked = shell::check(&self.engine, name, &self.options.image).await;
        match &checked {
            Ok(()) => drop(self.has_shell.set(())),
            Err(_) => self.remove(name).await?,
        }
        checked
    }

    /// Starts a container, unless another container has one of its accelerators (another client
    /// that chose at the same time may have given it to both). In that case, removes this
    /// container.
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
    pub(super) async fn start(&self, name: &str) -> Result<()> {
        let docker = self.engine.api().await?;
        let Err(error) = docker.start_container(name, None).await else { return Ok(()) };
        if fault(&error) != Fault::Gone {
            // It cannot be used, and a container that does not run has no lease to end it.
            let _ = self.remove(name).await;
        }
        let failed = self.engine.failed("start a container", &error).with_context("container", name);
        Err(match container::start_hint(&reason(&error)) {
            Some(hint) => failed.with_hint(hint),
            None => failed,
        })
    }

    /// Ends a container at once, and removes it with its anonymous volumes.
    pub(super) async fn remove(&self, name: &str) -> Result<()> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let docker = self.engine.api().await?;
        match docker.remove_container(name, Some(options)).await {
            Ok(()) => Ok(()),
            Err(error) if fault(&error) == Fault::Gone => Ok(()),
            // The container has ended, and the engine is already removing it.
            Err(error) if fault(&error) == Fault::Busy && reason(&error).contains("in progress") => Ok(()),
            Err(error) => Err(self.engine.failed("remove a container", &error).with_context("container", name)),
        }
    }
}

/// What came of creating a container.
enum Made {
    New,
    There,
    /// It was removed: another container has its accelerators.
    Taken,
}

/// How often accelerators are chosen again after another client took them.
const CHOICES: usize = 3;
