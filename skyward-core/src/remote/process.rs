//! The client's own host.

mod inherited;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin};
use tokio::time::{Instant, timeout, timeout_at};

use super::lines::Lines;
use super::shell::shown;
use super::timing::{CHILD_EXIT, LEAST_PUT, OUTPUT_AFTER_EXIT, SOCKET_REACHED};
use super::{ByteStream, Command, CommandOutput, OnLine, Remote};
use crate::error::{Error, ErrorKind, Result};

/// The client's own host, where commands are processes.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> skyward_core::Result<()> {
/// # use skyward_core as skyward;
/// use skyward::remote::{Command, Process, Remote};
///
/// let output = Process::new().run(&Command::script("echo hello"), &|_| {}).await?;
/// assert_eq!(output.status, 0);
/// assert_eq!(output.stdout.as_str(), "hello\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Process {
    env: BTreeMap<String, String>,
    folder: Option<PathBuf>,
    inherited: Vec<String>,
}

impl Process {
    /// Creates a connection to this host. Commands run in the client's working folder, and get
    /// those of the client's environment variables that a program needs to run and to install
    /// packages. The guide's page on pools lists them; keys and tokens are not among them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an environment variable for every command. A command's own variables take precedence.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Passes these variables of the client's environment on, where they are set. A `*` at the end
    /// of a name stands for any rest.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> skyward_core::Result<()> {
    /// # use skyward_core as skyward;
    /// use skyward::remote::{Command, Process, Remote};
    ///
    /// let cargo = Command::script("echo ${CARGO_PKG_NAME-none}");
    /// let output = Process::new().run(&cargo, &|_| {}).await?;
    /// assert_eq!(output.stdout, "none\n");
    ///
    /// let output = Process::new().inherit(["CARGO_*"]).run(&cargo, &|_| {}).await?;
    /// assert_eq!(output.stdout, "skyward-core\n");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn inherit(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.inherited.extend(names.into_iter().map(Into::into));
        self
    }

    /// Runs every command in this folder. When the folder is gone, no command can be started any
    /// more.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    fn spawn(&self, command: &Command) -> Result<Child> {
        let program = command.argv.first().ok_or_else(|| Error::new(ErrorKind::Bootstrap, "the command is empty"))?;
        let mut process = tokio::process::Command::new(program);
        process
            .args(&command.argv[1..])
            .env_clear()
            .envs(inherited::inherited(&self.inherited))
            .envs(&self.env)
            .envs(&command.env)
            .stdin(if command.stdin.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = &self.folder {
            process.current_dir(folder);
        }
        process.spawn().map_err(|error| {
            let folder_gone = self.folder.as_ref().filter(|folder| !folder.is_dir());
            let message = match folder_gone {
                Some(folder) => {
                    format!("cannot run `{program}`: the folder {} of the machine is gone", folder.display())
                }
                None => format!("cannot run `{program}` on this host"),
            };
            let busy = matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::OutOfMemory);
            let error = Error::new(ErrorKind::Bootstrap, message).with_source(error);
            if busy { error.temporary() } else { error }
        })
    }
}

#[async_trait]
impl Remote for Process {
    fn describe(&self) -> String {
        "this host".to_owned()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        let deadline = Instant::now() + command.deadline;
        let mut child = self.spawn(command)?;
        // Declared after the child, and so dropped before it: the group is killed while its leader
        // is not yet reaped, when its id cannot name another group.
        let mut group = Group(child.id());
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut out, mut err) = (Lines::new(on_line), Lines::new(on_line));
        let exited = {
            let exit = async {
                let status = child.wait().await;
                group.disarm();
                status
            };
            let output = async {
                tokio::join!(feed(stdin, &command.stdin), read(&mut out, stdout), read(&mut err, stderr));
            };
            tokio::pin!(exit, output);
            let both = async {
                tokio::select! {
                    status = &mut exit => {
                        // A daemon that the command left may hold the pipes open for ever. The
                        // command's own output is in them already.
                        let _ = timeout(OUTPUT_AFTER_EXIT, &mut output).await;
                        status
                    }
                    () = &mut output => exit.await,
                }
            };
            timeout_at(deadline, both).await
        };
        out.finish();
        err.finish();
        match exited {
            Ok(Ok(status)) => Ok(CommandOutput::new(code_of(status), out.text(), err.text())),
            Ok(Err(error)) => {
                Err(Error::new(ErrorKind::Bootstrap, format!("cannot wait for `{}`", command.argv[0]))
                    .with_source(error))
            }
            Err(_) => {
                drop(group);
                let _ = timeout(CHILD_EXIT, child.wait()).await;
                let last = err.last_line().or(out.last_line()).unwrap_or("nothing").to_owned();
                Err(Error::new(
                    ErrorKind::Timeout,
                    format!("`{}` did not end within {:?} and was killed", shown(&command.argv), command.deadline),
                )
                .with_context("last line", last))
            }
        }
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let (target, bytes) = (PathBuf::from(path), bytes.to_vec());
        let written = tokio::task::spawn_blocking(move || replace(&target, &bytes, mode));
        let failed = |why: String| Error::new(ErrorKind::Bootstrap, format!("cannot write {path}: {why}"));
        match timeout(LEAST_PUT, written).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(failed(error.to_string())),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("it took longer than {LEAST_PUT:?}")).temporary()),
        }
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let failed = |why: String| Error::new(ErrorKind::Io, format!("cannot connect to {socket}: {why}")).temporary();
        match timeout(SOCKET_REACHED, UnixStream::connect(socket)).await {
            Ok(Ok(stream)) => {
                // A larger buffer needs fewer turns for large values. Without it the stream is only
                // slower.
                let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER);
                Ok(Box::new(stream))
            }
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("no answer within {SOCKET_REACHED:?}"))),
        }
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}

/// Kills a process group when dropped.
struct Group(Option<u32>);

impl Group {
    fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let leader = self.0.take().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(leader) = leader {
            // A group that is gone already has ended as well.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

async fn read(lines: &mut Lines<'_>, pipe: Option<impl AsyncRead + Unpin>) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = vec![0; CHUNK];
    while let Ok(count @ 1..) = pipe.read(&mut chunk).await {
        lines.push(&chunk[..count]);
    }
}

async fn feed(stdin: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut stdin) = stdin {
        // A command need not read all of its input.
        let _ = stdin.write_all(bytes).await;
    }
}

fn replace(target: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let folder = target.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(folder)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{:016x}", rand::random::<u64>()));
    let written = std::fs::write(&temporary, bytes)
        .and_then(|()| std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(mode)))
        .and_then(|()| std::fs::rename(&temporary, target));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// The status as a shell reports it.
pub(super) fn code_of(status: ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

const CHUNK: usize = 16 << 10;
const SEND_BUFFER: usize = 1 << 20;

#[cfg(test)]
mod tests;
