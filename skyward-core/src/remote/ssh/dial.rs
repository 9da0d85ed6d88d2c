//! From a target to a connection: addresses, bastions, host keys, login.

use std::io;
use std::sync::Arc;

use russh::client::{self, Config, Handle};
use russh::{Preferred, cipher, mac};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use super::connection::{Client, Connection, Refusal, SessionError, Shared};
use super::login::log_in;
use super::target::Target;
use super::trust::Trust;
use super::watched::Watched;
use crate::error::{Error, ErrorKind, Result};

/// Connects to a target through its bastions, and logs in.
///
/// # Errors
///
/// [`ErrorKind::Io`], temporary, when it cannot be reached; [`ErrorKind::HostKey`] and [`ErrorKind::Login`] when one of them is not who it is expected to be, or does not let
/// the client in; [`ErrorKind::InvalidSpec`] for keys that cannot be used; [`ErrorKind::Timeout`], temporary, at the deadline.
///
/// # Cancel safety
///
/// Dropping the future leaves no connection.
pub(super) async fn dial(target: &Target, deadline: Instant) -> Result<Shared> {
    let deadline = deadline.min(Instant::now() + target.connect_within);
    let begin = Instant::now();
    let mut at = String::new();
    match timeout_at(deadline, go(target, &mut at)).await {
        Ok(connected) => connected,
        Err(_) => {
            let message = format!("cannot connect to {target}: not done within {:?}, while {at}", deadline - begin);
            let error = Error::new(ErrorKind::Timeout, message).temporary();
            Err(error.with_hint("a firewall that drops packets looks like this, and a host that is down or overloaded: try `ssh` to the same address from here"))
        }
    }
}

async fn go(target: &Target, at: &mut String) -> Result<Shared> {
    let mut near: Option<(Shared, Target)> = None;
    for hop in target.way() {
        near = Some((Arc::new(step(near.as_ref(), &hop, at).await?), hop));
    }
    Ok(Arc::new(step(near.as_ref(), target, at).await?))
}

/// One hop further.
async fn step(near: Option<&(Shared, Target)>, hop: &Target, at: &mut String) -> Result<Connection> {
    let trust = Trust::of(hop).await?;
    match near {
        None => {
            *at = format!("connecting to {hop}");
            let stream = tcp(hop).await?;
            shake_hands(stream, hop, trust, at).await
        }
        Some((bastion, name)) => {
            *at = format!("connecting to {hop} through {name}");
            let stream =
                bastion.to_port(&hop.address, hop.port).await.map_err(|refusal| not_through(hop, name, refusal))?;
            shake_hands(stream, hop, trust, at).await
        }
    }
}

async fn tcp(target: &Target) -> Result<TcpStream> {
    let (address, port) = (target.address.as_str(), target.port);
    let unresolved = |why: String| {
        Error::new(ErrorKind::Io, format!("cannot connect to {target}: the name {address} cannot be resolved: {why}"))
            .temporary()
            .with_hint("check the name; a host of ~/.ssh/config is not known here: give its address")
    };
    let addresses = lookup_host((address, port)).await.map_err(|error| unresolved(error.to_string()))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Small frames do not wait for more; a system that refuses this is only slower.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| unresolved("it has no address".into()), |error| unreachable(target, error)))
}

fn unreachable(target: &Target, error: io::Error) -> Error {
    let (why, hint) = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            ("nothing listens on this port", "is sshd running there, and on this port? `systemctl status ssh`")
        }
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            ("there is no route to it", "is the host up, and this client in the right network or VPN?")
        }
        io::ErrorKind::TimedOut => ("it does not answer", "is the host up, and does a firewall drop the packets?"),
        _ => ("the connection fails", "try `ssh` to the same address from here"),
    };
    Error::new(ErrorKind::Io, format!("cannot connect to {target}: {why} ({error})"))
        .temporary()
        .with_hint(hint)
        .with_source(error)
}

fn not_through(target: &Target, bastion: &Target, refusal: Refusal) -> Error {
    use russh::ChannelOpenFailure::{AdministrativelyProhibited, ConnectFailed};
    let error = |why: &str| Error::new(ErrorKind::Io, format!("cannot connect to {target} through {bastion}: {why}"));
    match refusal {
        Refusal::Lost(why) => error(&format!("the connection to it was lost: {why}")).temporary(),
        Refusal::Server(ConnectFailed) => error("it cannot reach it")
            .temporary()
            .with_hint("is the host up, does the bastion know its name, and is the port right?"),
        Refusal::Server(AdministrativelyProhibited) => error("it forbids to go through")
            .with_hint("its sshd_config needs `AllowTcpForwarding yes`, and `PermitOpen` has to allow this address"),
        Refusal::Server(other) => error(&format!("it refuses: {other:?}")).temporary(),
    }
}

async fn shake_hands<S>(stream: S, target: &Target, trust: Trust, at: &mut String) -> Result<Connection>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    *at = format!("agreeing on keys with {target}");
    let config = Arc::new(config(target, &trust));
    let (client, lost) = Client::new(trust);
    let connected = client::connect_stream(config, Watched::new(stream, target.silence), client).await;
    let mut handle: Handle<Client> = connected.map_err(|error| not_agreed(target, error))?;
    *at = format!("logging in to {target}");
    log_in(&mut handle, target).await?;
    Ok(Connection::new(handle, lost))
}

fn not_agreed(target: &Target, error: SessionError) -> Error {
    let failed = |why: String| Error::new(ErrorKind::Io, format!("cannot connect to {target}: {why}"));
    match error {
        SessionError::HostKey(error) => error,
        SessionError::Protocol(russh::Error::NoCommonAlgo { kind, ours, theirs }) => failed(format!(
            "there is no {} that both sides have: it offers {}, and this client has {}",
            format!("{kind:?}").to_lowercase(),
            theirs.join(", "),
            ours.join(", ")
        ))
        .with_hint("RSA host keys are not supported: give the host an Ed25519 key, `ssh-keygen -A`; an old server has to be renewed"),
        SessionError::Protocol(russh::Error::Version) => {
            failed("what listens there does not speak SSH".into()).with_hint("check the port")
        }
        SessionError::Protocol(error @ (russh::Error::Disconnect | russh::Error::HUP | russh::Error::IO(_))) => {
            failed(format!("it closed the connection before keys were agreed on ({error})"))
                .temporary()
                .with_hint("a server that has too many logins under way does that (`MaxStartups` in its sshd_config), and one that bans this client")
                .with_source(error)
        }
        SessionError::Protocol(error) => failed(format!("keys cannot be agreed on: {error}")).with_source(error),
    }
}

fn config(target: &Target, trust: &Trust) -> Config {
    Config {
        preferred: Preferred {
            key: trust.algorithms().into(),
            host_key_certificates: trust.certificate_algorithms().into(),
            cipher: CIPHERS.into(),
            mac: MACS.into(),
            ..Preferred::DEFAULT
        },
        window_size: WINDOW,
        channel_buffer_size: CHANNEL_MESSAGES,
        // Asked twice without an answer, at the third time it is lost.
        keepalive_interval: Some(target.silence / 3),
        keepalive_max: 2,
        nodelay: true,
        ..Config::default()
    }
}

/// The fastest first, see the decision about SSH; only those that also authenticate, and their successors for old servers.
const CIPHERS: &[cipher::Name] =
    &[cipher::AES_256_GCM, cipher::CHACHA20_POLY1305, cipher::AES_256_CTR, cipher::AES_192_CTR, cipher::AES_128_CTR];
const MACS: &[mac::Name] = &[mac::HMAC_SHA256_ETM, mac::HMAC_SHA512_ETM, mac::HMAC_SHA256, mac::HMAC_SHA512];
/// Bytes that a host may send in a channel before it hears that they were taken.
const WINDOW: u32 = 8 << 20;
/// Packets of a channel that wait for their reader. When they are full, the whole connection waits.
const CHANNEL_MESSAGES: usize = 4096;
