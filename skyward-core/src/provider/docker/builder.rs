//! Builder containers: each builds the environment of a node, and runs no payload. Only builders
//! can write to the cache that the nodes of several pools read.

use async_trait::async_trait;
use bollard::query_parameters::CreateContainerOptionsBuilder;
use tokio::sync::{OnceCell, OwnedMutexGuard};

use super::container::{self, Node};
use super::{Docker, MARK, cache, provider};
use crate::error::{Error, ErrorKind, Result};
use crate::ids::MachineId;
use crate::remote::docker::{Container, Fault, fault};
use crate::remote::{ByteStream, Command, CommandOutput, OnLine, Remote};

/// A node's container, which reads the cache that pools share.
#[derive(Debug)]
pub(super) struct OnNode {
    docker: Docker,
    container: Container,
    node: Node,
}

impl OnNode {
    pub(super) fn new(docker: Docker, node: Node) -> Self {
        let container = reached(&docker, &node, &container::name(&node.launch));
        Self { docker, container, node }
    }
}

#[async_trait]
impl Remote for OnNode {
    fn describe(&self) -> String {
        self.container.describe()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        self.container.run(command, on_line).await
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.container.put(path, bytes, mode).await
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        self.container.open(socket).await
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        if !self.docker.options.shares_cache() {
            return Ok(None);
        }
        let turn = self.docker.building(&cache::volume(&self.node.image)).lock_owned().await;
        let name = container::builder_of(&MachineId::new(container::name(&self.node.launch)));
        let container = reached(&self.docker, &self.node, &name);
        let (docker, node) = (self.docker.clone(), self.node.clone());
        Ok(Some(Box::new(Builder { docker, container, node, name, made: OnceCell::new(), _turn: turn })))
    }
}

/// A container that builds for a node. The first operation creates it; dropping this value removes
/// it, and the end of its node does at the latest.
#[derive(Debug)]
struct Builder {
    docker: Docker,
    container: Container,
    node: Node,
    name: String,
    made: OnceCell<()>,
    /// Only one of this client's machines builds in a cache at a time.
    _turn: OwnedMutexGuard<()>,
}

impl Builder {
    async fn container(&self) -> Result<&Container> {
        self.made.get_or_try_init(|| self.make()).await?;
        Ok(&self.container)
    }

    async fn make(&self) -> Result<()> {
        let body = container::builder_body(&self.docker.options, &self.node);
        let (docker, name) = (self.docker.clone(), self.name.clone());
        let guard = self.docker.making(&self.node.pool).read_owned().await;
        // In a task of its own, as for a node's container: a later removal must find the
        // requested container.
        let made = tokio::spawn(async move {
            let _held = guard;
            // An interrupted start may have left a container in an unknown state.
            docker.remove(&name).await?;
            let options = CreateContainerOptionsBuilder::new().name(&name).build();
            let api = docker.engine.api().await?;
            match api.create_container(Some(options), body).await {
                Ok(_) => docker.start(&name).await,
                Err(error) if fault(&error) == Fault::Busy => {
                    Err(docker.engine.failed("create a container", &error).temporary())
                }
                Err(error) => Err(docker.engine.failed("create a container", &error)),
            }
        });
        let made = made.await.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Provider, "creating a container was interrupted").with_source(error))
        });
        provider(made)
    }
}

#[async_trait]
impl Remote for Builder {
    fn describe(&self) -> String {
        self.container.describe()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        self.container().await?.run(command, on_line).await
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.container().await?.put(path, bytes, mode).await
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        self.container().await?.open(socket).await
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        // Without a runtime, the container ends with its node, or when the node's lease expires.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (docker, pool, name) = (self.docker.clone(), self.node.pool.clone(), std::mem::take(&mut self.name));
        let made = self.made.initialized();
        runtime.spawn(async move {
            // Waits until a container that is being created exists.
            if !made {
                drop(docker.making(&pool).write().await);
            }
            if let Err(error) = docker.remove(&name).await {
                tracing::warn!(container = name, %error, "a builder container could not be removed; it stays until its node ends");
            }
        });
    }
}

fn reached(docker: &Docker, node: &Node, name: &str) -> Container {
    let mark = container::name(&node.launch);
    let reached = Container::of(docker.engine.clone(), name).env(MARK, &mark);
    if node.image.user.is_empty() { reached } else { reached.user(&node.image.user) }
}
