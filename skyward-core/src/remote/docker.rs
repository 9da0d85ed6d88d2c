//! A container, reached through commands that its engine starts in it.

mod engine;
mod streams;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::ExecConfig;
use tokio::time::{Instant, timeout_at};

pub(crate) use engine::{Engine, Fault, fault, reason};

use super::exec::{Exec, ExecRemote, ExecStreams};
use super::{ByteStream, Command, CommandOutput, OnLine, Remote};
use crate::error::{Error, ErrorKind, Result};

/// A running container, reached through its engine. Its image needs no daemon, only a POSIX shell
/// with the usual tools, and Python for byte streams.
///
/// It is an [`ExecRemote`], whose programs the engine starts. Each operation has a connection of its
/// own. While the engine cannot be reached, for instance during a restart, the operation is retried
/// until its deadline.
#[derive(Clone)]
pub struct Container(ExecRemote<Programs>);

/// Starts programs in a container.
#[derive(Clone)]
struct Programs {
    engine: Engine,
    id: String,
    user: String,
    env: Vec<String>,
}

impl Container {
    /// Creates a connection to a container, by its id or name, of the engine that `DOCKER_HOST`
    /// names, or else of this host's engine.
    pub fn new(id: impl Into<String>) -> Self {
        Self::of(Engine::new(None), id)
    }

    pub(crate) fn of(engine: Engine, id: impl Into<String>) -> Self {
        Self(ExecRemote::new(Programs { engine, id: id.into(), user: String::new(), env: Vec::new() }))
    }

    /// Runs commands as this user, in the engine's notation: `user`, `uid:gid`. Default: the
    /// container's user.
    #[must_use]
    pub fn user(self, user: impl Into<String>) -> Self {
        let user = user.into();
        Self(ExecRemote::new(Programs { user, ..self.0.exec().clone() }))
    }

    /// Sets an environment variable for every command. The engine may report it, so it must not be
    /// a secret.
    #[must_use]
    pub fn env(self, key: &str, value: &str) -> Self {
        let mut programs = self.0.exec().clone();
        programs.env.push(format!("{key}={value}"));
        Self(ExecRemote::new(programs))
    }
}

#[async_trait]
impl Remote for Container {
    fn describe(&self) -> String {
        self.0.describe()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        self.0.run(command, on_line).await
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.0.put(path, bytes, mode).await
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        self.0.open(socket).await
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        self.0.builder().await
    }
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Container({:?})", self.0)
    }
}

#[async_trait]
impl Exec for Programs {
    fn describe(&self) -> String {
        format!("container {}", self.id)
    }

    async fn start(&self, argv: &[String], within: Duration) -> Result<ExecStreams> {
        let (engine, deadline) = (&self.engine, Instant::now() + within);
        let config = ExecConfig {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            user: Some(self.user.clone()),
            env: Some(self.env.clone()),
            cmd: Some(argv.to_vec()),
            ..ExecConfig::default()
        };
        let create = |docker: bollard::Docker| {
            let config = config.clone();
            async move { docker.create_exec(&self.id, config).await }
        };
        let made = engine.ask("start a command", deadline, create).await?;
        let options = StartExecOptions { detach: false, tty: false, output_capacity: Some(READ) };
        // Not repeated: it may have been started.
        let started = engine.api().await?.start_exec(&made.id, Some(options));
        match timeout_at(deadline, started).await {
            Ok(Ok(StartExecResults::Attached { output, input })) => Ok(streams::of(output, input)),
            Ok(Ok(StartExecResults::Detached)) => {
                let message = format!("the Docker engine at {} started a command without its streams", engine.url());
                Err(Error::new(ErrorKind::Protocol, message))
            }
            Ok(Err(error)) => Err(engine.failed("start a command", &error)),
            Err(_) => {
                let message = format!("the Docker engine at {} did not start a command in time", engine.url());
                Err(Error::new(ErrorKind::Timeout, message).temporary())
            }
        }
    }
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.id, self.engine.url())
    }
}

/// The size of one read: two of the engine's messages.
const READ: usize = 64 << 10;

#[cfg(test)]
pub(crate) mod tests;
