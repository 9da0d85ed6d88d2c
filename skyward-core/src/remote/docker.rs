//! A container, reached through commands that its engine starts in it.

mod engine;
mod exec;
mod exit_scanner;

use std::fmt;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

pub(crate) use engine::{Engine, Fault, fault, reason};

use self::exec::{Exec, ExecStream, Written};
use self::exit_scanner::ExitScanner;
use super::lines::{Lines, shown};
use super::{ByteStream, Command, CommandOutput, OnLine, Remote};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::hex;

/// A running container, reached through its engine. Its image needs no daemon, only a POSIX shell
/// with the usual tools, and Python for byte streams.
///
/// A command gets its environment variables and its input through standard input, so that no secret
/// is on a command line or in what the engine reports about a container. Each operation has a
/// connection of its own. While the engine cannot be reached, for instance during a restart, the
/// operation is retried until its deadline.
///
/// [`open`](Remote::open) starts a small program in the container that connects its own input and
/// output with the socket. It runs with the container's Python, or with the Python of an
/// environment that a pool has built there.
#[derive(Clone)]
pub struct Container {
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
        Self { engine, id: id.into(), user: String::new(), env: Vec::new() }
    }

    /// Runs commands as this user, in the engine's notation: `user`, `uid:gid`. Default: the
    /// container's user.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = user.into();
        self
    }

    /// Sets an environment variable for every command. The engine may report it, so it must not be
    /// a secret.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push(format!("{key}={value}"));
        self
    }

    async fn start(&self, argv: Vec<String>, deadline: Instant) -> Result<Exec> {
        Exec::start(&self.engine, &self.id, &self.user, self.env.clone(), argv, deadline).await
    }

    /// Turns an error of the connection to the container into the error of an operation on the
    /// machine.
    fn failed(&self, error: Error, kind: ErrorKind, what: &str) -> Error {
        let kind = if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Timeout) { error.kind() } else { kind };
        let message = format!("cannot {what} in {}: {}", self.describe(), error.message());
        error.with_kind(kind).with_message(message)
    }

    /// Runs a script that needs none of the machine's variables.
    async fn small(&self, script: &str, args: &[&str], stdin: &[u8], deadline: Duration) -> Result<CommandOutput> {
        let head = ["sh", "-euc", script, "skyward"];
        let command = Command::new(head.iter().chain(args).copied()).stdin(stdin.to_vec()).deadline(deadline);
        self.run(&command, &|_| {}).await
    }
}

#[async_trait]
impl Remote for Container {
    fn describe(&self) -> String {
        format!("container {}", self.id)
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        let deadline = Instant::now() + command.deadline;
        let (mut out, mut err) = (Lines::new(on_line), Lines::new(on_line));
        let what = || format!("run `{}`", shown(&command.argv));
        if command.argv.is_empty() {
            return Err(Error::new(ErrorKind::Bootstrap, "the command is empty"));
        }
        let token = format!("skyward{:032x}", rand::random::<u128>());
        let mut argv: Vec<_> = ["sh", "-c", COURIER, "skyward", &token].map(str::to_owned).into();
        argv.push(command.stdin.len().to_string());
        argv.extend(command.argv.iter().cloned());
        let ended = async {
            let mut exec =
                self.start(argv, deadline).await.map_err(|error| self.failed(error, ErrorKind::Bootstrap, &what()))?;
            let mut head = variables(command, &token)?;
            head.push_str(&token);
            head.push('\n');
            let mut courier = Courier {
                exec: &mut exec,
                head: Bytes::from(head),
                input: &command.stdin,
                out: ExitScanner::new(&token),
                err: ExitScanner::new(&token),
            };
            match courier.attend(&mut out, &mut err).await {
                Ok(status) => {
                    // The end was seen, so processes that the command left behind may stay. If this
                    // line does not arrive, the courier ends them.
                    let _ = exec.input().write_all(b"\n").await;
                    Ok(status)
                }
                Err(why) => Err(why),
            }
        };
        let ended = timeout_at(deadline, ended).await;
        out.finish();
        err.finish();
        let last = || err.last_line().or(out.last_line()).unwrap_or("nothing").to_owned();
        match ended {
            Ok(Ok(status)) => Ok(CommandOutput::new(status, out.text(), err.text())),
            Ok(Err(Broken::Refused(text))) => {
                Err(Error::new(ErrorKind::Bootstrap, format!("cannot {} in {}: {text}", what(), self.describe()))
                    .with_hint("the image needs a POSIX shell, `sh`, with the usual tools"))
            }
            Ok(Err(Broken::Lost(why))) => {
                let message =
                    format!("{} or its engine ended while it ran `{}`{why}", self.describe(), shown(&command.argv));
                Err(Error::new(ErrorKind::Bootstrap, message).temporary().with_context("last line", last()))
            }
            Ok(Err(Broken::Failed(error))) => Err(error),
            Err(_) => Err(Error::new(
                ErrorKind::Timeout,
                format!("`{}` did not end within {:?} and was killed", shown(&command.argv), command.deadline),
            )
            .with_context("last line", last())),
        }
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let deadline = PUT + Duration::from_secs(bytes.len() as u64 >> 20);
        let (mode, length, digest) = (format!("{mode:o}"), bytes.len().to_string(), hex(&Sha256::digest(bytes)));
        if bytes.len() >= LARGE {
            let there = self.small(THERE, &[path, &mode, &digest], &[], deadline).await?;
            if there.success() {
                return Ok(());
            }
        }
        let new = format!("{:016x}", rand::random::<u64>());
        let written = self.small(PUT_SCRIPT, &[path, &mode, &length, &new], bytes, deadline).await?;
        if written.success() {
            return Ok(());
        }
        let why = written.stderr.lines().last().unwrap_or("it was ended").to_owned();
        Err(Error::new(ErrorKind::Bootstrap, format!("cannot write {path} in {}: {why}", self.describe())))
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let deadline = Instant::now() + OPEN;
        let what = format!("connect to {socket}");
        let argv = ["sh", "-c", OPEN_SCRIPT, "skyward", socket, BRIDGE].map(str::to_owned).into();
        let mut exec = self.start(argv, deadline).await.map_err(|error| self.failed(error, ErrorKind::Io, &what))?;
        let mut complaint = Vec::new();
        let connected = async {
            loop {
                match exec.written().await {
                    Some(Ok(Written::Out(bytes))) if bytes.starts_with(b"+") => return Ok(bytes.slice(1..)),
                    Some(Ok(Written::Out(bytes) | Written::Err(bytes))) => complaint.extend_from_slice(&bytes),
                    Some(Ok(Written::Refusal(text))) => return Err(text),
                    Some(Err(error)) => return Err(error.to_string()),
                    None => {
                        let text = String::from_utf8_lossy(&complaint).trim().to_owned();
                        return Err(if text.is_empty() { ENDED.to_owned() } else { text });
                    }
                }
            }
        };
        let why = match timeout_at(deadline, connected).await {
            Ok(Ok(rest)) => return Ok(Box::new(ExecStream::new(exec, rest))),
            Ok(Err(why)) => why,
            Err(_) => format!("no answer within {OPEN:?}"),
        };
        Err(Error::new(ErrorKind::Io, format!("cannot {what} in {}: {why}", self.describe())).temporary())
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Container({} at {})", self.id, self.engine.url())
    }
}

/// A running command.
struct Courier<'a> {
    exec: &'a mut Exec,
    /// The command's variables, as lines of shell.
    head: Bytes,
    input: &'a [u8],
    out: ExitScanner,
    err: ExitScanner,
}

/// Why a command has no exit status.
enum Broken {
    /// The engine could not start it.
    Refused(String),
    /// The streams ended before it did.
    Lost(String),
    /// It was not sent to the engine, or the engine could not be reached.
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Courier<'_> {
    /// Feeds the command and reads its output until it ends; returns its exit status.
    async fn attend(&mut self, out: &mut Lines<'_>, err: &mut Lines<'_>) -> Result<i32, Broken> {
        std::future::poll_fn(|context| {
            self.feed(context);
            loop {
                match self.exec.poll_written(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(Written::Out(bytes)))) => out.push(&self.out.push(&bytes)),
                    Poll::Ready(Some(Ok(Written::Err(bytes)))) => err.push(&self.err.push(&bytes)),
                    Poll::Ready(Some(Ok(Written::Refusal(text)))) => return Poll::Ready(Err(Broken::Refused(text))),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Broken::Lost(format!(": {error}")))),
                    Poll::Ready(None) => {
                        out.push(&self.out.rest());
                        err.push(&self.err.rest());
                        return Poll::Ready(Err(Broken::Lost(String::new())));
                    }
                }
                if let (Some(status), Some(_)) = (self.out.status(), self.err.status()) {
                    return Poll::Ready(Ok(status));
                }
            }
        })
        .await
    }

    /// Writes as much as possible now. A command need not read all of its input: after a failed
    /// write, its end must still be read.
    fn feed(&mut self, context: &mut Context<'_>) {
        loop {
            let next: &[u8] = if self.head.is_empty() { self.input } else { &self.head };
            if next.is_empty() {
                return;
            }
            match self.exec.input().poll_write(context, next) {
                Poll::Ready(Ok(count @ 1..)) if self.head.is_empty() => self.input = &self.input[count..],
                Poll::Ready(Ok(count @ 1..)) => drop(self.head.split_to(count)),
                Poll::Ready(_) => {
                    self.head.clear();
                    self.input = &[];
                }
                Poll::Pending => return,
            }
        }
    }
}

/// The command's variables as lines of shell.
fn variables(command: &Command, token: &str) -> Result<String> {
    let mut lines = format!("export SKYWARD_RUN={token}\n");
    for (key, value) in &command.env {
        let name =
            key.chars().enumerate().all(|(at, c)| c == '_' || c.is_ascii_alphabetic() || at > 0 && c.is_ascii_digit());
        if key.is_empty() || !name {
            let message = format!("{key:?} is not a valid name of a shell variable");
            return Err(Error::new(ErrorKind::Bootstrap, message));
        }
        if value.contains('\0') {
            let message = format!("the value of the variable `{key}` contains a zero byte");
            return Err(Error::new(ErrorKind::Bootstrap, message));
        }
        lines.push_str(&format!("export {key}='{}'\n", value.replace('\'', r"'\''")));
    }
    Ok(lines)
}

const COURIER: &str = include_str!("docker/courier.sh");
const BRIDGE: &str = include_str!("docker/bridge.py");
/// Exits with 0 when the file exists with this mode and content.
const THERE: &str = r#"
[ "$(stat -c %a "$1" 2>/dev/null)" = "$2" ] || exit 1
sum=$(sha256sum <"$1" 2>/dev/null) || exit 1
[ "${sum%% *}" = "$3" ]
"#;
const PUT_SCRIPT: &str = r#"
mkdir -p "${1%/*}"
new="${1%/*}/.${1##*/}.$4"
umask 077
trap 'rm -f "$new"' EXIT
cat >"$new"
if [ "$(wc -c <"$new")" -ne "$3" ]; then
    echo "only a part of it arrived" >&2
    exit 1
fi
chmod "$2" "$new"
mv -f "$new" "$1"
trap - EXIT
"#;
const OPEN_SCRIPT: &str = r#"
for python in python3 "${SKYWARD_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/skyward}"/envs/*/bin/python; do
    ! command -v "$python" >/dev/null || exec "$python" -I -S -c "$2" "$1"
done
echo "there is no Python to connect to the socket" >&2
exit 1
"#;
/// The error without a reason: problems in the container itself print one.
const ENDED: &str = "the container or its engine ended before there was an answer";
/// From this size on, checking whether the file exists already is worth its cost.
const LARGE: usize = 256 << 10;
const PUT: Duration = Duration::from_secs(60);
const OPEN: Duration = Duration::from_secs(10);

#[cfg(test)]
pub(crate) mod tests;
