//! One connection to a host, with many channels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use russh::client::{self, DisconnectReason, Handle, Msg};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelOpenFailure, ChannelWriteHalf, Disconnect, Sig};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::stream::Stream;
use super::timing::{CHANNEL_OPEN, CLOSE_TURN};
use super::trust::{Refused, Trust};

/// A connection after its login. Its task ends with the connection and its channels.
pub(super) struct Connection {
    handle: Handle<Client>,
    lost: Lost,
    closings: mpsc::UnboundedSender<Closing>,
}

/// Why a connection ended, as soon as it did.
pub(super) type Lost = watch::Receiver<Option<Loss>>;

/// The end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Loss {
    pub(super) why: String,
    /// Whether the server refuses this client: its reason was the login, not the load of the host
    /// or the network.
    pub(super) dismissed: bool,
}

/// A channel to close in the background, because dropping one cannot wait.
pub(super) struct Closing {
    half: ChannelWriteHalf<Msg>,
    /// Whether to kill the program in it.
    kill: bool,
}

/// Why a channel was not opened.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The connection is gone, for this reason.
    Lost(String),
    /// The server refuses.
    Server(ChannelOpenFailure),
    /// The server answers other requests, but did not answer this one within [`CHANNEL_OPEN`].
    Silent,
}

/// The client's part of a session: what the session asks of its client.
pub(super) struct Client {
    trust: Trust,
    lost: watch::Sender<Option<Loss>>,
}

/// Why a session ended.
#[derive(Debug)]
pub(super) enum SessionError {
    Protocol(russh::Error),
    HostKey(Refused),
}

/// A channel whose program is killed when this value is dropped.
pub(super) struct Running {
    half: Option<ChannelWriteHalf<Msg>>,
    kill: AtomicBool,
    closings: mpsc::UnboundedSender<Closing>,
}

impl Connection {
    /// Takes over a session after its login.
    pub(super) fn new(handle: Handle<Client>, lost: Lost) -> Self {
        let (closings, ended) = mpsc::unbounded_channel();
        tokio::spawn(close_all(ended));
        Self { handle, lost, closings }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.handle.is_closed()
    }

    /// Why it was lost.
    pub(super) fn reason(&self) -> String {
        reason(&self.lost)
    }

    pub(super) fn lost(&self) -> Lost {
        self.lost.clone()
    }

    /// A channel that can run a program.
    pub(super) async fn session(&self) -> Result<Channel<Msg>, Refusal> {
        self.opened(self.handle.channel_open_session()).await
    }

    /// A stream to a Unix socket on the host.
    pub(super) async fn to_socket(&self, path: &str) -> Result<Stream, Refusal> {
        let channel = self.opened(self.handle.channel_open_direct_streamlocal(path)).await?;
        Ok(self.stream(channel, Vec::new()))
    }

    /// A stream to a port that the host can reach.
    pub(super) async fn to_port(&self, address: &str, port: u16) -> Result<Stream, Refusal> {
        let channel = self.opened(self.handle.channel_open_direct_tcpip(address, port.into(), "127.0.0.1", 0)).await?;
        Ok(self.stream(channel, Vec::new()))
    }

    /// Turns a channel into a stream; `first` was read from it already.
    pub(super) fn stream(&self, channel: Channel<Msg>, first: Vec<u8>) -> Stream {
        let (read, write) = channel.split();
        Stream::new(read, self.running(write, false), self.lost(), first.into())
    }

    /// Closes the channel, and kills the program in it if requested, when the result is dropped.
    pub(super) fn running(&self, half: ChannelWriteHalf<Msg>, kill: bool) -> Running {
        Running { half: Some(half), kill: kill.into(), closings: self.closings.clone() }
    }

    /// Waits for a channel, as long as the connection lives and no longer than [`CHANNEL_OPEN`].
    async fn opened(
        &self,
        opening: impl Future<Output = Result<Channel<Msg>, russh::Error>>,
    ) -> Result<Channel<Msg>, Refusal> {
        let mut lost = self.lost();
        let opened = tokio::select! {
            biased;
            opened = timeout(CHANNEL_OPEN, opening) => opened,
            // A request that is handed over while the session ends may never be taken.
            _ = lost.wait_for(Option::is_some) => return Err(Refusal::Lost(self.reason())),
        };
        match opened {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(russh::Error::ChannelOpenFailure(failure))) => Err(Refusal::Server(failure)),
            Ok(Err(_)) => Err(Refusal::Lost(self.reason())),
            Err(_) => Err(Refusal::Silent),
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("lost", &self.is_lost()).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(trust: Trust) -> (Self, Lost) {
        let (lost, receiver) = watch::channel(None);
        (Self { trust, lost }, receiver)
    }
}

impl client::Handler for Client {
    type Error = SessionError;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, SessionError> {
        self.trust.check(presented).map(|()| true).map_err(SessionError::HostKey)
    }

    async fn disconnected(&mut self, reason: DisconnectReason<SessionError>) -> Result<(), SessionError> {
        let (why, dismissed, result) = match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                let dismissed = is_dismissal(&info.reason_code);
                (format!("the server ended the connection: {}", info.message), dismissed, Ok(()))
            }
            DisconnectReason::Error(error) => {
                let dismissed = matches!(error, SessionError::Protocol(russh::Error::NoAuthMethod));
                (error.to_string(), dismissed, Err(error))
            }
        };
        self.lost.send_replace(Some(Loss { why, dismissed }));
        result
    }
}

impl From<russh::Error> for SessionError {
    fn from(error: russh::Error) -> Self {
        Self::Protocol(error)
    }
}

impl std::fmt::Display for SessionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HostKey(refused) => f.write_str(refused.error.message()),
            Self::Protocol(russh::Error::KeepaliveTimeout | russh::Error::InactivityTimeout) => {
                f.write_str("the server no longer answered")
            }
            Self::Protocol(russh::Error::Disconnect | russh::Error::HUP) => {
                f.write_str("the server closed the connection")
            }
            Self::Protocol(error) => write!(f, "{error}"),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost(why) => write!(f, "the connection was lost: {why}"),
            Self::Server(ChannelOpenFailure::ConnectFailed) => f.write_str("nothing listens there"),
            Self::Server(failure) => write!(f, "the server refuses: {failure:?}"),
            Self::Silent => write!(f, "the server did not open a channel within {CHANNEL_OPEN:?}"),
        }
    }
}

impl Running {
    pub(super) fn half(&self) -> Option<&ChannelWriteHalf<Msg>> {
        self.half.as_ref()
    }

    /// The program has ended by itself.
    pub(super) fn ended(&self) {
        self.kill.store(false, Ordering::Relaxed);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(half) = self.half.take() {
            // Without its connection there is nothing to close.
            let _ = self.closings.send(Closing { half, kill: *self.kill.get_mut() });
        }
    }
}

/// Why a connection ended.
pub(super) fn reason(lost: &Lost) -> String {
    lost.borrow().as_ref().map_or_else(|| "it was closed".into(), |loss| loss.why.clone())
}

/// Whether a server that ends a connection with this code refuses this client. OpenSSH uses one
/// code for all such reasons, that of a protocol error.
fn is_dismissal(code: &Disconnect) -> bool {
    matches!(
        code,
        Disconnect::HostNotAllowedToConnect
            | Disconnect::ProtocolError
            | Disconnect::AuthCancelledByUser
            | Disconnect::NoMoreAuthMethodsAvailable
            | Disconnect::IllegalUserName
    )
}

/// Runs as long as the connection or one of its channels exists.
async fn close_all(mut closings: mpsc::UnboundedReceiver<Closing>) {
    while let Some(Closing { half, kill }) = closings.recv().await {
        let close = async {
            if kill {
                // A server that does not know this request leaves the kill to the launcher's watch,
                // which notices that the channel is closed.
                let _ = half.signal(Sig::KILL).await;
            }
            let _ = half.close().await;
        };
        let _ = timeout(CLOSE_TURN, close).await;
    }
}

/// A connection with several users.
pub(super) type Shared = Arc<Connection>;
