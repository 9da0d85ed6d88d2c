//! The target of a connection: where the host is, the user and keys of the login, and the trusted
//! host keys.

use std::time::Duration;

use super::host_keys::HostKeys;
use super::key::Key;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::Limits;

/// A host that is reached by SSH.
///
/// `~/.ssh/config` is not read. The defaults are documented at each method.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::remote::ssh::{HostKeys, Key, Target};
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
    /// Creates a target by the host's name or address, with port 22, the client's own user name,
    /// the keys of the client's agent and key files, and the client's `known_hosts` files.
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

    /// Adds a key to log in with. Keys are tried in this order. Without any, the keys of the agent
    /// in `SSH_AUTH_SOCK` are tried, then `~/.ssh/id_ed25519` and `~/.ssh/id_ecdsa`.
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

    /// Adds a bastion to connect through, behind those that were added before. Trust and login
    /// follow the bastion's own settings.
    #[must_use]
    pub fn jump(mut self, bastion: Self) -> Self {
        self.jumps.push(bastion);
        self
    }

    /// Sets how long connecting may take, including bastions and login. Default: 15 s. Within this
    /// time, a server that is too busy to answer is retried. This process opens at most 8
    /// connections to one address at a time; waiting for others does not count.
    #[must_use]
    pub fn connect_within(mut self, deadline: Duration) -> Self {
        self.connect_within = deadline.min(Limits::LONGEST);
        self
    }

    /// Sets how long the host may leave keep-alive requests unanswered before its connection counts
    /// as lost. Default: 12 s.
    #[must_use]
    pub fn silence(mut self, longest: Duration) -> Self {
        self.silence = longest.min(Limits::LONGEST);
        self
    }

    /// The bastions on the way, the first to connect to first, each without bastions of its own.
    pub(super) fn way(&self) -> Vec<Target> {
        let mut way = Vec::new();
        for jump in &self.jumps {
            way.extend(jump.way());
            way.push(Target { jumps: Vec::new(), ..jump.clone() });
        }
        way
    }

    /// The user to log in as.
    pub(super) fn login(&self) -> Result<String> {
        let own = || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
        self.user.clone().or_else(own).filter(|user| !user.is_empty()).ok_or_else(|| {
            let message = format!("no user is given for the login to {self}, and USER is not set");
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
    fn bastions_of_bastions_come_first() {
        let far = Target::new("far").jump(Target::new("near"));
        let target = Target::new("gpu").jump(far).jump(Target::new("last"));
        let way: Vec<_> = target.way().iter().map(|hop| hop.address.clone()).collect();
        assert_eq!(way, ["near", "far", "last"]);
    }

    #[test]
    fn an_ipv6_address_is_shown_in_brackets() {
        assert_eq!(Target::new("::1").user("me").port(2222).to_string(), "me@[::1]:2222");
    }
}
