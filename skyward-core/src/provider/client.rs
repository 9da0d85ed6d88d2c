//! The machine that a client runs on, as a part of provider identities.

use std::fs;

use sha2::{Digest, Sha256};

use crate::spec::hex;

/// This machine, as provider identities name it: by its own id where it has one, otherwise by its
/// host name.
///
/// The machine id is confidential (`man machine-id`), so the result contains a hash of it.
pub(crate) fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(read);
    named(&ids, &host_name())
}

/// This machine's host name, for people.
pub(crate) fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn named(ids: &[String], host_name: &str) -> String {
    // systemd writes `uninitialized` where the machine has no id yet.
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
    fn a_machine_is_named_by_its_id_or_else_by_its_host_name() {
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
