//! From a target to a connection: addresses, bastions, host keys, login.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use russh::ChannelOpenFailure::{AdministrativelyProhibited, ConnectFailed, ResourceShortage};
use russh::Error::NoCommonAlgo;
use russh::client::{self, Config, Handle};
use russh::keys::PublicKey;
use russh::{AlgorithmKind, Preferred, cipher, mac};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Client, Connection, Refusal, SessionError, Shared};
use super::login::log_in;
use super::target::Target;
use super::timing::ADDRESS_SILENT;
use super::trust::{self, Refused, Trust};
use super::watched::Watched;
use crate::error::{Error, ErrorKind, Result};

/// Why there is no connection.
pub(super) struct NotConnected {
    pub(super) error: Error,
    /// Whether an overloaded server answers like this.
    pub(super) is_busy: bool,
}

/// Connects to a target, through the nearest of its bastions if it has any, and logs in.
///
/// # Errors
///
/// [`ErrorKind::Io`], temporary, when the target cannot be reached; [`ErrorKind::HostKey`] when it
/// is not the expected host; [`ErrorKind::Login`] when it refuses the login;
/// [`ErrorKind::InvalidSpec`] for keys that cannot be used; [`ErrorKind::Timeout`], temporary, at
/// the deadline.
///
/// # Cancel safety
///
/// Dropping the future leaves no connection.
pub(super) async fn dial(
    near: Option<(Shared, &Target)>,
    target: &Target,
    deadline: Instant,
) -> Result<Shared, NotConnected> {
    let begin = Instant::now();
    let mut at = String::new();
    match timeout_at(deadline, go(near, target, &mut at)).await {
        Ok(connected) => connected.map(Arc::new),
        Err(_) => {
            let message = format!("cannot connect to {target}: it took longer than {:?}, while {at}", deadline - begin);
            let error = Error::new(ErrorKind::Timeout, message).temporary();
            let error = error.with_hint("a firewall may drop the packets, or the host is down or overloaded: try `ssh` to the same address from here");
            Err(NotConnected { error, is_busy: true })
        }
    }
}

/// Connects. Connects again while another key of the host may be the expected one.
async fn go(near: Option<(Shared, &Target)>, target: &Target, at: &mut String) -> Result<Connection, NotConnected> {
    let trust = Trust::of(target).await?;
    let mut shown: Vec<PublicKey> = Vec::new();
    let mut mismatch: Option<Error> = None;
    loop {
        let config = config(target, &trust, &shown);
        let connected = match &near {
            None => {
                *at = format!("connecting to {target}");
                let stream = tcp(target).await?;
                shake_hands(stream, target, config, trust.clone(), at).await
            }
            Some((bastion, name)) => {
                *at = format!("connecting to {target} through {name}");
                let stream = bastion.to_port(&target.address, target.port).await.map_err(|refusal| {
                    let is_busy =
                        matches!(refusal, Refusal::Lost(_) | Refusal::Server(ResourceShortage) | Refusal::Silent);
                    NotConnected { error: not_through(target, name, refusal), is_busy }
                })?;
                shake_hands(stream, target, config, trust.clone(), at).await
            }
        };
        match (connected, mismatch.take()) {
            (Ok(connection), _) => return Ok(connection),
            (Err(Unshaken::Session(SessionError::HostKey(Refused { error, other: Some(key) }))), before) => {
                shown.push(*key);
                let error = before.unwrap_or(error);
                if trust.algorithms(&shown).is_empty() {
                    return Err(also_shown(error, &shown).into());
                }
                mismatch = Some(error);
            }
            // The host has no more keys.
            (
                Err(Unshaken::Session(SessionError::Protocol(NoCommonAlgo { kind: AlgorithmKind::Key, .. }))),
                Some(error),
            ) => {
                return Err(also_shown(error, &shown).into());
            }
            (Err(Unshaken::Session(error)), _) => return Err(begun(not_agreed(target, error))),
            (Err(Unshaken::Login(error)), _) => return Err(begun(error)),
        }
    }
}

/// The error about the first key that the host has shown, with the others.
fn also_shown(error: Error, shown: &[PublicKey]) -> Error {
    match shown.get(1..) {
        None | Some([]) => error,
        Some(others) => {
            let others: Vec<_> = others.iter().map(trust::shown).collect();
            error.with_context("its other keys", others.join(", "))
        }
    }
}

async fn tcp(target: &Target) -> Result<TcpStream> {
    let (address, port) = (target.address.as_str(), target.port);
    let unresolved = |why: String| {
        Error::new(ErrorKind::Io, format!("cannot connect to {target}: the name {address} cannot be resolved: {why}"))
            .temporary()
            .with_hint("check the name; ~/.ssh/config is not read: give the host's address")
    };
    let addresses = lookup_host((address, port)).await.map_err(|error| unresolved(error.to_string()))?;
    let last = match first_of(&addresses.collect::<Vec<_>>()).await {
        Ok(stream) => {
            // Small frames do not wait for more bytes. Without it the connection is only slower.
            let _ = stream.set_nodelay(true);
            return Ok(stream);
        }
        Err(last) => last,
    };
    Err(last.map_or_else(|| unresolved("it has no address".into()), |error| unreachable(target, error)))
}

/// Connects to the first address that answers, and repeats all of them while one of them neither
/// answers nor refuses. The system retries a silent address at ever longer intervals, and so would
/// reach a host that boots, or that has a second address, many seconds late.
///
/// # Errors
///
/// The last refusal, once all have refused; none where there is no address.
async fn first_of(addresses: &[SocketAddr]) -> Result<TcpStream, Option<io::Error>> {
    let mut silent = true;
    let mut last = None;
    while silent {
        silent = false;
        for address in addresses {
            match timeout(ADDRESS_SILENT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = Some(error),
                Err(_) => silent = true,
            }
        }
    }
    Err(last)
}

fn unreachable(target: &Target, error: io::Error) -> Error {
    let (why, hint) = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            ("nothing listens on this port", "check that sshd runs there, on this port: `systemctl status ssh`")
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => (
            "there is no route to it",
            "check that the host is up, and that this client is in the right network or VPN",
        ),
        io::ErrorKind::TimedOut => {
            ("it does not answer", "check that the host is up, and that no firewall drops the packets")
        }
        _ => ("the connection fails", "try `ssh` to the same address from here"),
    };
    Error::new(ErrorKind::Io, format!("cannot connect to {target}: {why} ({error})")).temporary().with_hint(hint)
}

fn not_through(target: &Target, bastion: &Target, refusal: Refusal) -> Error {
    let error = |why: &str| Error::new(ErrorKind::Io, format!("cannot connect to {target} through {bastion}: {why}"));
    match refusal {
        Refusal::Lost(why) => error(&format!("the connection to the bastion was lost: {why}")).temporary(),
        Refusal::Server(ConnectFailed) => error("the bastion cannot reach it")
            .temporary()
            .with_hint("check that the host is up, that the bastion can resolve its name, and that the port is right"),
        Refusal::Server(AdministrativelyProhibited) => error("the bastion forbids forwarding")
            .with_hint("its sshd_config needs `AllowTcpForwarding yes`, and `PermitOpen` has to allow this address"),
        Refusal::Server(other) => error(&format!("the bastion refuses: {other:?}")).temporary(),
        Refusal::Silent => error(&Refusal::Silent.to_string()).temporary(),
    }
}

/// Why a session was not begun.
enum Unshaken {
    Session(SessionError),
    Login(Error),
}

async fn shake_hands<S>(
    stream: S,
    target: &Target,
    config: Config,
    trust: Trust,
    at: &mut String,
) -> Result<Connection, Unshaken>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    *at = format!("exchanging keys with {target}");
    let (client, lost) = Client::new(trust);
    let (stream, dial) = Watched::new(stream, target.silence);
    let connected = client::connect_stream(Arc::new(config), stream, client).await;
    let mut handle: Handle<Client> = connected.map_err(Unshaken::Session)?;
    *at = format!("logging in to {target}");
    log_in(&mut handle, target, &lost, at).await.map_err(Unshaken::Login)?;
    dial.done();
    Ok(Connection::new(handle, lost))
}

/// A server that accepted the connection and ended it with a temporary error is busy.
fn begun(error: Error) -> NotConnected {
    NotConnected { is_busy: error.is_temporary(), error }
}

/// The error of a step before the server accepted the connection.
impl From<Error> for NotConnected {
    fn from(error: Error) -> Self {
        Self { error, is_busy: false }
    }
}

fn not_agreed(target: &Target, error: SessionError) -> Error {
    let failed = |why: String| Error::new(ErrorKind::Io, format!("cannot connect to {target}: {why}"));
    match error {
        SessionError::HostKey(refused) => refused.error,
        SessionError::Protocol(NoCommonAlgo { kind, ours, theirs }) => failed(format!(
            "there is no {} that both sides support: the server offers {}, and this client supports {}",
            format!("{kind:?}").to_lowercase(),
            theirs.join(", "),
            ours.join(", ")
        ))
        .with_hint("update an old server; on a host without a key of these types, run `ssh-keygen -A`"),
        SessionError::Protocol(russh::Error::Version) => {
            failed("the program that listens there is no SSH server".into()).with_hint("check the port")
        }
        SessionError::Protocol(error @ (russh::Error::Disconnect | russh::Error::HUP | russh::Error::IO(_))) => {
            failed(format!("it closed the connection during the key exchange ({error})"))
                .temporary()
                .with_hint("a server does that when too many logins are under way (`MaxStartups` in its sshd_config), or when it bans this client")
        }
        SessionError::Protocol(error) => failed(format!("the key exchange fails: {error}")),
    }
}

fn config(target: &Target, trust: &Trust, shown: &[PublicKey]) -> Config {
    Config {
        preferred: Preferred {
            key: trust.algorithms(shown).into(),
            host_key_certificates: trust.certificate_algorithms().into(),
            cipher: CIPHERS.into(),
            mac: MACS.into(),
            ..Preferred::DEFAULT
        },
        window_size: WINDOW,
        channel_buffer_size: CHANNEL_MESSAGES,
        // After two requests without an answer, the connection counts as lost at the third.
        keepalive_interval: Some(target.silence / 3),
        keepalive_max: 2,
        nodelay: true,
        ..Config::default()
    }
}

/// The fastest first, see the decision about SSH. Only ciphers that also authenticate, and their
/// predecessors for old servers.
const CIPHERS: &[cipher::Name] =
    &[cipher::AES_256_GCM, cipher::CHACHA20_POLY1305, cipher::AES_256_CTR, cipher::AES_192_CTR, cipher::AES_128_CTR];
const MACS: &[mac::Name] = &[mac::HMAC_SHA256_ETM, mac::HMAC_SHA512_ETM, mac::HMAC_SHA256, mac::HMAC_SHA512];
/// The bytes that a host may send in a channel before they are acknowledged.
const WINDOW: u32 = 8 << 20;
/// The packets of a channel that may wait for their reader. When they are full, the whole
/// connection waits.
const CHANNEL_MESSAGES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    #[tokio::test]
    async fn a_silent_address_does_not_hide_the_next_one() {
        // A server with a full queue answers nobody.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let full = socket.listen(0).unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = timeout(Duration::from_millis(300), TcpStream::connect(full.local_addr().unwrap())).await
        {
            queued.push(stream.unwrap());
        }
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [full.local_addr().unwrap(), good.local_addr().unwrap()];
        let reached = timeout(10 * ADDRESS_SILENT, first_of(&addresses)).await.expect("the second address answers");
        assert_eq!(reached.unwrap().peer_addr().unwrap(), addresses[1]);
    }

    #[tokio::test]
    async fn addresses_that_all_refuse_are_not_tried_again() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let refused = timeout(10 * ADDRESS_SILENT, first_of(&[closed, closed])).await.expect("it ends");
        assert_eq!(refused.unwrap_err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
        assert!(first_of(&[]).await.unwrap_err().is_none());
    }
}
