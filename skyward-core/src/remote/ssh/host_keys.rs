//! Which host keys are trusted.

use std::path::PathBuf;

/// Which keys a host may prove itself with. There is no trust on first use: a key that is not known here is refused.
///
/// `known_hosts` files are read as OpenSSH does: plain, pattern and hashed names, ports as `[host]:port`, `@revoked` keys and `@cert-authority` lines, several keys for a host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostKeys {
    pub(super) sources: Vec<Source>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    /// Whether it must be there is the second field.
    File(PathBuf, bool),
    Pinned(String),
}

impl HostKeys {
    /// This key alone: `ssh-ed25519 AAAA…`, as in the host's `/etc/ssh/ssh_host_ed25519_key.pub`, or its fingerprint `SHA256:…`. It may be any of the host's keys: Ed25519, ECDSA, or
    /// RSA of up to 4096 bits. Of a fingerprint the type is not known, so the host is connected to once for each type until the key is found.
    pub fn pinned(key: impl Into<String>) -> Self {
        Self { sources: vec![Source::Pinned(key.into())] }
    }

    /// The keys in this file. A leading `~` is the client's home folder.
    pub fn known_hosts(path: impl Into<PathBuf>) -> Self {
        Self { sources: vec![Source::File(path.into(), true)] }
    }

    /// This key too.
    #[must_use]
    pub fn or_pinned(mut self, key: impl Into<String>) -> Self {
        self.sources.push(Source::Pinned(key.into()));
        self
    }

    /// The keys in this file too.
    #[must_use]
    pub fn or_known_hosts(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(Source::File(path.into(), true));
        self
    }
}

/// The keys in `~/.ssh/known_hosts` and `/etc/ssh/ssh_known_hosts`, where they are there.
impl Default for HostKeys {
    fn default() -> Self {
        let files = ["~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts"];
        Self { sources: files.into_iter().map(|path| Source::File(path.into(), false)).collect() }
    }
}
