//! A machine that is reached through the streams of its programs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout_at};

use super::byte_stream::ExecByteStream;
use super::courier::{Courier, GivenUp, Told};
use super::{Exec, ExecStreams};
use crate::error::{Error, ErrorKind, Result};
use crate::remote::digest::digest;
use crate::remote::lines::Lines;
use crate::remote::shell::{self, shown};
use crate::remote::timing::{LEAST_PUT, SOCKET_REACHED};
use crate::remote::unread::Unread;
use crate::remote::{ByteStream, Command, CommandOutput, OnLine, Remote};

/// A machine that is reached through an [`Exec`], which starts programs there.
///
/// A command gets its environment variables and its input through standard input, so that no secret
/// is on a command line, where other users of the machine and the records of a service show it.
///
/// [`open`](Remote::open) starts a small program on the machine that connects its own input and
/// output with the socket. It runs with the machine's `python3`, or with the Python of an
/// environment that a pool has built there.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> skyward_core::Result<()> {
/// # use skyward_core as skyward;
/// use std::time::Duration;
///
/// use skyward::remote::{Command, Exec, ExecRemote, ExecStreams, Remote};
///
/// /// The mount namespace of a process, by `nsenter`; of this process, without it.
/// #[derive(Debug)]
/// struct Namespace(Option<u32>);
///
/// #[async_trait::async_trait]
/// impl Exec for Namespace {
///     fn describe(&self) -> String {
///         format!("namespace {:?}", self.0)
///     }
///
///     async fn start(&self, argv: &[String], _within: Duration) -> skyward::Result<ExecStreams> {
///         let enter = self.0.map(|id| ["nsenter".into(), "--mount".into(), format!("--target={id}"), "--".into()]);
///         let words: Vec<_> = enter.into_iter().flatten().chain(argv.iter().cloned()).collect();
///         ExecStreams::spawn(tokio::process::Command::new(&words[0]).args(&words[1..]))
///     }
/// }
///
/// let output = ExecRemote::new(Namespace(None)).run(&Command::new(["echo", "hello"]), &|_| {}).await?;
/// assert_eq!(output.status, 0);
/// assert_eq!(output.stdout.as_str(), "hello\n");
/// # Ok(())
/// # }
/// ```
pub struct ExecRemote<E>(Arc<E>);

impl<E: Exec> ExecRemote<E> {
    /// Reaches the machine on which `exec` starts programs.
    pub fn new(exec: E) -> Self {
        Self(Arc::new(exec))
    }

    /// What starts programs on the machine.
    #[cfg(feature = "docker")]
    pub(crate) fn exec(&self) -> &E {
        &self.0
    }

    async fn start(&self, argv: &[String], deadline: Instant) -> Result<ExecStreams> {
        let within = deadline.saturating_duration_since(Instant::now());
        match timeout_at(deadline, self.0.start(argv, within)).await {
            Ok(started) => started,
            Err(_) => Err(Error::new(ErrorKind::Timeout, format!("nothing was started within {within:?}")).temporary()),
        }
    }

    /// Turns an error of reaching the machine into the error of an operation on it.
    fn failed(&self, error: Error, kind: ErrorKind, what: &str) -> Error {
        let kind = if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Timeout) { error.kind() } else { kind };
        let message = format!("cannot {what} in {}: {}", self.describe(), error.message());
        error.with_kind(kind).with_message(message)
    }

    /// Why a program that told nothing has ended.
    async fn ended(streams: ExecStreams) -> Error {
        match streams.exit.await {
            Ok(status @ (126 | 127)) => Error::new(ErrorKind::Bootstrap, format!("it ended with status {status}"))
                .with_hint("the machine needs a POSIX shell, `sh`, with the usual tools"),
            Ok(status) => Error::new(ErrorKind::Bootstrap, format!("it ended with status {status} and told no result"))
                .temporary(),
            Err(error) => error,
        }
    }

    async fn attend(
        &self,
        argv: &[String],
        env: &BTreeMap<String, String>,
        input: &[u8],
        within: Duration,
        given_up: GivenUp,
        on_line: OnLine<'_>,
    ) -> Result<CommandOutput> {
        let deadline = Instant::now() + within;
        let what = || format!("run `{}`", shown(argv));
        if argv.is_empty() {
            return Err(Error::new(ErrorKind::Bootstrap, "the command is empty"));
        }
        let courier = Courier::new();
        let unread = if given_up == GivenUp::IsKilled { input.len() } else { 0 };
        let head = courier.head(env)?;
        let (mut out, mut err) = (Lines::new(on_line), Lines::new(on_line));
        let ended = async {
            let started = self.start(&courier.argv(argv, input.len(), given_up), deadline).await;
            let mut streams = started.map_err(|error| self.failed(error, ErrorKind::Bootstrap, &what()))?;
            let unread = Unread::new(self, || courier.kill(), unread);
            match courier.attend(&mut streams, &head, input, &mut out, &mut err).await {
                Told::Ended(status) => {
                    unread.ended();
                    Ok(status)
                }
                Told::Lost(Some(error)) => {
                    let error = Error::new(ErrorKind::Bootstrap, error.to_string()).temporary().with_source(error);
                    Err(self.failed(error, ErrorKind::Bootstrap, &what()))
                }
                Told::Lost(None) => Err(self.failed(Self::ended(streams).await, ErrorKind::Bootstrap, &what())),
            }
        };
        let ended = timeout_at(deadline, ended).await;
        out.finish();
        err.finish();
        let last = || err.last_line().or(out.last_line()).unwrap_or("nothing").to_owned();
        match ended {
            Ok(Ok(status)) => Ok(CommandOutput::new(status, out.text(), err.text())),
            Ok(Err(error)) => Err(error.with_context("last line", last())),
            Err(_) => Err(Error::new(
                ErrorKind::Timeout,
                format!("`{}` did not end within {within:?} and was killed", shown(argv)),
            )
            .with_context("last line", last())),
        }
    }

    /// Runs a script that needs no variables and reads all of its input.
    async fn small(&self, script: &str, args: &[&str], input: &[u8], within: Duration) -> Result<CommandOutput> {
        let args = ["skyward"].iter().chain(args).map(|&word| word.to_owned());
        let argv: Vec<_> = shell::strict(script).into_iter().chain(args).collect();
        self.attend(&argv, &BTreeMap::new(), input, within, GivenUp::GetsNoMoreInput, &|_| {}).await
    }
}

#[async_trait]
impl<E: Exec> Remote for ExecRemote<E> {
    fn describe(&self) -> String {
        self.0.describe()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        self.attend(&command.argv, &command.env, &command.stdin, command.deadline, GivenUp::IsKilled, on_line).await
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let within = LEAST_PUT + Duration::from_secs(bytes.len() as u64 >> 20);
        let (mode, length) = (format!("{mode:o}"), bytes.len().to_string());
        if bytes.len() >= LARGE {
            let there = self.small(THERE, &[path, &mode, &digest(bytes).await], &[], within).await?;
            if there.success() {
                return Ok(());
            }
        }
        let new = format!("{:016x}", rand::random::<u64>());
        let written = self.small(PUT_SCRIPT, &[path, &mode, &length, &new], bytes, within).await?;
        if written.success() {
            return Ok(());
        }
        let why = written.stderr.lines().last().unwrap_or("it was ended").to_owned();
        Err(Error::new(ErrorKind::Bootstrap, format!("cannot write {path} in {}: {why}", self.describe())))
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let deadline = Instant::now() + SOCKET_REACHED;
        let what = format!("connect to {socket}");
        let args = ["skyward", socket, BRIDGE].map(str::to_owned);
        let argv: Vec<_> = shell::script(OPEN_SCRIPT).into_iter().chain(args).collect();
        let started = self.start(&argv, deadline).await;
        let mut streams = started.map_err(|error| self.failed(error, ErrorKind::Io, &what))?;
        let connected = async {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut first = [0];
            match streams.stdout.read(&mut first).await {
                Ok(1) if first == *b"+" => return Ok(streams),
                Ok(read) => out.extend_from_slice(&first[..read]),
                Err(error) => return Err(Error::new(ErrorKind::Io, error.to_string()).with_source(error)),
            }
            // The rest only explains the end: what was read before an error is enough.
            let (mut stdout, mut stderr) = ((&mut streams.stdout).take(WORDS), (&mut streams.stderr).take(WORDS));
            let _ = tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
            out.append(&mut err);
            match String::from_utf8_lossy(&out).trim() {
                "" => Err(Self::ended(streams).await),
                words => Err(Error::new(ErrorKind::Io, words)),
            }
        };
        let error = match timeout_at(deadline, connected).await {
            Ok(Ok(streams)) => return Ok(Box::new(ExecByteStream::new(streams))),
            Ok(Err(error)) => error,
            Err(_) => Error::new(ErrorKind::Io, format!("no answer within {SOCKET_REACHED:?}")),
        };
        Err(self.failed(error, ErrorKind::Io, &what).temporary())
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}

impl<E> Clone for ExecRemote<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: fmt::Debug> fmt::Debug for ExecRemote<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const BRIDGE: &str = include_str!("bridge.py");
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
# Writing to a client that is gone is an error, not a signal that ends this script.
trap '' PIPE
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
/// From this size on, checking whether the file exists already is worth its cost.
const LARGE: usize = 256 << 10;
/// How many bytes of a program's words are read when it does not connect.
const WORDS: u64 = 4 << 10;
