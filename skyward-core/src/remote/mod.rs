//! Reach one machine: run a command, put bytes, open a byte stream.

mod digest;
#[cfg(feature = "docker")]
pub(crate) mod docker;
mod exec;
mod lines;
mod process;
pub(crate) mod shell;
#[cfg(feature = "ssh")]
pub mod ssh;
mod timing;
mod unread;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(feature = "docker")]
pub use docker::Container;
pub use exec::{Exec, ExecRemote, ExecStreams};
pub use process::Process;
pub(crate) use shell::quoted;
#[cfg(feature = "ssh")]
pub use ssh::Ssh;

use crate::error::Result;

/// Gets each line that a command writes, without the line end.
pub type OnLine<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// A byte stream to a Unix socket on the machine.
pub type ByteStream = Box<dyn ReadWrite>;

/// Reads and writes bytes.
pub trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

/// Reaches one machine.
///
/// # Contract
///
/// - All paths are absolute paths on the machine.
/// - Dropping the future of `run` ends the command and its children.
/// - `put` is atomic: a reader sees the old content or the new content, never a part.
/// - Every operation ends within its deadline.
///
/// No method has a default: a wrapper that forgot to forward one would silently change what the
/// machine does.
#[async_trait]
pub trait Remote: fmt::Debug + Send + Sync + 'static {
    /// The name of the machine for messages: `this host`, `alice@gpu1:22`.
    fn describe(&self) -> String;

    /// Runs a command to its end. `on_line` gets each line of its output as it arrives.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Bootstrap`](crate::error::ErrorKind::Bootstrap) when the command cannot be
    /// started, [`ErrorKind::Timeout`](crate::error::ErrorKind::Timeout) when its deadline passes.
    /// A command that fails is no error here: see [`CommandOutput::status`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the command and its children.
    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput>;

    /// Writes a file, and creates its parent folders. `mode` has the file's permissions.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Bootstrap`](crate::error::ErrorKind::Bootstrap) with the path and the cause.
    ///
    /// # Cancel safety
    ///
    /// The file exists completely or not at all.
    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()>;

    /// Connects to a Unix socket.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::error::ErrorKind::Io), temporary, when nothing listens there;
    /// [`ErrorKind::NotFound`](crate::error::ErrorKind::NotFound) when the machine is known to be
    /// gone for good.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no connection.
    async fn open(&self, socket: &str) -> Result<ByteStream>;

    /// The place that builds what machines of several pools share, where this machine can only read
    /// it. The place has the machine's folder and the same cache, runs no payload, and ends when
    /// the value is dropped. The call waits while another machine of this client builds in the same
    /// cache.
    ///
    /// Returns `None` for a machine that builds for itself.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// Starts nothing: the first operation on the place creates it.
    async fn builder(&self) -> Result<Option<Box<dyn Remote>>>;
}

/// A command line with its environment and deadline. `Debug` shows neither the values of variables
/// nor the input, which may be secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment variables in addition to the machine's.
    pub env: BTreeMap<String, String>,
    /// The bytes for the command's standard input.
    pub stdin: Bytes,
    /// How long the command may run.
    pub deadline: Duration,
}

impl Command {
    /// Creates a command with a deadline of one minute.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            stdin: Bytes::new(),
            deadline: Duration::from_secs(60),
        }
    }

    /// Creates a command that runs a script with `sh`, as with `set -eu`. Variables by which a user
    /// changes what shells and their tools do, such as `CDPATH`, `TMOUT` and `GREP_OPTIONS`, and
    /// functions that bash exports, have no effect on the script.
    pub fn script(script: impl Into<String>) -> Self {
        Self::new(shell::strict(&script.into()))
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Sets the bytes for the command's standard input.
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

/// The exit status of a command, and the last part of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandOutput {
    /// The command's exit status; `128 + signal` for a signal, as in a shell.
    pub status: i32,
    /// Standard output, the last 256 KiB.
    pub stdout: String,
    /// Standard error, the last 256 KiB.
    pub stderr: String,
}

impl CommandOutput {
    /// Creates the output of a command.
    pub fn new(status: i32, stdout: impl Into<String>, stderr: impl Into<String>) -> Self {
        Self { status, stdout: stdout.into(), stderr: stderr.into() }
    }

    /// Whether the command exited with 0.
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
