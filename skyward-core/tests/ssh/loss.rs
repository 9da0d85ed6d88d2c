//! Lost connections are noticed soon, reported, and made again.

use std::fs;
use std::time::Duration;

use skyward_core::error::{Error, ErrorKind};
use skyward_core::remote::ssh::Target;
use skyward_core::remote::{ByteStream, Command, Remote, Ssh};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::cut::Cut;
use crate::site::{Echo, TEST_STEP, connect, lives, server, shell, target, until};
use crate::sshd::Options;

/// How long a host may be silent in these tests.
const HOST_SILENCE: Duration = Duration::from_millis(900);
/// How long the client may take to notice a loss with the default settings.
const LOSS_NOTICED: Duration = Duration::from_secs(15);

/// The error with which a stream ends.
async fn broken(stream: &mut ByteStream) -> std::io::Error {
    let read = timeout(LOSS_NOTICED, stream.read_u8()).await.expect("the loss was not noticed");
    let error = read.expect_err("the stream did not end");
    assert_ne!(error.kind(), std::io::ErrorKind::UnexpectedEof, "an end is no loss");
    error
}

/// Runs commands until one succeeds. A command that was sent before the client noticed the loss is
/// lost with its connection.
async fn again(remote: &Ssh) {
    let end = tokio::time::Instant::now() + TEST_STEP;
    while let Err(error) = remote.run(&Command::new(["true"]), &|_| {}).await {
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.is_temporary(), "{error}");
        assert!(tokio::time::Instant::now() < end, "{error}");
    }
}

fn temporary(error: &Error, kind: ErrorKind) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.is_temporary(), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_killed_session_ends_its_streams_and_commands_and_is_made_again() {
    let sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    echo.check(&mut stream).await;
    let file = sshd.path("pid");
    let command = Command::script("echo $$ >\"$file.new\"; mv \"$file.new\" \"$file\"; sleep 600")
        .env("file", file.display().to_string());
    let mut run = std::pin::pin!(remote.run(&command, &|_| {}));
    tokio::select! {
        ended = &mut run => panic!("ended by itself: {ended:?}"),
        () = until("the command runs", || file.exists()) => {}
    }
    assert!(sshd.signal_sessions("KILL") > 0);
    broken(&mut stream).await;
    assert!(timeout(LOSS_NOTICED, stream.write_all(&[0; 1 << 20])).await.unwrap().is_err());
    let error = timeout(LOSS_NOTICED, run).await.unwrap().unwrap_err();
    temporary(&error, ErrorKind::Io);
    assert!(error.message().contains("was lost while"), "{error}");
    let pid = fs::read_to_string(&file).unwrap();
    until("the command has ended", || !lives(pid.trim())).await;
    let mut stream = remote.open(echo.path()).await.unwrap();
    echo.check(&mut stream).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_stopped_session_is_lost_after_the_time_of_silence() {
    let sshd = server(&Options::new());
    let remote = Ssh::connect(target(&sshd).silence(HOST_SILENCE)).await.unwrap();
    let echo = Echo::start(sshd.path("s"));
    let mut reading = remote.open(echo.path()).await.unwrap();
    let mut writing = remote.open(echo.path()).await.unwrap();
    echo.check(&mut reading).await;
    assert!(sshd.signal_sessions("STOP") > 0);
    // More than all buffers on the way hold: the session waits for the server to read, and sends no
    // requests itself.
    let written = timeout(LOSS_NOTICED, async { while writing.write_all(&[0; 1 << 20]).await.is_ok() {} }).await;
    written.expect("a writer did not notice the loss");
    broken(&mut reading).await;
    again(&remote).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_silent_server_is_noticed_even_if_nothing_is_sent() {
    let sshd = server(&Options::new());
    let remote = Ssh::connect(target(&sshd).silence(HOST_SILENCE)).await.unwrap();
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    sshd.signal_sessions("STOP");
    let error = broken(&mut stream).await;
    assert!(format!("{error:#}").contains("no longer answered"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_quiet_connection_to_a_server_that_answers_is_kept() {
    let sshd = server(&Options::new());
    let remote = Ssh::connect(target(&sshd).silence(Duration::from_secs(1))).await.unwrap();
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    let sessions = sshd.sessions();
    // The connection is quiet for many times the time of silence.
    assert!(timeout(Duration::from_secs(4), stream.read_u8()).await.is_err());
    echo.check(&mut stream).await;
    assert_eq!(sshd.sessions(), sessions);
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn all_users_of_a_lost_connection_wait_for_one_new_connection() {
    let mut sshd = server(&Options::new());
    let remote = connect(&sshd).await;
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    sshd.stop();
    broken(&mut stream).await;
    let commands: Vec<_> = (0..8).map(|n| Command::script(format!("echo {n}"))).collect();
    let all = futures_util::future::join_all(commands.iter().map(|command| remote.run(command, &|_| {})));
    let mut all = std::pin::pin!(all);
    // The commands try to reconnect, and no server listens.
    assert!(timeout(Duration::from_millis(300), &mut all).await.is_err());
    sshd.listen().unwrap();
    for (n, output) in all.await.into_iter().enumerate() {
        assert_eq!(output.unwrap().stdout, format!("{n}\n"));
    }
    assert_eq!(sshd.sessions().len(), 1, "{:?}", sshd.log());
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_host_that_stays_down_fails_all_waiting_commands_within_the_deadline() {
    let mut sshd = server(&Options::new());
    let remote = Ssh::connect(target(&sshd).connect_within(Duration::from_secs(3))).await.unwrap();
    sshd.stop();
    let commands = [(); 16].map(|()| Command::new(["true"]));
    let all = futures_util::future::join_all(commands.iter().map(|command| remote.run(command, &|_| {})));
    // All commands share one attempt.
    for answer in timeout(Duration::from_secs(10), all).await.unwrap() {
        temporary(&answer.unwrap_err(), ErrorKind::Io);
    }
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn the_error_of_an_unreachable_host_says_why() {
    let mut sshd = server(&Options::new());
    let usual = target(&sshd);
    let (address, port) = (sshd.address().to_owned(), sshd.port());
    let silent = std::net::TcpListener::bind((address.as_str(), 0)).unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let error = Ssh::connect(usual.clone().port(silent_port).connect_within(Duration::from_secs(2))).await.unwrap_err();
    temporary(&error, ErrorKind::Timeout);
    assert!(error.message().contains("exchanging keys"), "{error}");
    let error = Ssh::connect(Target::new("no-such-host.invalid").user("x")).await.unwrap_err();
    temporary(&error, ErrorKind::Io);
    assert!(error.message().contains("cannot be resolved"), "{error}");
    sshd.stop();
    let error = Ssh::connect(usual.clone()).await.unwrap_err();
    temporary(&error, ErrorKind::Io);
    assert!(
        error.message().contains("nothing listens") && error.message().contains(&format!("{address}:{port}")),
        "{error}"
    );
    let gate = server(&Options::new());
    let error = Ssh::connect(usual.clone().jump(target(&gate))).await.unwrap_err();
    temporary(&error, ErrorKind::Io);
    assert!(error.message().contains(&format!("through {}", target(&gate))), "{error}");
    let closed = server(&Options::new().without_forwarding());
    let error = Ssh::connect(usual.jump(target(&closed))).await.unwrap_err();
    assert!(error.message().contains("through") && error.hint().is_some(), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_lost_bastion_is_reconnected() {
    let (gate, sshd) = (server(&Options::new()), server(&Options::new()));
    let remote = Ssh::connect(target(&sshd).jump(target(&gate))).await.unwrap();
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    echo.check(&mut stream).await;
    gate.signal_sessions("KILL");
    broken(&mut stream).await;
    again(&remote).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs sshd, namespaces"]
async fn a_cut_network_is_noticed_and_used_again_when_it_is_back() {
    let cut = Cut::new();
    let sshd = server(&cut.options());
    let remote =
        Ssh::connect(target(&sshd).silence(HOST_SILENCE).connect_within(Duration::from_secs(3))).await.unwrap();
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    echo.check(&mut stream).await;
    cut.drop_packets(true);
    broken(&mut stream).await;
    let error = remote.run(&Command::new(["true"]), &|_| {}).await.unwrap_err();
    temporary(&error, ErrorKind::Timeout);
    cut.drop_packets(false);
    again(&remote).await;
    let mut stream = remote.open(echo.path()).await.unwrap();
    echo.check(&mut stream).await;
    assert_eq!(shell(&remote, "echo on").await, "on\n");
}
