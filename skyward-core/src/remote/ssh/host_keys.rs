//! Which host keys are trusted.

use std::path::PathBuf;

/// The keys that a host may identify itself with. There is no trust on first use: a key that is not
/// listed here is refused.
///
/// `known_hosts` files are read as OpenSSH reads them: plain, pattern and hashed names, ports as
/// `[host]:port`, `@revoked` keys and `@cert-authority` lines, several keys for a host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostKeys {
    pub(super) sources: Vec<Source>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Source {
    /// The second field is whether the file must exist.
    File(PathBuf, bool),
    Pinned(String),
}

impl HostKeys {
    /// Trusts this key alone: `ssh-ed25519 AAAA…`, as in the host's
    /// `/etc/ssh/ssh_host_ed25519_key.pub`, or its fingerprint `SHA256:…`. It may be any of the
    /// host's keys: Ed25519, ECDSA, or RSA of up to 4096 bits. A fingerprint does not show the type
    /// of the key, so the client connects to the host once for each type until it finds the key.
    pub fn pinned(key: impl Into<String>) -> Self {
        Self { sources: vec![Source::Pinned(key.into())] }
    }

    /// Trusts the keys in this file. A leading `~` stands for the client's home folder.
    pub fn known_hosts(path: impl Into<PathBuf>) -> Self {
        Self { sources: vec![Source::File(path.into(), true)] }
    }

    /// Trusts this key as well.
    #[must_use]
    pub fn or_pinned(mut self, key: impl Into<String>) -> Self {
        self.sources.push(Source::Pinned(key.into()));
        self
    }

    /// Trusts the keys in this file as well.
    #[must_use]
    pub fn or_known_hosts(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(Source::File(path.into(), true));
        self
    }
}

/// Trusts the keys in `~/.ssh/known_hosts` and `/etc/ssh/ssh_known_hosts`, as far as these files
/// exist.
impl Default for HostKeys {
    fn default() -> Self {
        let files = ["~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts"];
        Self { sources: files.into_iter().map(|path| Source::File(path.into(), false)).collect() }
    }
}
