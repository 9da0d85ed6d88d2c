//! Where a host is, as whom it is reached, with which keys, and how it proves that it is that host.

use std::time::Duration;

use super::host_keys::HostKeys;
use super::key::Key;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::Limits;

/// A host that is reached by SSH.
///
/// Nothing of `~/.ssh/config` is read: what is not said here has the default that is named here.
///
/// ```
/// use skyward_core::remote::ssh::{HostKeys, Key, Target};
///
/// let bastion = Target::new("gate.example.org").user("alice");
/// let target = Target::new("gpu1")
///     .port(2222)
///     .user("alice")
///     .key(Key::file("~/.ssh/id_ed25519"))
///     .host_keys(HostKeys::pinned("SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"))
///     .jump(bastion);
/// assert_eq!(target.to_string(), "alice@gpu1:2222");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub(super) address: String,
    pub(super) port: u16,
    pub(super) user: Option<String>,
    pub(super) keys: Vec<Key>,
    pub(super) host_keys: HostKeys,
    pub(super) jumps: Vec<Target>,
    pub(super) connect_within: Duration,
    pub(super) silence: Duration,
}

impl Target {
    /// A host by its name or address: port 22, the client's own user name, the keys of its agent and its key files, and its `known_hosts` files.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            port: 22,
            user: None,
            keys: Vec::new(),
            host_keys: HostKeys::default(),
            jumps: Vec::new(),
            connect_within: Duration::from_secs(15),
            silence: Duration::from_secs(12),
        }
    }

    /// Sets the port of its SSH server.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets the user to log in as.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Adds a key to log in with; keys are tried in this order. With none, the keys of the agent in `SSH_AUTH_SOCK` are tried, then `~/.ssh/id_ed25519` and `~/.ssh/id_ecdsa`.
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.keys.push(key);
        self
    }

    /// Sets which host keys are trusted.
    #[must_use]
    pub fn host_keys(mut self, host_keys: HostKeys) -> Self {
        self.host_keys = host_keys;
        self
    }

    /// Adds a bastion to go through, behind those that were added before. It is trusted and logged in to by its own settings.
    #[must_use]
    pub fn jump(mut self, bastion: Self) -> Self {
        self.jumps.push(bastion);
        self
    }

    /// Sets how long connecting may take, bastions and login included; 15 s otherwise. Within it, a server that is too busy to answer is tried again. What waits for other connections
    /// of this process to the same address, of which 8 are made at a time, has not begun.
    #[must_use]
    pub fn connect_within(mut self, deadline: Duration) -> Self {
        self.connect_within = deadline.min(Limits::LONGEST);
        self
    }

    /// Sets how long the host may be silent, although it was asked for a sign, before its connection counts as lost; 12 s otherwise.
    #[must_use]
    pub fn silence(mut self, longest: Duration) -> Self {
        self.silence = longest.min(Limits::LONGEST);
        self
    }

    /// The bastions on the way, the first one to connect to first, each without bastions of its own.
    pub(super) fn way(&self) -> Vec<Target> {
        let mut way = Vec::new();
        for jump in &self.jumps {
            way.extend(jump.way());
            way.push(Target { jumps: Vec::new(), ..jump.clone() });
        }
        way
    }

    /// Whom to log in as.
    pub(super) fn login(&self) -> Result<String> {
        let own = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        self.user.clone().or_else(own).filter(|user| !user.is_empty()).ok_or_else(|| {
            let message = format!("it is not said whom to log in to {self} as, and USER is not set");
            Error::new(ErrorKind::InvalidSpec, message).with_hint("name the user: `.user(\"alice\")`")
        })
    }
}

/// `alice@gpu1:22`.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.address.contains(':') {
            write!(f, "[{}]:{}", self.address, self.port)
        } else {
            write!(f, "{}:{}", self.address, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_goes_through_bastions_of_bastions_first() {
        let far = Target::new("far").jump(Target::new("near"));
        let target = Target::new("gpu").jump(far).jump(Target::new("last"));
        let way: Vec<_> = target.way().iter().map(|hop| hop.address.clone()).collect();
        assert_eq!(way, ["near", "far", "last"]);
    }

    #[test]
    fn an_address_of_version_six_is_shown_in_brackets() {
        assert_eq!(Target::new("::1").user("me").port(2222).to_string(), "me@[::1]:2222");
    }
}
