//! A host that is reached by SSH: one connection, many channels.

mod bastions;
mod connection;
mod dial;
mod exec;
mod host_keys;
mod key;
mod known_hosts;
mod login;
mod prelude;
mod put;
mod socket;
mod stream;
mod target;
mod timing;
mod trust;
mod turns;
mod watched;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use self::connection::{Refusal, Shared};
use self::dial::NotConnected;
use self::exec::{Ended, Program};
use self::socket::NoStream;
use self::timing::{BRIDGED, CONNECT_TURN, LOGIN};
use super::exec::Courier;
use super::lines::Lines;
use super::shell::shown;
use super::timing::{CONNECT_PAUSE, LONGEST_CONNECT_PAUSE};
use super::unread::Unread;
use super::{ByteStream, Command, CommandOutput, OnLine, Remote};
use crate::error::{Error, ErrorKind, Result};

pub use self::host_keys::HostKeys;
pub use self::key::{Key, KeyPair};
pub use self::target::Target;

/// A host that is reached by SSH.
///
/// It owns the connection. An operation that needs a lost connection connects again, once for all
/// waiting operations, and retries as long as its deadline and [`Target::connect_within`] allow.
/// The commands and streams of a lost connection fail.
///
/// Clones share the connection. It is closed with the last of the clones and of their streams.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> skyward_core::Result<()> {
/// # use skyward_core as skyward;
/// use skyward::remote::ssh::{Key, Target};
/// use skyward::remote::{Command, Remote, Ssh};
///
/// let target = Target::new("gpu1").user("alice").key(Key::file("~/.ssh/id_ed25519"));
/// let host = Ssh::connect(target).await?;
/// let output = host.run(&Command::script("nvidia-smi -L"), &|line| println!("{line}")).await?;
/// assert!(output.success());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Ssh(Arc<Host>);

#[derive(Debug)]
struct Host {
    target: Target,
    /// The bastion that it is reached through, if any; set when it is first needed.
    near: OnceLock<Option<Arc<Host>>>,
    /// The open connections; more than one only where the server limits the programs of one
    /// connection.
    connections: Mutex<Vec<Shared>>,
    /// Held while connecting; the error of the last attempt.
    connecting: tokio::sync::Mutex<Option<Error>>,
    /// How many times connecting has failed or succeeded.
    attempts: AtomicU64,
    was_connected: AtomicBool,
    /// Whether the server forwards no streams.
    bridges: AtomicBool,
}

impl Ssh {
    /// Creates a host that is connected to when it is first needed.
    pub fn new(target: Target) -> Self {
        Self(Arc::new(Host::new(target)))
    }

    /// Connects to a host now, with one attempt, or with several where its server is too busy to
    /// answer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] and [`ErrorKind::Timeout`], temporary, when the host cannot be reached;
    /// [`ErrorKind::HostKey`] when the host or a bastion is not the expected host;
    /// [`ErrorKind::Login`] when one of them refuses the login; [`ErrorKind::InvalidSpec`] for a
    /// key or a file that cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no connection.
    pub async fn connect(target: Target) -> Result<Self> {
        let host = Self::new(target);
        host.0.connected(Instant::now() + CONNECT_TURN + host.0.target.connect_within).await?;
        Ok(host)
    }

    /// Runs a command as [`Remote::run`] does, and sets `begun` once the host may run it.
    pub(crate) async fn run_noting(
        &self,
        command: &Command,
        on_line: OnLine<'_>,
        begun: &AtomicBool,
    ) -> Result<CommandOutput> {
        let host = self.describe();
        let name = shown(&command.argv);
        let courier = Courier::new();
        let (name_of_mark, mark) = courier.mark();
        let env = command.env.iter().chain([(&name_of_mark, &mark)]);
        let program = Program::new(&command.argv, env, &command.stdin)
            .map_err(|why| Error::new(ErrorKind::Bootstrap, format!("cannot run `{name}` on {host}: {why}")))?;
        let (mut out, mut err) = (Lines::new(on_line), Lines::new(on_line));
        let unread = Unread::new(self, || courier.kill(), command.stdin.len());
        let ran = self.0.run(&program, command.deadline, begun, &mut out, &mut err).await;
        if !matches!(ran, Ok(Ended::Late | Ended::Lost(_) | Ended::Unanswered)) {
            unread.ended();
        }
        out.finish();
        err.finish();
        match ran {
            Ok(Ended::Status(status)) if exec::is_not_found(status, &err.text()) => {
                let program = command.argv.first().cloned().unwrap_or_default();
                Err(Error::new(
                    ErrorKind::Bootstrap,
                    format!("cannot run `{program}` on {host}: there is no such program"),
                ))
            }
            Ok(Ended::Status(status)) => Ok(CommandOutput::new(status, out.text(), err.text())),
            Err(error) => Err(error),
            Ok(Ended::Late) => {
                let last = err.last_line().or(out.last_line()).unwrap_or("nothing").to_owned();
                let message = format!("`{name}` did not end on {host} within {:?} and was killed", command.deadline);
                Err(Error::new(ErrorKind::Timeout, message).with_context("last line", last))
            }
            Ok(ended) => Err(not_ended(&name, &host, ended)),
        }
    }

    /// The target of this host.
    pub fn target(&self) -> &Target {
        &self.0.target
    }
}

#[async_trait]
impl Remote for Ssh {
    fn describe(&self) -> String {
        self.0.target.to_string()
    }

    async fn run(&self, command: &Command, on_line: OnLine<'_>) -> Result<CommandOutput> {
        self.run_noting(command, on_line, &AtomicBool::default()).await
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let host = self.describe();
        let failed = |why: &str| Error::new(ErrorKind::Bootstrap, format!("cannot write {path} on {host}: {why}"));
        let limit = put::deadline(bytes.len());
        // The last time to begin again.
        let last = Instant::now() + limit;
        let program = put::program(path, bytes, mode).await.map_err(|why| failed(&why))?;
        loop {
            let (mut out, mut err) = (Lines::new(&|_| {}), Lines::new(&|_| {}));
            match self.0.run(&program, limit, &AtomicBool::default(), &mut out, &mut err).await {
                Ok(Ended::Status(0)) => return Ok(()),
                Ok(Ended::Status(status)) => {
                    return Err(put::failed(path, &host, &CommandOutput::new(status, out.text(), err.text())));
                }
                // `put` is atomic, so it can be repeated.
                Ok(Ended::Lost(_)) if Instant::now() < last => {}
                Ok(Ended::Late) => return Err(failed(&format!("it took longer than {limit:?}")).temporary()),
                Ok(ended) => return Err(not_ended("sh", &host, ended).with_context("path", path)),
                Err(error) => return Err(error.with_context("path", path)),
            }
        }
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let failed = |why: &str| {
            Error::new(ErrorKind::Io, format!("cannot connect to {socket} on {}: {why}", self.describe())).temporary()
        };
        let no_stream = match self.0.open(socket).await {
            Ok(stream) => return Ok(Box::new(stream)),
            Err(Failure::Connection(error)) => return Err(error.with_context("socket", socket)),
            Err(Failure::Stream(no_stream)) => no_stream,
        };
        Err(match no_stream {
            NoStream::Nobody(why) => failed(&why),
            NoStream::Refused(refusal) => failed(&refusal.to_string()),
            NoStream::Strange(line) => failed(&format!("the program that forwards to the socket printed: {line}")),
            NoStream::Late => failed(&format!("no answer within {BRIDGED:?}")),
            NoStream::Instead(instead) => instead.error("sh", &self.describe(), LOGIN).with_context("socket", socket),
            NoStream::NoBridge => {
                let why = "the server forwards no streams, and the host has neither python3, socat nor `nc -U` to forward them instead";
                let error = Error::new(ErrorKind::Bootstrap, failed(why).message().to_owned());
                error.with_hint(
                    "allow forwarding in the server's sshd_config, `AllowStreamLocalForwarding yes`, or install python3 on \
                     the host",
                )
            }
        })
    }

    async fn builder(&self) -> Result<Option<Box<dyn Remote>>> {
        Ok(None)
    }
}

/// Why a stream was not opened.
enum Failure {
    Connection(Error),
    Stream(NoStream),
}

impl Host {
    fn new(target: Target) -> Self {
        Self {
            target,
            near: OnceLock::new(),
            connections: Mutex::new(Vec::new()),
            connecting: tokio::sync::Mutex::new(None),
            attempts: AtomicU64::new(0),
            was_connected: AtomicBool::new(false),
            bridges: AtomicBool::new(false),
        }
    }

    /// Runs a program. The limit applies to connecting, and then anew to the program: each login has
    /// a time of its own. An error comes from connecting. `begun` is set once the host may run it.
    async fn run(
        &self,
        program: &Program<'_>,
        limit: Duration,
        begun: &AtomicBool,
        out: &mut Lines<'_>,
        err: &mut Lines<'_>,
    ) -> Result<Ended> {
        let mut refused: Vec<Shared> = Vec::new();
        let mut lost = 0;
        loop {
            let connection = self.connection(&refused, Instant::now() + limit).await?;
            begun.store(true, Ordering::Relaxed);
            let ran = program.run(&connection, limit, out, err).await;
            if matches!(ran, Err(Refusal::Lost(_) | Refusal::Server(_))) {
                begun.store(false, Ordering::Relaxed);
            }
            match ran {
                Ok(ended) => return Ok(ended),
                // The program was not started yet, so it can be started over another connection.
                Err(Refusal::Lost(_)) if lost < 2 => lost += 1,
                Err(Refusal::Lost(why)) => return Ok(Ended::Lost(why)),
                Err(Refusal::Server(failure)) if refused.len() < MOST_CONNECTIONS => {
                    tracing::debug!(?failure, host = %self.target, "the server opens no more sessions on a connection");
                    refused.push(connection);
                }
                Err(Refusal::Server(_)) => return Ok(Ended::Refused),
                Err(Refusal::Silent) => return Ok(Ended::Unanswered),
            }
        }
    }

    async fn open(&self, socket: &str) -> Result<stream::Stream, Failure> {
        let mut refused: Vec<Shared> = Vec::new();
        for _ in 0..2 * MOST_CONNECTIONS {
            let deadline = Instant::now() + CONNECT_TURN + self.target.connect_within;
            let connection = self.connection(&refused, deadline).await.map_err(Failure::Connection)?;
            let mut forwards = !self.bridges.load(Ordering::Relaxed);
            if forwards {
                match connection.to_socket(socket).await {
                    Ok(stream) => return Ok(stream),
                    Err(Refusal::Lost(_)) => continue,
                    Err(Refusal::Server(failure)) => match socket::forbids(&failure) {
                        Some(true) => forwards = false,
                        Some(false) => {
                            refused.push(connection);
                            continue;
                        }
                        None => {}
                    },
                    Err(silent @ Refusal::Silent) => return Err(Failure::Stream(NoStream::Refused(silent))),
                }
            }
            match socket::bridge(&connection, socket).await {
                Ok(stream) => {
                    // The server could not reach a socket that the bridge can reach: it forbids
                    // forwarding, or the socket was created just now.
                    let forbidden = !forwards || connection.to_socket(socket).await.is_err();
                    self.bridges.store(forbidden, Ordering::Relaxed);
                    return Ok(stream);
                }
                Err(NoStream::Refused(Refusal::Lost(_))) => {}
                Err(NoStream::Refused(Refusal::Server(_))) => refused.push(connection),
                Err(failure) => return Err(Failure::Stream(failure)),
            }
        }
        Err(Failure::Stream(NoStream::Refused(Refusal::Lost("each new connection was lost too".into()))))
    }

    /// An open connection that is none of those.
    async fn connection(&self, other_than: &[Shared], deadline: Instant) -> Result<Shared> {
        if let Some(connection) = self.held(other_than) {
            return Ok(connection);
        }
        let seen = self.attempts.load(Ordering::Acquire);
        let Ok(mut failure) = timeout_at(deadline, self.connecting.lock()).await else {
            let message = format!(
                "cannot connect to {}: the attempt of another task of this client did not finish in time",
                self.target
            );
            return Err(Error::new(ErrorKind::Timeout, message).temporary());
        };
        if let Some(connection) = self.held(other_than) {
            return Ok(connection);
        }
        // Callers that waited for a failed attempt get its error.
        if self.attempts.load(Ordering::Acquire) != seen
            && let Some(error) = failure.as_ref()
        {
            return Err(error.clone());
        }
        let result = self.dial(deadline).await;
        *failure = result.as_ref().err().cloned();
        self.attempts.fetch_add(1, Ordering::AcqRel);
        let connection = result?;
        self.was_connected.store(true, Ordering::Relaxed);
        let mut connections = lock(&self.connections);
        if connections.is_empty() {
            // Another server may answer now.
            self.bridges.store(false, Ordering::Relaxed);
        }
        connections.push(Arc::clone(&connection));
        Ok(connection)
    }

    async fn connected(&self, deadline: Instant) -> Result<Shared> {
        self.connection(&[], deadline).await
    }

    fn held(&self, other_than: &[Shared]) -> Option<Shared> {
        let mut connections = lock(&self.connections);
        connections.retain(|connection| !connection.is_lost());
        connections.iter().find(|one| !other_than.iter().any(|other| Arc::ptr_eq(one, other))).cloned()
    }

    /// Connects. Retries where the server is busy, and where the host was connected before, because
    /// it may be rebooting.
    async fn dial(&self, deadline: Instant) -> Result<Shared> {
        let mut end = Instant::now() + self.target.connect_within;
        let mut pause = CONNECT_PAUSE;
        loop {
            let (error, is_busy) = match self.attempt(&mut end, deadline).await {
                Ok(connection) => return Ok(connection),
                Err(NotConnected { error, is_busy }) => (error, is_busy),
            };
            let again = (is_busy || self.was_connected.load(Ordering::Relaxed))
                && error.is_temporary()
                && Instant::now() + pause < end.min(deadline);
            if !again {
                return Err(error);
            }
            tracing::debug!(host = %self.target, %error, "connecting again");
            // Clients that were refused together must not return together.
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_CONNECT_PAUSE);
        }
    }

    /// Tries once. The time that it waits for its turn does not count.
    async fn attempt(&self, end: &mut Instant, deadline: Instant) -> Result<Shared, NotConnected> {
        let near = match self.near.get_or_init(|| bastions::nearest(&self.target)) {
            // Boxed, because a bastion may have one itself.
            Some(bastion) => Some((Box::pin(bastion.connected((*end).min(deadline))).await?, &bastion.target)),
            None => None,
        };
        let asked = Instant::now();
        let Some(_turn) = turns::turn(&self.target, deadline).await else {
            let message =
                format!("cannot connect to {}: this client is opening too many other connections to it", self.target);
            return Err(Error::new(ErrorKind::Timeout, message).temporary().into());
        };
        *end += asked.elapsed();
        dial::dial(near, &self.target, (*end).min(deadline)).await
    }
}

fn not_ended(name: &str, host: &str, ended: Ended) -> Error {
    match ended {
        Ended::Instead(instead) => instead.error(name, host, LOGIN),
        Ended::Lost(why) => {
            let message = format!("the connection to {host} was lost while `{name}` ran: {why}");
            Error::new(ErrorKind::Io, message).temporary()
        }
        Ended::Unanswered => {
            let message = format!("cannot run `{name}` on {host}: {}", Refusal::Silent);
            Error::new(ErrorKind::Timeout, message).temporary()
        }
        Ended::Refused | Ended::Late | Ended::Status(_) => Error::new(
            ErrorKind::Bootstrap,
            format!("cannot run `{name}` on {host}: its server runs no programs for this user"),
        )
        .with_hint("possible causes are a restricted key in authorized_keys, a forced command, and `MaxSessions 0`"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The limit of programs for one connection, often 10, is evaded with further connections, up to
/// this number.
const MOST_CONNECTIONS: usize = 8;
