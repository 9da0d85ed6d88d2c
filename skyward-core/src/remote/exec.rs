//! Machines that start a program with three streams, as containers and pods do.

mod byte_stream;
mod courier;
mod exit_scanner;
mod machine;

use std::fmt;
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::timeout;

#[cfg(feature = "ssh")]
pub(super) use courier::Courier;
pub use machine::ExecRemote;

use super::process::code_of;
use super::timing::EXIT_AFTER_INPUT;
use crate::error::{Error, ErrorKind, Result};

/// Starts programs on one machine: all that [`ExecRemote`] needs to be a
/// [`Remote`](super::Remote).
///
/// # Contract
///
/// - The program gets the arguments unchanged: no shell splits or expands them.
/// - Each stream carries bytes unchanged; the two outputs are not merged, so there is no terminal.
/// - Bytes that were written arrive, also when the streams are dropped right after that.
/// - Dropping the streams ends the program's input. It may end the program too, but no process in a
///   session of its own.
///
/// The machine needs Linux, a POSIX shell, `sh`, with the usual tools, and Python for byte streams.
///
/// # Examples
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> skyward_core::Result<()> {
/// # use skyward_core as skyward;
/// use std::time::Duration;
///
/// use async_trait::async_trait;
/// use skyward::remote::{Command, Exec, ExecRemote, ExecStreams, Remote};
///
/// /// A pod, reached by `kubectl`.
/// #[derive(Debug)]
/// struct Pod(String);
///
/// #[async_trait]
/// impl Exec for Pod {
///     fn describe(&self) -> String {
///         format!("pod {}", self.0)
///     }
///
///     async fn start(&self, argv: &[String], _within: Duration) -> skyward::Result<ExecStreams> {
///         let mut kubectl = tokio::process::Command::new("kubectl");
///         ExecStreams::spawn(kubectl.args(["exec", "-i", &self.0, "--"]).args(argv))
///     }
/// }
///
/// let pod = ExecRemote::new(Pod("trainer-0".into()));
/// let output = pod.run(&Command::script("nvidia-smi -L"), &|line| println!("{line}")).await?;
/// assert!(output.success());
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Exec: fmt::Debug + Send + Sync + 'static {
    /// The name of the machine for messages: `pod trainer-0`.
    fn describe(&self) -> String;

    /// Starts a program with these arguments; the first is its name. `within` is the time that is
    /// left for the whole operation: whoever tries again does so within it. After that time, the
    /// future is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] when the machine is known to be gone for good. The operation fails
    /// with the message, the status and the hint of any other error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the input of a program that was started.
    async fn start(&self, argv: &[String], within: Duration) -> Result<ExecStreams>;
}

/// A program that [`Exec::start`] has started: its input, its outputs, and its end.
pub struct ExecStreams {
    pub(super) stdin: Pin<Box<dyn AsyncWrite + Send>>,
    pub(super) stdout: Pin<Box<dyn AsyncRead + Send>>,
    pub(super) stderr: Pin<Box<dyn AsyncRead + Send>>,
    pub(super) exit: Pin<Box<dyn Future<Output = Result<i32>> + Send>>,
}

impl ExecStreams {
    /// Joins the streams of a program.
    ///
    /// `exit` returns the program's exit status, or why that is not known: the program could not be
    /// started, or the connection to the machine was lost. It is awaited only after both outputs
    /// have ended too early, to name the reason.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::remote::ExecStreams;
    ///
    /// let (stdin, _service) = tokio::io::duplex(64 << 10);
    /// let streams = ExecStreams::new(stdin, &b"output"[..], tokio::io::empty(), async { Ok(0) });
    /// ```
    pub fn new(
        stdin: impl AsyncWrite + Send + 'static,
        stdout: impl AsyncRead + Send + 'static,
        stderr: impl AsyncRead + Send + 'static,
        exit: impl Future<Output = Result<i32>> + Send + 'static,
    ) -> Self {
        Self { stdin: Box::pin(stdin), stdout: Box::pin(stdout), stderr: Box::pin(stderr), exit: Box::pin(exit) }
    }

    /// Starts a program of this host that reaches the machine, such as `kubectl exec`, `lxc exec`,
    /// `nsenter` or `srun`, with streams of its own and apart from the terminal's signals.
    ///
    /// When the streams are dropped, the program sees the end of its input; if it still runs ten
    /// seconds later, it is killed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Bootstrap`] when the program cannot be started.
    ///
    /// # Panics
    ///
    /// Outside a Tokio runtime.
    pub fn spawn(program: &mut tokio::process::Command) -> Result<Self> {
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = program.as_std().get_program().to_string_lossy().into_owned();
        let failed = || Error::new(ErrorKind::Bootstrap, format!("cannot run `{name}` on this host"));
        let mut child =
            program.process_group(0).kill_on_drop(true).spawn().map_err(|error| failed().with_source(error))?;
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else { return Err(failed()) };
        let (mut tell, told) = oneshot::channel();
        // The program gets time for what was written last, so a task of its own waits for its end.
        tokio::spawn(async move {
            tokio::select! {
                ended = child.wait() => drop(tell.send(ended)),
                () = tell.closed() => drop(timeout(EXIT_AFTER_INPUT, child.wait()).await),
            }
        });
        let exit = async move {
            match told.await {
                Ok(Ok(status)) => Ok(code_of(status)),
                Ok(Err(error)) => {
                    Err(Error::new(ErrorKind::Io, format!("cannot wait for `{name}`")).with_source(error))
                }
                Err(_) => Err(Error::new(ErrorKind::Io, format!("`{name}` was killed"))),
            }
        };
        Ok(Self::new(stdin, stdout, stderr, exit))
    }
}

impl fmt::Debug for ExecStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecStreams").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
