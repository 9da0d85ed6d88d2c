//! What identifies a host: what it reports about itself, and no name or address by which it is
//! reached.

use sha2::{Digest, Sha256};

use crate::spec::hex;

/// A host as its answers identify it.
///
/// A host is a machine id, the user that the provider logs in as, and the folder with the user's
/// claims: who has another of them has other records. None of them is shown: `man machine-id` calls
/// the machine id confidential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// A hash, for machine ids, the ledger and messages.
    pub(super) id: String,
    /// What the host compares with its own.
    pub(super) told: String,
    /// The boot, and the processes that see each other. Clones of a host differ in it.
    life: String,
}

impl Identity {
    /// Reads the line that each answer of a host begins with. A user's startup files may print more
    /// before it.
    pub(super) fn read(text: &str) -> Option<Self> {
        let told = text.lines().find_map(|line| line.strip_prefix("skyward-host "))?;
        let (life, told) = told.split_once(' ')?;
        let id = hex(&Sha256::digest(format!("skyward host {told}"))[..8]);
        Some(Self { id, told: told.to_owned(), life: life.to_owned() })
    }

    /// Why this host and another one of a list cannot both be in it, if they cannot.
    pub(super) fn clash(&self, other: &Self) -> Option<Clash> {
        match (self.id == other.id, self.life == other.life) {
            (false, _) => None,
            (true, true) => Some(Clash::Same),
            (true, false) => Some(Clash::Clone),
        }
    }
}

/// Why two entries of a list cannot be distinguished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clash {
    /// They are one host.
    Same,
    /// They are two machines with one machine id.
    Clone,
}

impl Clash {
    /// What two hosts of a list are, and what to do.
    pub(super) fn describe(self, first: &str, second: &str) -> (String, &'static str) {
        match self {
            Self::Same => (
                format!("{first} and {second} are the same host"),
                "list it once, and let it run more nodes: `.slots(2)`",
            ),
            Self::Clone => (
                format!("{first} and {second} have the same machine id, so one is a clone of the other"),
                "give one an id of its own, `rm /etc/machine-id; systemd-machine-id-setup`, or another folder, \
                 `.folder(\"/tmp/skyward-b\")`",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(life: &str, told: &str) -> Identity {
        Identity::read(&format!("hello\nskyward-host {life} {told}\nskyward-cpus 2\n")).unwrap()
    }

    #[test]
    fn a_host_is_identified_by_its_machine_its_user_and_its_folder() {
        let one = of("b.1", "0123 0 /tmp/a b");
        assert_eq!(one.id, of("c.2", "0123 0 /tmp/a b").id, "a host has the same identity after a boot");
        assert!(one.id.len() == 16 && !one.id.contains("0123"));
        for other in ["4567 0 /tmp/a b", "0123 1 /tmp/a b", "0123 0 /tmp/a"] {
            assert_eq!(one.clash(&of("b.1", other)), None, "{other}");
        }
        assert_eq!(one.clash(&of("b.1", "0123 0 /tmp/a b")), Some(Clash::Same));
        assert_eq!(one.clash(&of("c.1", "0123 0 /tmp/a b")), Some(Clash::Clone));
        assert_eq!(Identity::read("skyward-cpus 2\n"), None);
    }
}
