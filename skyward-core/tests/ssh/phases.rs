//! Servers that go silent or end at each step of a connection: requests to them end soon, and the
//! error names the step.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use russh::keys::{PrivateKey, load_secret_key};
use russh::server::{self, Auth, ChannelOpenHandle, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, MethodKind, MethodSet};
use skyward_core::error::{Error, ErrorKind};
use skyward_core::remote::ssh::{HostKeys, Key, Target};
use skyward_core::remote::{Command, Remote, Ssh};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::site::server;
use crate::sshd::{Options, Sshd};

/// The step at which a server acts, after all earlier steps succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Offer(Act),
    /// The server refuses the first key, and acts at the second.
    SecondOffer(Act),
    Login(Act),
    Open(Act),
    Exec(Act),
    /// The server does not start the program.
    NoExec,
    /// The program neither prints nor ends.
    Program,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Silence,
    Death,
}

/// A server that accepts every key.
struct Fake {
    at: At,
    offers: u32,
    /// Requests that are never answered.
    kept: Vec<ChannelOpenHandle>,
}

impl Act {
    async fn act(self) -> Result<(), russh::Error> {
        match self {
            Self::Silence => pending().await,
            Self::Death => Err(russh::Error::Disconnect),
        }
    }
}

impl server::Handler for Fake {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, _: &str, _: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        self.offers += 1;
        match self.at {
            At::Offer(act) => act.act().await?,
            At::SecondOffer(act) if self.offers > 1 => act.act().await?,
            At::SecondOffer(_) => {
                let methods = MethodSet::from(&[MethodKind::PublicKey][..]);
                return Ok(Auth::Reject { proceed_with_methods: Some(methods), partial_success: false });
            }
            _ => {}
        }
        Ok(Auth::Accept)
    }

    async fn auth_publickey(&mut self, _: &str, _: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        if let At::Login(act) = self.at {
            act.act().await?;
        }
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        match self.at {
            At::Open(Act::Silence) => self.kept.push(reply),
            At::Open(Act::Death) => return Err(russh::Error::Disconnect),
            _ => reply.accept().await,
        }
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        _: &str,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        match self.at {
            At::Open(_) => self.channel_open_session(channel, reply, session).await,
            // The server forwards no streams, so the client must start a program for them; dropping
            // the handle refuses.
            _ => {
                drop(reply);
                Ok(())
            }
        }
    }

    async fn exec_request(&mut self, channel: ChannelId, _: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        match self.at {
            At::Exec(act) => act.act().await,
            At::NoExec => session.channel_failure(channel),
            _ => Ok(()),
        }
    }
}

/// Serves each connection in this way. As with OpenSSH, nothing may be sent in a channel before its
/// program runs.
async fn fake(keys: &Sshd, at: At) -> Target {
    let key: PrivateKey = load_secret_key(keys.path("host"), None).unwrap();
    let config = server::Config {
        keys: vec![key],
        window_size: 0,
        auth_rejection_time: Duration::ZERO,
        ..server::Config::default()
    };
    let config = Arc::new(config);
    listen(keys, move |stream| {
        let config = Arc::clone(&config);
        async move {
            if let Ok(session) = server::run_stream(config, stream, Fake { at, offers: 0, kept: Vec::new() }).await {
                let _ = session.await;
            }
        }
    })
    .await
}

/// Listens, and serves each connection with `serve`.
async fn listen<F>(keys: &Sshd, serve: impl Fn(TcpStream) -> F + Send + 'static) -> Target
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((keys.address(), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    let target = Target::new(keys.address()).port(port).user("me");
    target.key(Key::file(keys.client_key())).host_keys(HostKeys::pinned(keys.host_key()))
}

/// The error of a future that fails in time.
async fn soon<T>(what: impl Future<Output = skyward_core::Result<T>>) -> Error {
    let begin = Instant::now();
    let error = timeout(TEST_STEP, what).await.expect("the future ends in time").err().expect("the future fails");
    println!("{:?}: {error}", begin.elapsed());
    error
}

fn is(error: &Error, kind: ErrorKind, temporary: bool, said: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert_eq!(error.is_temporary(), temporary, "{error:?}");
    assert!(format!("{error:#}").contains(said), "`{said}` is missing: {error:?}");
}

/// Checks the error of a connection that was retried until its deadline, which any step may have
/// reached.
fn is_tried_again(error: &Error) {
    assert!(error.is_temporary(), "{error:?}");
    let said = format!("{error:#}");
    let steps = ["while connecting to", "while exchanging keys with", "while me logged in", "while logging in to me@"];
    assert!(steps.iter().any(|step| said.contains(step)), "{said}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_connection_attempt_ends_at_its_deadline_and_names_the_step() {
    let keys = server(&Options::new());
    let attempt = async |at| soon(Ssh::connect(fake(&keys, at).await.connect_within(CONNECT_WITHIN))).await;
    let silent = join_all([At::Offer(Act::Silence), At::Login(Act::Silence)].map(&attempt)).await;
    for error in silent {
        is(&error, ErrorKind::Timeout, true, "logging in to me@");
    }
    let dead = join_all([At::Offer(Act::Death), At::Login(Act::Death)].map(&attempt)).await;
    dead.iter().for_each(is_tried_again);
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn an_attempt_given_up_during_key_exchange_closes_its_connection() {
    let keys = server(&Options::new());
    let (ends, mut ended) = mpsc::unbounded_channel();
    let target = listen(&keys, move |mut stream| {
        let ends = ends.clone();
        async move {
            stream.write_all(b"SSH-2.0-silent\r\n").await.unwrap();
            let read = stream.read_to_end(&mut Vec::new()).await;
            ends.send(read.is_ok()).unwrap();
        }
    })
    .await;
    let error = soon(Ssh::connect(target.connect_within(CONNECT_WITHIN))).await;
    is(&error, ErrorKind::Timeout, true, "exchanging keys with me@");
    assert_eq!(timeout(TEST_STEP, ended.recv()).await.expect("the connection is closed"), Some(true));
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn dropped_attempts_do_not_hold_up_others() {
    let keys = server(&Options::new());
    let target = listen(&keys, |stream| async move {
        let _stream = stream;
        pending().await
    })
    .await;
    // More attempts than are made at the same time, each with a long deadline.
    let long = target.clone().connect_within(TEST_STEP * 10);
    let dropped: Vec<_> = (0..20).map(|_| tokio::spawn(Ssh::connect(long.clone()))).collect();
    let shared = Ssh::new(target.connect_within(CONNECT_WITHIN));
    let run = Command::new(["true"]);
    assert!(timeout(CONNECT_WITHIN / 4, shared.run(&run, &|_| {})).await.is_err(), "the server has answered");
    for dial in &dropped {
        dial.abort();
    }
    is(&soon(shared.run(&run, &|_| {})).await, ErrorKind::Timeout, true, "exchanging keys");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_command_ends_with_its_connection_at_each_step() {
    let keys = server(&Options::new());
    for at in [At::Open(Act::Death), At::Exec(Act::Death)] {
        let remote = Ssh::connect(fake(&keys, at).await).await.unwrap();
        let run = Command::new(["true"]).deadline(TEST_STEP * 10);
        is(&soon(remote.run(&run, &|_| {})).await, ErrorKind::Io, true, "was lost while `true` ran");
        let open = soon(remote.open("/run/socket")).await;
        is(&open, ErrorKind::Io, true, "the connection was lost");
    }
    let remote = Ssh::connect(fake(&keys, At::NoExec).await).await.unwrap();
    let run = Command::new(["true"]).deadline(TEST_STEP * 10);
    is(&soon(remote.run(&run, &|_| {})).await, ErrorKind::Bootstrap, false, "runs no programs");
    let open = soon(remote.open("/run/socket")).await;
    is(&open, ErrorKind::Bootstrap, false, "forwards no streams");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_server_that_opens_no_channel_is_reported() {
    let keys = server(&Options::new());
    let remote = Ssh::connect(fake(&keys, At::Open(Act::Silence)).await).await.unwrap();
    // Both ends are in this process and answer each other at once; only the channel is waited for.
    tokio::time::pause();
    let run = Command::new(["true"]).deadline(Duration::from_secs(600));
    let run = remote.run(&run, &|_| {}).await.unwrap_err();
    is(&run, ErrorKind::Timeout, true, "did not open a channel within");
    let open = remote.open("/run/socket").await.err().unwrap();
    is(&open, ErrorKind::Io, true, "did not open a channel within");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_login_that_does_not_end_is_reported() {
    let keys = server(&Options::new());
    let remote = Ssh::connect(fake(&keys, At::Program).await).await.unwrap();
    tokio::time::pause();
    let run = Command::new(["true"]).deadline(Duration::from_secs(1));
    let run = remote.run(&run, &|_| {}).await.unwrap_err();
    is(&run, ErrorKind::Timeout, true, "the login did not run the program within 60s");
    let open = remote.open("/run/socket").await.err().unwrap();
    is(&open, ErrorKind::Timeout, true, "the login did not run the program within 60s");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_server_that_ends_the_connection_is_retried_only_if_it_refused_no_key() {
    let keys = server(&Options::new());
    let second = keys.make_key("second", "ed25519").unwrap();
    let target = async |at| fake(&keys, at).await.key(Key::file(&second));
    is_tried_again(&soon(Ssh::connect(target(At::Offer(Act::Death)).await.connect_within(CONNECT_WITHIN))).await);
    let error = soon(Ssh::connect(target(At::SecondOffer(Act::Death)).await)).await;
    is(&error, ErrorKind::Login, false, "ended the connection while me logged in");
}

/// The deadline of a connection attempt that reaches it.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Longer than any test step takes on a busy host.
const TEST_STEP: Duration = Duration::from_secs(20);
