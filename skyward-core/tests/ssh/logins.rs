//! Logins that do something else than to run a command, or that take their time.

use std::time::Duration;

use skyward_core::error::{Error, ErrorKind};
use skyward_core::remote::{Command, Remote, Ssh};

use crate::hostile::{self, SHELLS, Sh};
use crate::site::{Echo, connect, server, shell};
use crate::sshd::{Options, Sshd};

/// A server on which each login does this; `$run` runs what the client has requested.
fn server_of(login: &str) -> Sshd {
    let login = login.replace("$run", "eval \"$SSH_ORIGINAL_COMMAND\"");
    server(&Options::new().without_streams().line(format!("ForceCommand {login}")))
}

/// The errors of a command, a file and a stream.
async fn errors(remote: &Ssh, sshd: &Sshd) -> [Error; 3] {
    let path = |name| sshd.path(name).display().to_string();
    let run = remote.run(&Command::new(["true"]).env("TOKEN", "hunter2"), &|_| {}).await.unwrap_err();
    let put = remote.put(&path("file"), b"bytes", 0o600).await.unwrap_err();
    [run, put, remote.open(&path("socket")).await.err().unwrap()]
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn what_a_login_prints_that_runs_no_command_is_in_the_error() {
    for (login, did, printed) in [
        ("/usr/sbin/nologin", "ended with status 1", "This account is currently not available."),
        ("bash -r -c \"$SSH_ORIGINAL_COMMAND\"", "ended with status 1", "restricted"),
        ("echo only backups; echo 'ask ops' >&2; exit 3", "ended with status 3", "only backups\nask ops"),
        ("set -e; echo Welcome; false; $run", "ended with status 1", "Welcome"),
        ("PATH=/none; echo Welcome; $run", "ended with status 127", "Welcome"),
        ("echo Welcome; exec bash", "ended with status 125", "Welcome"),
        ("echo Welcome; exec sh", "ended with status 125", "Welcome"),
        ("echo 'Go on?'; read -r answer; echo \"$answer\"; $run", "has read the standard input", "Go on?\nexit 125"),
        // It prints what it reads, in which the command's variables are.
        ("head -n 2; exit 4", "ended with status 4", "(the input of the login)"),
        ("true", "ended with status 0", "nothing"),
    ] {
        let sshd = server_of(login);
        let remote = connect(&sshd).await;
        for error in errors(&remote, &sshd).await {
            let said = format!("{error:?}");
            assert_eq!(error.kind(), ErrorKind::Bootstrap, "{login}: {said}");
            assert!(!error.is_temporary() && error.message().contains(did), "{login}: {said}");
            assert!(error.message().contains(sshd.address()) && error.hint().is_some(), "{login}: {said}");
            let context = error.context().iter().find(|(key, _)| *key == "it printed").unwrap();
            assert!(context.1.contains(printed), "{login}: {said}");
            assert!(!said.contains("hunter2") && !said.contains("skyward-command"), "{login}: {said}");
        }
    }
}

#[tokio::test]
#[ignore = "needs sshd"]
async fn a_slow_login_does_not_count_as_a_part_of_the_command() {
    let sshd = server_of("sleep 2; $run");
    let remote = connect(&sshd).await;
    let output = remote.run(&Command::script("echo here").deadline(Duration::from_secs(1)), &|_| {}).await.unwrap();
    assert_eq!(output.stdout, "here\n");
    let error = remote.run(&Command::script("sleep 60").deadline(Duration::from_secs(1)), &|_| {}).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Timeout && error.message().contains("within 1s"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sshd, dash, busybox"]
async fn a_users_settings_change_no_command_no_file_and_no_stream() {
    for name in SHELLS {
        let sh = Sh::new(name).unwrap();
        let options =
            hostile::environment().iter().fold(Options::new(), |options, (name, value)| options.env(name, value));
        let sshd = server(&options.without_streams().env("PATH", sh.path()));
        let remote = connect(&sshd).await;
        // Longer than the time after which such a user's shell reads no more.
        let slow = "printf 'it is '; sleep 1.5; cat";
        let output = remote.run(&Command::script(slow).stdin("here"), &|_| {}).await.unwrap();
        assert_eq!((output.status, output.stdout.as_str()), (0, "it is here"), "{name}: {output:?}");
        assert_eq!(shell(&remote, "cd /; sleep 1.5; pwd").await, "/\n", "{name}");
        let path = sshd.path("new folder").join("file");
        for bytes in [&b"first"[..], b"second", b"second"] {
            remote.put(path.to_str().unwrap(), bytes, 0o600).await.unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name}");
        }
        let echo = Echo::start(sshd.path("s"));
        echo.check(&mut remote.open(echo.path()).await.unwrap()).await;
    }
}
