//! The host keys of instances: the key that the client gives to the instances of a launch, and the
//! one that each makes for itself.
//!
//! All instances of one call get the same user data, and with it the same host key, which anything
//! on them can read. So each one makes a key of its own, and over the first connection, which the
//! shared key has verified, the client reads its public half and has it take the place of the
//! shared one. Keys are known by instance, never by address: EC2 gives addresses to others again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::MachineId;
use skyward_core::remote::ssh::{HostKeys, Key, KeyPair, Target};
use skyward_core::remote::{Command, Remote, Ssh};
use tokio::time::{Instant, sleep};

use crate::timing::{KEY_ANSWER, SERVER_RESTART, SERVER_RESTART_PAUSE};
use crate::user_data::FOLDER;

/// The keys of a pool. They are in this process's memory alone, so nobody else ever logs in to its
/// machines.
#[derive(Debug)]
pub(crate) struct Trust {
    pub(crate) client: KeyPair,
    known: Mutex<HashMap<MachineId, Known>>,
}

/// The host key that the client expects from an instance.
#[derive(Debug, Clone)]
enum Known {
    /// The key of its launch.
    Shared(String),
    /// The instance is changing from the shared key to its own, and may show either.
    Changing { shared: String, own: String },
    /// The instance's own key.
    Own(String),
}

impl Trust {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { client: KeyPair::generate()?, known: Mutex::default() })
    }

    /// Records the key that an instance was launched with.
    pub(crate) fn launched(&self, machine: MachineId, key: &KeyPair) {
        self.known().entry(machine).or_insert_with(|| Known::Shared(key.public().to_owned()));
    }

    pub(crate) fn forget(&self, machine: &MachineId) {
        self.known().remove(machine);
    }

    /// Connects to an instance. When this returns, the instance has a host key of its own. `target`
    /// has its address and how to reach it.
    ///
    /// # Errors
    ///
    /// Those of [`Ssh::connect`]; [`ErrorKind::Login`] for a machine of another process, and where
    /// the user may not become root.
    ///
    /// # Cancel safety
    ///
    /// May be called again.
    pub(crate) async fn connect(&self, machine: &MachineId, target: &Target) -> Result<Ssh> {
        let target = target.clone().key(Key::memory(self.client.private().clone()));
        let trusting = |keys: HostKeys| Ssh::connect(target.clone().host_keys(keys));
        let mut changed: Option<Instant> = None;
        loop {
            let known = self.known().get(machine).cloned();
            match known {
                Some(Known::Own(own)) => match trusting(HostKeys::pinned(own)).await {
                    // The server restarts with the new key. For a moment it does not listen, or
                    // still shows the old key.
                    Err(error)
                        if [ErrorKind::Io, ErrorKind::HostKey].contains(&error.kind())
                            && changed.is_some_and(|changed| changed.elapsed() < SERVER_RESTART) =>
                    {
                        sleep(SERVER_RESTART_PAUSE).await;
                    }
                    reached => return reached,
                },
                Some(Known::Changing { shared, own }) => {
                    let instance = trusting(HostKeys::pinned(shared).or_pinned(own.clone())).await?;
                    run(&instance, machine, CHANGE).await?;
                    self.learned(machine, Known::Own(own));
                    changed = Some(Instant::now());
                }
                Some(Known::Shared(shared)) => {
                    let instance = trusting(HostKeys::pinned(shared.clone())).await?;
                    let output = run(&instance, machine, MAKE).await?;
                    let own = output.lines().rev().find_map(public_key).ok_or_else(|| {
                        Error::new(ErrorKind::Login, format!("{machine} did not report its new host key"))
                            .with_context("output", output.trim())
                    })?;
                    self.learned(machine, Known::Changing { shared, own: own.clone() });
                    run(&instance, machine, CHANGE).await?;
                    self.learned(machine, Known::Own(own));
                    changed = Some(Instant::now());
                }
                None => return Err(foreign(machine)),
            }
        }
    }

    /// Records the key of an instance, unless the instance was forgotten meanwhile.
    fn learned(&self, machine: &MachineId, known: Known) {
        if let Some(there) = self.known().get_mut(machine) {
            *there = known;
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<MachineId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a machine whose keys this process does not have.
pub(crate) fn foreign(machine: &MachineId) -> Error {
    Error::new(
        ErrorKind::Login,
        format!("{machine} was launched by another process, and only that process has its keys"),
    )
}

/// Runs a script on an instance, and returns what it prints.
async fn run(instance: &Ssh, machine: &MachineId, script: &str) -> Result<String> {
    let script = format!("folder={FOLDER}\ninstance={machine}\n{ROOT}{script}");
    let output = instance.run(&Command::script(script).deadline(KEY_ANSWER), &|_| {}).await?;
    let last = output.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned();
    match output.status {
        0 => Ok(output.stdout),
        EARLY => {
            let message = format!("{} is still booting: {last}", instance.describe());
            Err(Error::new(ErrorKind::Provider, message).temporary())
        }
        OTHER => {
            let message = format!("another instance than {machine} answers at {}: {last}", instance.describe());
            Err(Error::new(ErrorKind::HostKey, message))
        }
        status => {
            let message =
                format!("{} could not change its host key (exit status {status}): {last}", instance.describe());
            Err(Error::new(ErrorKind::Login, message).with_hint(
                "the image's user must be able to run `sudo -n` without a password, as on Ubuntu, Deep Learning and Amazon Linux images; `.user(\"…\")` names another user",
            ))
        }
    }
}

/// A public key as OpenSSH writes it, without its comment.
fn public_key(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (Some("ssh-ed25519"), Some(key)) => Some(format!("ssh-ed25519 {key}")),
        _ => None,
    }
}

const ROOT: &str = include_str!("scripts/root.sh");
const MAKE: &str = include_str!("scripts/make_key.sh");
const CHANGE: &str = include_str!("scripts/change_key.sh");
/// The exit status of a script that ran too early.
const EARLY: i32 = 75;
/// The exit status of a script that ran on another instance: instances of one launch have the same
/// key at first.
const OTHER: i32 = 76;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_is_found_in_what_a_login_shell_prints() {
        let told = "Welcome!\nssh-ed25519 AAAAC3 root@ip-10-0-0-1\n";
        assert_eq!(told.lines().rev().find_map(public_key).as_deref(), Some("ssh-ed25519 AAAAC3"));
        assert_eq!(public_key("ssh-rsa AAAA"), None);
        assert_eq!(public_key(""), None);
    }

    #[tokio::test]
    async fn a_machine_of_another_process_cannot_be_logged_in_to() {
        let trust = Trust::new().unwrap();
        let error = trust.connect(&MachineId::new("i-1"), &Target::new("127.0.0.1")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Login);
        trust.launched(MachineId::new("i-1"), &KeyPair::generate().unwrap());
        trust.forget(&MachineId::new("i-1"));
        trust.learned(&MachineId::new("i-1"), Known::Own("k".into()));
        assert!(trust.known().is_empty(), "a machine that was forgotten stays so");
    }
}
