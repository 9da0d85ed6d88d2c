//! A host that is reached by SSH: one connection, many channels.

mod bastions;
mod connection;
mod dial;
mod exec;
mod host_keys;
mod key;
mod known_hosts;
mod login;
mod put;
mod socket;
mod stream;
mod target;
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
use super::lines::{Lines, shown};
use super::{ByteStream, Command, CommandOutput, OnLine, Remote};
use crate::error::{Error, ErrorKind, ErrorStatus, Result};

pub use self::host_keys::HostKeys;
pub use self::key::{Key, KeyPair};
pub use self::target::Target;

/// A host that is reached by SSH.
///
/// It owns the connection: what needs one that is lost connects again, once for all who wait, and tries for as long as its deadline and
/// [`Target::connect_within`] allow. A lost connection ends its commands and streams with an error.
///
/// Clones share the connection; it is closed with the last of them and of their streams.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> skyward_core::Result<()> {
/// use skyward_core::remote::ssh::{Key, Target};
/// use skyward_core::remote::{Command, Remote, Ssh};
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
    /// The bastion that it is reached through, if any, since it was first needed.
    near: OnceLock<Option<Arc<Host>>>,
    /// The connections that hold; more than one only where the server limits the programs of one.
    connections: Mutex<Vec<Shared>>,
    /// Held by whoever connects.
    connecting: tokio::sync::Mutex<Option<Error>>,
    /// How many times connecting has failed or succeeded.
    attempts: AtomicU64,
    was_connected: AtomicBool,
    /// Whether the server forwards no streams.
    bridges: AtomicBool,
}

impl Ssh {
    /// A host that is connected to when it is first needed.
    pub fn new(target: Target) -> Self {
        Self(Arc::new(Host::new(target)))
    }

    /// Connects to a host now. What was never connected is tried once, and again where its server is too busy to answer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] and [`ErrorKind::Timeout`], temporary, when it cannot be reached; [`ErrorKind::HostKey`] when it or a bastion is not the host that is expected;
    /// [`ErrorKind::Login`] when one does not let the client in; [`ErrorKind::InvalidSpec`] for a key or a file that cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no connection.
    pub async fn connect(target: Target) -> Result<Self> {
        let host = Self::new(target);
        host.0.connected(Instant::now() + TURN + host.0.target.connect_within).await?;
        Ok(host)
    }

    /// The host, as it was named.
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
        let host = self.describe();
        let deadline = Instant::now() + command.deadline;
        let name = shown(&command.argv);
        let program = Program::new(&command.argv, &command.env, command.stdin.clone())
            .map_err(|why| Error::new(ErrorKind::Bootstrap, format!("cannot run `{name}` on {host}: {why}")))?;
        let (mut out, mut err) = (Lines::new(on_line), Lines::new(on_line));
        let ran = self.0.run(&program, deadline, &mut out, &mut err).await;
        out.finish();
        err.finish();
        match ran {
            Some(Ok(Ended::Status(status))) if exec::is_not_found(status, &err.text()) => {
                let program = command.argv.first().cloned().unwrap_or_default();
                Err(Error::new(
                    ErrorKind::Bootstrap,
                    format!("cannot run `{program}` on {host}: there is no such program"),
                ))
            }
            Some(Ok(Ended::Status(status))) => Ok(CommandOutput::new(status, out.text(), err.text())),
            Some(Ok(ended)) => Err(not_ended(&name, &host, ended)),
            Some(Err(error)) => Err(error),
            None => {
                let last = err.last_line().or(out.last_line()).unwrap_or("nothing").to_owned();
                let message = format!("`{name}` did not end on {host} within {:?} and was ended", command.deadline);
                Err(Error::new(ErrorKind::Timeout, message).with_context("last line", last))
            }
        }
    }

    async fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let host = self.describe();
        let failed = |why: &str| Error::new(ErrorKind::Bootstrap, format!("cannot write {path} on {host}: {why}"));
        let limit = put::deadline(bytes.len());
        let deadline = Instant::now() + limit;
        let program = put::program(path, bytes, mode).await.map_err(|why| failed(&why))?;
        loop {
            let (mut out, mut err) = (Lines::new(&|_| {}), Lines::new(&|_| {}));
            match self.0.run(&program, deadline, &mut out, &mut err).await {
                Some(Ok(Ended::Status(0))) => return Ok(()),
                Some(Ok(Ended::Status(status))) => {
                    return Err(put::failed(path, &host, &CommandOutput::new(status, out.text(), err.text())));
                }
                // A file is put whole or not at all, so it can be put again.
                Some(Ok(Ended::Lost(_))) => {}
                Some(Ok(ended)) => return Err(not_ended("sh", &host, ended)),
                Some(Err(error)) => return Err(error.with_context("path", path)),
                None => return Err(failed(&format!("not done within {limit:?}")).temporary()),
            }
        }
    }

    async fn open(&self, socket: &str) -> Result<ByteStream> {
        let deadline = Instant::now() + OPEN;
        let failed = |why: &str| {
            Error::new(ErrorKind::Io, format!("cannot connect to {socket} on {}: {why}", self.describe())).temporary()
        };
        match timeout_at(deadline, self.0.open(socket, deadline)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(Failure::Connection(error))) => Err(error.with_context("socket", socket)),
            Ok(Err(Failure::Stream(NoStream::Nobody(why)))) => Err(failed(&why)),
            Ok(Err(Failure::Stream(NoStream::Refused(refusal)))) => Err(failed(&refusal.to_string())),
            Ok(Err(Failure::Stream(NoStream::Strange(said)))) => Err(failed(&format!("the bridge to it says: {said}"))),
            Ok(Err(Failure::Stream(NoStream::NoBridge))) => {
                let why =
                    "the server forwards no streams, and the host has no python3, socat or `nc -U` to do it instead";
                let error = Error::new(ErrorKind::Bootstrap, failed(why).message().to_owned());
                Err(error.with_hint(
                    "allow it in its sshd_config, `AllowStreamLocalForwarding yes`, or install python3 there",
                ))
            }
            Err(_) => Err(failed(&format!("no answer within {OPEN:?}"))),
        }
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

    /// Runs a program; none at the deadline. An error is that of connecting.
    async fn run(
        &self,
        program: &Program,
        deadline: Instant,
        out: &mut Lines<'_>,
        err: &mut Lines<'_>,
    ) -> Option<Result<Ended>> {
        let mut refused: Vec<Shared> = Vec::new();
        let mut lost = 0;
        loop {
            let connection = match self.connection(&refused, deadline).await {
                Ok(connection) => connection,
                // That is the command's own deadline, and it did not run.
                Err(error) => return Some(Err(error)),
            };
            match timeout_at(deadline, program.run(&connection, out, err)).await {
                Err(_) => return None,
                Ok(Ok(ended)) => return Some(Ok(ended)),
                // It was not started yet, so it can be started over another one.
                Ok(Err(Refusal::Lost(_))) if lost < 2 => lost += 1,
                Ok(Err(Refusal::Lost(why))) => return Some(Ok(Ended::Lost(why))),
                Ok(Err(Refusal::Server(failure))) if refused.len() < MOST_CONNECTIONS => {
                    tracing::debug!(?failure, host = %self.target, "the server opens no more sessions on a connection");
                    refused.push(connection);
                }
                Ok(Err(Refusal::Server(_))) => return Some(Ok(Ended::Refused)),
                Ok(Err(Refusal::Silent)) => return Some(Ok(Ended::Unanswered)),
            }
        }
    }

    async fn open(&self, socket: &str, deadline: Instant) -> Result<stream::Stream, Failure> {
        let mut refused: Vec<Shared> = Vec::new();
        for _ in 0..2 * MOST_CONNECTIONS {
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
                    // What the server said that it cannot reach can be reached, so it does not want to; or the socket came just now.
                    let forbidden = !forwards || connection.to_socket(socket).await.is_err();
                    self.bridges.store(forbidden, Ordering::Relaxed);
                    return Ok(stream);
                }
                Err(NoStream::Refused(Refusal::Lost(_))) => {}
                Err(NoStream::Refused(Refusal::Server(_))) => refused.push(connection),
                Err(failure) => return Err(Failure::Stream(failure)),
            }
        }
        Err(Failure::Stream(NoStream::Refused(Refusal::Lost("again and again".into()))))
    }

    /// A connection that holds and is none of those.
    async fn connection(&self, other_than: &[Shared], deadline: Instant) -> Result<Shared> {
        if let Some(connection) = self.held(other_than) {
            return Ok(connection);
        }
        let seen = self.attempts.load(Ordering::Acquire);
        let Ok(mut failure) = timeout_at(deadline, self.connecting.lock()).await else {
            let message =
                format!("cannot connect to {}: another attempt is under way, and not done in time", self.target);
            return Err(Error::new(ErrorKind::Timeout, message).temporary());
        };
        if let Some(connection) = self.held(other_than) {
            return Ok(connection);
        }
        // Who waited for an attempt that failed has its answer.
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

    /// Connects; again and again where its server is busy, and where it was connected before, for its host may be starting anew.
    async fn dial(&self, deadline: Instant) -> Result<Shared> {
        let mut end = Instant::now() + self.target.connect_within;
        let mut pause = FIRST_PAUSE;
        loop {
            let (error, is_busy) = match self.attempt(&mut end, deadline).await {
                Ok(connection) => return Ok(connection),
                Err(NotConnected { error, is_busy }) => (error, is_busy),
            };
            let again = (is_busy || self.was_connected.load(Ordering::Relaxed))
                && error.status() == ErrorStatus::Temporary
                && Instant::now() + pause < end.min(deadline);
            if !again {
                return Err(error);
            }
            tracing::debug!(host = %self.target, %error, "connecting again");
            // Those who were refused together do not come back together.
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tries once; what it waits for its turn does not count.
    async fn attempt(&self, end: &mut Instant, deadline: Instant) -> Result<Shared, NotConnected> {
        let near = match self.near.get_or_init(|| bastions::nearest(&self.target)) {
            // Boxed, because a bastion may have one itself.
            Some(bastion) => Some((Box::pin(bastion.connected((*end).min(deadline))).await?, &bastion.target)),
            None => None,
        };
        let asked = Instant::now();
        let Some(_turn) = turns::turn(&self.target, deadline).await else {
            let message = format!("cannot connect to {}: too many others connect to it at the same time", self.target);
            return Err(Error::new(ErrorKind::Timeout, message).temporary().into());
        };
        *end += asked.elapsed();
        dial::dial(near, &self.target, (*end).min(deadline)).await
    }
}

fn not_ended(name: &str, host: &str, ended: Ended) -> Error {
    match ended {
        Ended::Lost(why) => {
            let message = format!("the connection to {host} was lost while `{name}` ran: {why}");
            Error::new(ErrorKind::Io, message).temporary()
        }
        Ended::Unanswered => {
            let message = format!("cannot run `{name}` on {host}: {}", Refusal::Silent);
            Error::new(ErrorKind::Timeout, message).temporary()
        }
        Ended::Refused | Ended::Status(_) => Error::new(
            ErrorKind::Bootstrap,
            format!("cannot run `{name}` on {host}: its server runs no programs for this user"),
        )
        .with_hint("a key that is restricted in authorized_keys, a forced command, or `MaxSessions 0` do that"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long output is waited for after a program's end.
const LINGER: Duration = Duration::from_millis(200);
const OPEN: Duration = Duration::from_secs(20);
/// How long who connects now, and has no deadline of its own, waits until others have connected.
const TURN: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A server's limit of programs per connection, often 10, is met by one more connection; but not without end.
const MOST_CONNECTIONS: usize = 8;
