//! Connections that are lost: seen soon, told, and made again.

use std::fs;
use std::time::Duration;

use skyward_core::error::{Error, ErrorKind, ErrorStatus};
use skyward_core::remote::ssh::Target;
use skyward_core::remote::{ByteStream, Command, Remote, Ssh};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::cut::Cut;
use crate::site::{Echo, PATIENCE, connect, lives, server, shell, target, until};
use crate::sshd::Options;

/// What a host may be silent for in these tests.
const SILENCE: Duration = Duration::from_millis(900);
/// What a loss may take to be seen with the usual settings.
const BOUND: Duration = Duration::from_secs(15);

/// The error with which a stream ends.
async fn broken(stream: &mut ByteStream) -> std::io::Error {
    let read = timeout(BOUND, stream.read_u8()).await.expect("the loss was not seen");
    let error = read.expect_err("the stream goes on");
    assert_ne!(error.kind(), std::io::ErrorKind::UnexpectedEof, "an end is no loss");
    error
}

/// Runs until the loss is seen: a command that went out before is lost with its connection.
async fn again(remote: &Ssh) {
    let end = tokio::time::Instant::now() + PATIENCE;
    while let Err(error) = remote.run(&Command::new(["true"]), &|_| {}).await {
        assert_eq!((error.kind(), error.status()), (ErrorKind::Io, ErrorStatus::Temporary), "{error}");
        assert!(tokio::time::Instant::now() < end, "{error}");
    }
}

fn temporary(error: &Error, kind: ErrorKind) {
    assert_eq!((error.kind(), error.status()), (kind, ErrorStatus::Temporary), "{error}");
}

#[tokio::test]
async fn a_session_that_is_killed_ends_its_streams_and_commands_and_is_made_again() {
    let Some(sshd) = server(&Options::new()) else { return };
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
        () = until("it runs", || file.exists()) => {}
    }
    assert!(sshd.signal_sessions("KILL") > 0);
    broken(&mut stream).await;
    assert!(timeout(BOUND, stream.write_all(&[0; 1 << 20])).await.unwrap().is_err());
    let error = timeout(BOUND, run).await.unwrap().unwrap_err();
    temporary(&error, ErrorKind::Io);
    assert!(error.message().contains("was lost while"), "{error}");
    let pid = fs::read_to_string(&file).unwrap();
    until("what ran has ended", || !lives(pid.trim())).await;
    let mut stream = remote.open(echo.path()).await.unwrap();
    echo.check(&mut stream).await;
}

#[tokio::test]
async fn a_session_that_is_stopped_is_lost_when_it_was_silent_for_too_long() {
    let Some(sshd) = server(&Options::new()) else { return };
    let remote = Ssh::connect(target(&sshd).silence(SILENCE)).await.unwrap();
    let echo = Echo::start(sshd.path("s"));
    let mut reading = remote.open(echo.path()).await.unwrap();
    let mut writing = remote.open(echo.path()).await.unwrap();
    echo.check(&mut reading).await;
    assert!(sshd.signal_sessions("STOP") > 0);
    // More than all buffers on the way hold, so the session waits for the server to take it, and asks nothing itself.
    let written = timeout(BOUND, async { while writing.write_all(&[0; 1 << 20]).await.is_ok() {} }).await;
    written.expect("the loss was not seen by a writer");
    broken(&mut reading).await;
    again(&remote).await;
}

#[tokio::test]
async fn a_silent_server_is_seen_also_when_nothing_is_sent() {
    let Some(sshd) = server(&Options::new()) else { return };
    let remote = Ssh::connect(target(&sshd).silence(SILENCE)).await.unwrap();
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    sshd.signal_sessions("STOP");
    let error = broken(&mut stream).await;
    assert!(error.to_string().contains("did not answer"), "{error}");
}

#[tokio::test]
async fn a_quiet_connection_to_a_server_that_answers_is_kept() {
    let Some(sshd) = server(&Options::new()) else { return };
    let remote = Ssh::connect(target(&sshd).silence(Duration::from_secs(1))).await.unwrap();
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    let sessions = sshd.sessions();
    // Quiet for many times as long.
    assert!(timeout(Duration::from_secs(4), stream.read_u8()).await.is_err());
    echo.check(&mut stream).await;
    assert_eq!(sshd.sessions(), sessions);
}

#[tokio::test]
async fn all_who_need_a_lost_connection_wait_for_one_that_is_made() {
    let Some(mut sshd) = server(&Options::new()) else { return };
    let remote = connect(&sshd).await;
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    sshd.stop();
    broken(&mut stream).await;
    let commands: Vec<_> = (0..8).map(|n| Command::script(format!("echo {n}"))).collect();
    let all = futures_util::future::join_all(commands.iter().map(|command| remote.run(command, &|_| {})));
    let mut all = std::pin::pin!(all);
    // They try, and find nobody.
    assert!(timeout(Duration::from_millis(300), &mut all).await.is_err());
    sshd.listen().unwrap();
    for (n, output) in all.await.into_iter().enumerate() {
        assert_eq!(output.unwrap().stdout, format!("{n}\n"));
    }
    assert_eq!(sshd.sessions().len(), 1, "{:?}", sshd.log());
}

#[tokio::test]
async fn a_host_that_stays_down_is_an_error_for_all_who_wait_within_the_deadline() {
    let Some(mut sshd) = server(&Options::new()) else { return };
    let remote = Ssh::connect(target(&sshd).connect_within(Duration::from_secs(1))).await.unwrap();
    sshd.stop();
    let commands = [(); 16].map(|()| Command::new(["true"]));
    let all = futures_util::future::join_all(commands.iter().map(|command| remote.run(command, &|_| {})));
    // One attempt for all, not one after another.
    for answer in timeout(Duration::from_secs(10), all).await.unwrap() {
        temporary(&answer.unwrap_err(), ErrorKind::Io);
    }
}

#[tokio::test]
async fn what_cannot_be_reached_says_why() {
    let Some(mut sshd) = server(&Options::new()) else { return };
    let usual = target(&sshd);
    let (address, port) = (sshd.address().to_owned(), sshd.port());
    let silent = std::net::TcpListener::bind((address.as_str(), 0)).unwrap();
    let silent_port = silent.local_addr().unwrap().port();
    let error =
        Ssh::connect(usual.clone().port(silent_port).connect_within(Duration::from_millis(500))).await.unwrap_err();
    temporary(&error, ErrorKind::Timeout);
    assert!(error.message().contains("agreeing on keys"), "{error}");
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
    let Some(gate) = server(&Options::new()) else { return };
    let error = Ssh::connect(usual.clone().jump(target(&gate))).await.unwrap_err();
    temporary(&error, ErrorKind::Io);
    assert!(error.message().contains(&format!("through {}", target(&gate))), "{error}");
    let Some(closed) = server(&Options::new().without_forwarding()) else { return };
    let error = Ssh::connect(usual.jump(target(&closed))).await.unwrap_err();
    assert!(error.message().contains("through") && error.hint().is_some(), "{error}");
}

#[tokio::test]
async fn a_bastion_that_is_lost_is_connected_to_again() {
    let (Some(gate), Some(sshd)) = (server(&Options::new()), server(&Options::new())) else { return };
    let remote = Ssh::connect(target(&sshd).jump(target(&gate))).await.unwrap();
    let echo = Echo::start(sshd.path("s"));
    let mut stream = remote.open(echo.path()).await.unwrap();
    echo.check(&mut stream).await;
    gate.signal_sessions("KILL");
    broken(&mut stream).await;
    again(&remote).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_cut_is_seen_and_one_that_comes_back_is_used() {
    let cut = match Cut::new() {
        Ok(cut) => cut,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let Some(sshd) = server(&cut.options()) else { return };
    let remote = Ssh::connect(target(&sshd).silence(SILENCE).connect_within(Duration::from_secs(2))).await.unwrap();
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
