//! Connections to many hosts at once, behind one bastion, with the default limits of sshd.

use futures_util::future::join_all;
use skyward_core::error::ErrorKind;
use skyward_core::remote::ssh::{HostKeys, Key, Target};
use skyward_core::remote::{Command, Remote, Ssh};

use crate::site::{server, shell, target, until};
use crate::sshd::Options;

/// The default limits of OpenSSH.
fn stock() -> Options {
    Options::new().line("MaxStartups 10:30:100").line("MaxSessions 10")
}

/// More connections than a server accepts at a time.
const HOSTS: usize = 64;

#[tokio::test]
#[ignore = "needs sshd"]
async fn many_slots_of_a_host_behind_a_bastion_connect_at_once_and_share_its_connection() {
    let (gate, sshd) = (server(&stock()), server(&stock()));
    let remotes = join_all((0..HOSTS).map(|_| Ssh::connect(target(&sshd).jump(target(&gate))))).await;
    let remotes: Vec<Ssh> = remotes.into_iter().map(|one| one.unwrap_or_else(|error| panic!("{error:?}"))).collect();
    let echoes = join_all(remotes.iter().map(|remote| shell(remote, "echo here"))).await;
    assert!(echoes.iter().all(|echo| echo == "here\n"), "{echoes:?}");
    assert_eq!(gate.sessions().len(), 1, "{:?}", gate.log());
    assert_eq!(sshd.sessions().len(), HOSTS, "{:?}", sshd.log());
    // A broken connection to the bastion is made again, once for all hosts.
    assert!(gate.signal_sessions("KILL") > 0);
    until("the loss is seen", || gate.sessions().is_empty() && sshd.sessions().is_empty()).await;
    join_all(remotes.iter().take(8).map(async |remote| {
        // A command that was sent before the client saw the loss is lost with its connection.
        while let Err(error) = remote.run(&Command::new(["true"]), &|_| {}).await {
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.is_temporary(), "{error}");
        }
    }))
    .await;
    assert_eq!(gate.sessions().len(), 1, "{:?}", gate.log());
    drop(remotes);
    until("the connection is closed with the last host", || gate.sessions().is_empty()).await;
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_server_with_no_free_connections_is_tried_again() {
    // Connections of another client, which do not log in, take all that the server allows.
    let sshd = server(&Options::new().line("MaxStartups 2:100:2").line("LogLevel VERBOSE"));
    let strangers: Vec<_> =
        (0..2).map(|_| std::net::TcpStream::connect((sshd.address(), sshd.port())).unwrap()).collect();
    let connect = Ssh::connect(target(&sshd));
    let leave = async {
        // The client is refused at least once.
        until("the client is refused", || sshd.log().contains("MaxStartups")).await;
        drop(strangers);
    };
    let (connected, ()) = tokio::join!(connect, leave);
    assert_eq!(shell(&connected.unwrap(), "echo here").await, "here\n");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_host_that_refuses_the_client_for_good_is_not_tried_again() {
    let sshd = server(&Options::new().line("LogLevel VERBOSE"));
    sshd.make_key("stranger", "ed25519").unwrap();
    let stranger = Target::new(sshd.address()).port(sshd.port()).user(sshd.user());
    let stranger = stranger.key(Key::file(sshd.path("stranger"))).host_keys(HostKeys::pinned(sshd.host_key()));
    let error = Ssh::connect(stranger).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Login, "{error}");
    assert!(!error.is_temporary(), "{error}");
    assert_eq!(sshd.log().matches("Failed publickey").count(), 1, "{}", sshd.log());
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_bastion_connection_is_shared_only_with_identical_settings() {
    let (gate, sshd) = (server(&Options::new()), server(&Options::new()));
    let first = Ssh::connect(target(&sshd).jump(target(&gate))).await.unwrap();
    let same = Ssh::connect(target(&sshd).jump(target(&gate))).await.unwrap();
    assert_eq!(gate.sessions().len(), 1);
    // A target with another host key, or another client key, must not use the shared connection.
    let wrong = target(&gate).host_keys(HostKeys::pinned(sshd.host_key()));
    let error = Ssh::connect(target(&sshd).jump(wrong)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostKey, "{error}");
    let key = std::fs::read_to_string(gate.client_key()).unwrap();
    let other = target(&gate).key(Key::memory(key));
    let other = Ssh::connect(target(&sshd).jump(other)).await.unwrap();
    assert_eq!(gate.sessions().len(), 2);
    drop((first, same));
    until("the unused connection is closed", || gate.sessions().len() == 1).await;
    assert_eq!(shell(&other, "echo here").await, "here\n");
}
