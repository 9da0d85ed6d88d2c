//! The machine that a client runs on, as a part of what tells providers from each other.

use std::fs;

use sha2::{Digest, Sha256};

use crate::spec::hex;

/// This machine, as the identities of providers name it: by its own id where it has one, otherwise by its host name.
///
/// The id itself is not for others to see (`man machine-id`), so what is written is derived from it.
pub(crate) fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(read);
    named(&ids, &host_name())
}

/// This machine's name, for people.
pub(crate) fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn named(ids: &[String], host_name: &str) -> String {
    // systemd writes `uninitialized` where the machine has none yet.
    let is_id = |id: &&str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    match ids.iter().map(|id| id.trim()).find(is_id) {
        Some(id) => format!("machine {}", hex(&Sha256::digest(format!("skyward {id}"))[..8])),
        None => format!("machine `{}`", host_name.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_by_its_id_and_without_one_by_its_name() {
        let id = "0123456789abcdef0123456789abcdef";
        let named = |first: &str, second: &str, host| named(&[first.to_owned(), second.to_owned()], host);
        let known = named(&format!("{id}\n"), "", "a\n");
        assert_eq!(known, named("uninitialized\n", id, "b\n"));
        assert!(known.starts_with("machine ") && !known.contains(&id[..8]), "{known}");
        assert_ne!(known, named("f123456789abcdef0123456789abcdef", "", "a\n"));
        assert_eq!(named("", "", "c0ffee\n"), "machine `c0ffee`");
        assert_eq!(machine(), machine());
    }
}
