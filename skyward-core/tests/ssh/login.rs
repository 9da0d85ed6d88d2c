//! Logins with keys from files, memory and agents, and the error when no key is accepted.

use std::process::{Child, Command, Stdio};

use skyward_core::error::{Error, ErrorKind};
use skyward_core::remote::Ssh;
use skyward_core::remote::ssh::{HostKeys, Key, Target};

use crate::site::{server, until};
use crate::sshd::{Options, Sshd};

fn with(sshd: &Sshd, keys: impl IntoIterator<Item = Key>) -> Target {
    let target = Target::new(sshd.address()).port(sshd.port()).user(sshd.user());
    keys.into_iter().fold(target.host_keys(HostKeys::pinned(sshd.host_key())), Target::key)
}

async fn refused(target: Target) -> Error {
    let error = Ssh::connect(target).await.expect_err("the login is refused");
    assert!(!error.is_temporary(), "{error}");
    error
}

struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An SSH agent for the test, with these keys.
async fn agent(sshd: &Sshd, keys: &[&str]) -> (Agent, std::path::PathBuf) {
    let socket = sshd.path("agent");
    let child = Command::new("ssh-agent").arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
    let agent = Agent(child);
    until("the agent listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok()).await;
    for key in keys {
        let mut add = Command::new("ssh-add");
        let added = add.arg("-q").arg(sshd.path(key)).env("SSH_AUTH_SOCK", &socket).stderr(Stdio::null()).status();
        assert!(added.unwrap().success());
    }
    (agent, socket)
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn keys_from_files_and_memory_are_accepted_encrypted_ones_with_their_passphrase() {
    let maker = server(&Options::new());
    maker.keygen(&["-q", "-t", "ed25519", "-N", "open sesame", "-f"], "locked").unwrap();
    let public = std::fs::read_to_string(maker.path("locked.pub")).unwrap();
    let sshd = server(&Options::new().authorized(public.trim()));
    let locked = maker.path("locked");
    let text = std::fs::read_to_string(&locked).unwrap();
    for key in [
        Key::file(sshd.client_key()),
        Key::memory(std::fs::read_to_string(sshd.client_key()).unwrap()),
        Key::file(&locked).passphrase("open sesame"),
        Key::memory(text).passphrase("open sesame"),
    ] {
        Ssh::connect(with(&sshd, [key])).await.unwrap();
    }
    for (key, why) in [
        (Key::file(&locked), "it is encrypted"),
        (Key::file(&locked).passphrase("close sesame"), "the passphrase does not decrypt it"),
        (Key::file(sshd.path("host.pub")), "it is a public key"),
        (Key::file(sshd.path("config")), "not a readable private key"),
        (Key::file(sshd.path("none")), "none"),
    ] {
        let error = refused(with(&sshd, [key])).await;
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        let text = format!("{error:?}");
        assert!(text.contains(why) && !text.contains("sesame"), "{text}");
    }
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn an_agents_keys_are_tried_one_after_another() {
    let maker = server(&Options::new());
    maker.make_key("stranger", "ed25519").unwrap();
    maker.keygen(&["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f"], "rsa").unwrap();
    let public = std::fs::read_to_string(maker.path("rsa.pub")).unwrap();
    let sshd = server(&Options::new().authorized(public.trim()));
    let (_agent, socket) = agent(&maker, &["stranger", "rsa"]).await;
    Ssh::connect(with(&sshd, [Key::agent_at(&socket)])).await.unwrap();
    // An RSA key from a file cannot be used, and the error says so.
    let error = refused(with(&sshd, [Key::file(maker.path("rsa"))])).await;
    assert!(format!("{error:#}").contains("RSA"), "{error}");
    let error = refused(with(&sshd, [Key::agent_at(maker.path("no-agent"))])).await;
    assert!(error.message().contains("no-agent"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_failed_login_reports_what_was_tried_and_what_is_accepted() {
    let sshd = server(&Options::new());
    sshd.make_key("a", "ed25519").unwrap();
    sshd.make_key("b", "ecdsa").unwrap();
    let error = refused(with(&sshd, ["a", "b"].map(|name| Key::file(sshd.path(name))))).await;
    assert_eq!(error.kind(), ErrorKind::Login);
    let text = format!("{error:#}");
    for name in ["a", "b"] {
        let fingerprint = sshd.keygen(&["-l", "-f"], &format!("{name}.pub")).unwrap();
        let fingerprint = fingerprint.split(' ').nth(1).unwrap();
        assert!(text.contains(fingerprint) && text.contains(&sshd.path(name).display().to_string()), "{text}");
    }
    assert!(text.contains("accepted methods: publickey") && text.contains(&sshd.user()), "{text}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_server_that_requires_more_than_a_key_is_reported() {
    // The server requires two keys, one after another.
    let sshd = server(&Options::new().line("AuthenticationMethods publickey,publickey"));
    let error = refused(with(&sshd, [Key::file(sshd.client_key())])).await;
    assert_eq!(error.kind(), ErrorKind::Login);
    assert!(error.hint().unwrap().contains("something more"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_connection_that_ends_after_too_many_keys_is_reported() {
    let sshd = server(&Options::new().line("MaxAuthTries 2"));
    let names = ["a", "b", "c"];
    for name in names {
        sshd.make_key(name, "ed25519").unwrap();
    }
    let error = refused(with(&sshd, names.map(|name| Key::file(sshd.path(name))))).await;
    assert_eq!(error.kind(), ErrorKind::Login);
    assert!(error.hint().unwrap().contains("after some refused keys"), "{error}");
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_server_that_ends_the_connection_at_the_first_refused_key_is_not_tried_again() {
    let sshd = server(&Options::new().line("MaxAuthTries 1"));
    sshd.make_key("stranger", "ed25519").unwrap();
    let error = refused(with(&sshd, [Key::file(sshd.path("stranger"))])).await;
    assert_eq!(error.kind(), ErrorKind::Login);
    assert!(error.hint().unwrap().contains("MaxAuthTries"), "{error}");
    let fingerprint = sshd.keygen(&["-l", "-f"], "stranger.pub").unwrap();
    assert!(format!("{error:#}").contains(fingerprint.split(' ').nth(1).unwrap()), "{error}");
    assert!(format!("{error:#}").contains("Too many authentication failures"), "{error}");
    // A service that bans clients with many failed logins has seen one. The server may write of it a
    // moment later.
    let failures = || sshd.log().matches("maximum authentication attempts exceeded").count();
    until("the server writes of a failed login", || failures() > 0).await;
    assert_eq!(failures(), 1, "{}", sshd.log());
    Ssh::connect(with(&sshd, [Key::file(sshd.client_key())])).await.unwrap();
}
