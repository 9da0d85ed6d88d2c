//! A host in a list of hosts.

use crate::error::{Error, ErrorKind, Result};
use crate::remote::ssh::{HostKeys, Key, Target};
use crate::spec::Accelerator;

/// A host that runs nodes: how to connect to it, and what a pool may use of it.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::provider::Host;
/// use skyward::remote::ssh::Key;
/// use skyward::spec::Accelerator;
///
/// let host = Host::new("gpu1")
///     .user("alice")
///     .key(Key::file("~/.ssh/id_ed25519"))
///     .slots(2)
///     .accelerator(Accelerator::new("H100", 8));
/// assert_eq!(host.to_string(), "alice@gpu1:22");
/// ```
#[derive(Debug, Clone)]
pub struct Host {
    pub(super) target: Target,
    pub(super) address: Option<String>,
    pub(super) folder: Option<String>,
    pub(super) slots: u32,
    pub(super) accelerator: Option<Accelerator>,
}

impl Host {
    /// Creates a host by its name or address, with one slot and the connection options of
    /// [`Target::new`].
    pub fn new(address: impl Into<String>) -> Self {
        Target::new(address).into()
    }

    /// Sets the port of its SSH server.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.target = self.target.port(port);
        self
    }

    /// Sets the user to log in as.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.target = self.target.user(user);
        self
    }

    /// Adds a key to log in with; see [`Target::key`].
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.target = self.target.key(key);
        self
    }

    /// Sets which host keys are trusted.
    #[must_use]
    pub fn host_keys(mut self, host_keys: HostKeys) -> Self {
        self.target = self.target.host_keys(host_keys);
        self
    }

    /// Adds a bastion to connect through; see [`Target::jump`].
    #[must_use]
    pub fn jump(mut self, bastion: Target) -> Self {
        self.target = self.target.jump(bastion);
        self
    }

    /// Sets the address at which the other nodes reach it. Default: the address at which the
    /// client, or the last bastion, has reached it.
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Keeps claims and machines in this folder on the host. A leading `~/` stands for the user's
    /// home there. The path must be short, because sockets lie in it. Clients with different
    /// folders do not see each other's claims.
    ///
    /// Default: the folder that `SKYWARD_RUNTIME_DIR` names on the host. Where it is not set,
    /// machines are in `/tmp/skyward-<user id>`, and all users of the host share its slots; the
    /// records of claims are private in any case.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<String>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Sets how many nodes it may run at a time, including those of other clients. They share its
    /// cores, memory and accelerators.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = slots;
        self
    }

    /// Declares its accelerators, so that its driver need not be asked.
    #[must_use]
    pub fn accelerator(mut self, accelerator: Accelerator) -> Self {
        self.accelerator = Some(accelerator);
        self
    }
}

/// A host with this target and one slot.
impl From<Target> for Host {
    fn from(target: Target) -> Self {
        Self { target, address: None, folder: None, slots: 1, accelerator: None }
    }
}

/// From `[user@]address[:port]`; an IPv6 address with a port is in brackets.
impl std::str::FromStr for Host {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let invalid = || {
            Error::new(ErrorKind::InvalidSpec, format!("`{text}` does not name a host"))
                .with_hint("a host is `gpu1`, `alice@gpu1`, `alice@gpu1:2222` or `alice@[fd00::1]:2222`")
        };
        let (user, place) = match text.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, text),
        };
        let (address, port) = match place.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((address, ""))) => (address, None),
            Some(Some((address, rest))) => (address, Some(rest.strip_prefix(':').ok_or_else(invalid)?)),
            Some(None) => return Err(invalid()),
            None if place.matches(':').count() > 1 => (place, None),
            None => match place.split_once(':') {
                Some((address, port)) => (address, Some(port)),
                None => (place, None),
            },
        };
        if address.is_empty() || user == Some("") {
            return Err(invalid());
        }
        let mut host = Self::new(address);
        if let Some(port) = port {
            host = host.port(port.parse().map_err(|_| invalid())?);
        }
        Ok(match user {
            Some(user) => host.user(user),
            None => host,
        })
    }
}

/// `alice@gpu1:22`.
impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.target.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_parses_from_what_it_displays() {
        for (text, shown) in [
            ("gpu1", "gpu1:22"),
            ("alice@gpu1", "alice@gpu1:22"),
            ("alice@10.0.0.1:2222", "alice@10.0.0.1:2222"),
            ("fd00::1", "[fd00::1]:22"),
            ("a@b@[fd00::1]:7", "a@b@[fd00::1]:7"),
            ("fe80::1%eth0", "[fe80::1%eth0]:22"),
            ("alice@[fe80::1%eth0]:2222", "alice@[fe80::1%eth0]:2222"),
        ] {
            let host: Host = text.parse().unwrap();
            assert_eq!(host.to_string(), shown);
            assert_eq!(shown.parse::<Host>().unwrap().to_string(), shown);
        }
        for bad in ["", "@gpu1", "gpu1:", "gpu1:port", "[fd00::1", "[fd00::1]7", "gpu1:70000"] {
            assert_eq!(bad.parse::<Host>().unwrap_err().kind(), ErrorKind::InvalidSpec, "{bad}");
        }
    }
}
