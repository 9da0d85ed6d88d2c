//! Reach one machine: run a command, put bytes, open a byte stream.

#[cfg(feature = "docker")]
pub(crate) mod docker;
mod lines;
mod process;
#[cfg(feature = "ssh")]
pub mod ssh;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "docker")]
pub use docker::Container;
pub use process::Process;
#[cfg(feature = "ssh")]
pub use ssh::Ssh;

use crate::error::Result;

/// Gets each line that a command writes, without its end.
pub type OnLine<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// A byte stream to a Unix socket on the machine.
pub type ByteStream = Box<dyn DuplexStream>;

/// Reads and writes bytes.
pub trait DuplexStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> DuplexStream for T {}

/// Reaches one machine.
///
/// # Contract
///
/// - All paths are absolute paths on the machine.
/// - Dropping the future of `run` ends the command and its children.
/// - `put` is atomic: a reader sees the old content or the new, never a part.
/// - Every operation ends within its deadline.
///
/// No method has a default: a wrapper that does not forward one would change what the machine does without a word.
#[async_trait]
pub trait Remote: fmt::Debug + Send + Sync + 'static {
    /// What it reaches, for messages: `this host`, `alice@gpu1:22`.
    fn describe(&self) -> String;

    /// Runs a command to its end. Each line of its output is handed to `on_line` as it comes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Bootstrap`](crate::error::ErrorKind::Bootstrap) when it cannot be started, [`ErrorKind::Timeout`](crate::error::ErrorKind::Timeout) when its deadline passes. A command that
    /// fails is not an error here: see [`CommandOutput::status`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the command and its children.
    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput>;

    /// Writes a file, with its parent folders.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Bootstrap`](crate::error::ErrorKind::Bootstrap) with the path and the cause.
    ///
    /// # Cancel safety
    ///
    /// The file is there whole or not at all.
    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()>;

    /// Connects to a Unix socket.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::error::ErrorKind::Io), temporary, when nothing listens there; [`ErrorKind::NotFound`](crate::error::ErrorKind::NotFound) when the machine is known to
    /// be gone for good.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no connection.
    async fn open(&self, socket: &str) -> Result<ByteStream>;

    /// The place that builds what machines of several pools share, where this machine can only read it. It has the machine's folder and sees the same cache, it runs no payload, and
    /// it ends when the value is dropped. The call waits while another machine of this client builds in the same cache.
    ///
    /// `None`: the machine builds for itself.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// Starts nothing: the place is made by the first operation on it.
    async fn builder(&self) -> Result<Option<Box<dyn Remote>>>;
}

/// A command line with its environment and deadline. Its `Debug` shows neither the values of variables nor what is written to it: they may be secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Variables beside those that the machine has.
    pub env: BTreeMap<String, String>,
    /// What is written to its standard input.
    pub stdin: Bytes,
    /// How long it may run.
    pub deadline: Duration,
}

impl Command {
    /// A command with a deadline of one minute.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            stdin: Bytes::new(),
            deadline: Duration::from_secs(60),
        }
    }

    /// A script for `sh -eu`.
    pub fn script(script: impl Into<String>) -> Self {
        Self::new(["sh".to_owned(), "-euc".to_owned(), script.into()])
    }

    /// Adds a variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Sets standard input.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Bytes::from(bytes.into());
        self
    }

    /// Sets the deadline, to [`Limits::LONGEST`](crate::spec::Limits::LONGEST) at most.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline.min(crate::spec::Limits::LONGEST);
        self
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("argv", &self.argv)
            .field("env", &self.env.keys())
            .field("stdin", &format_args!("{} bytes", self.stdin.len()))
            .field("deadline", &self.deadline)
            .finish()
    }
}

/// How a command ended, and the last part of what it wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandOutput {
    /// Its exit status; a signal is `128 + signal`, as in a shell.
    pub status: i32,
    /// Standard output, the last 256 KiB.
    pub stdout: String,
    /// Standard error, the last 256 KiB.
    pub stderr: String,
}

impl CommandOutput {
    /// What a command ended with.
    pub fn new(status: i32, stdout: impl Into<String>, stderr: impl Into<String>) -> Self {
        Self { status, stdout: stdout.into(), stderr: stderr.into() }
    }

    /// Whether it exited with 0.
    pub fn success(&self) -> bool {
        self.status == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_neither_values_nor_input() {
        let command = Command::script("env").env("TOKEN", "hunter2").stdin("hunter3");
        let shown = format!("{command:?}");
        assert!(shown.contains("TOKEN") && shown.contains("7 bytes") && !shown.contains("hunter"), "{shown}");
    }
}
