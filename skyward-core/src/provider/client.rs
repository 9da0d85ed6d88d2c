//! The machine that a client runs on.

use std::fs;

use sha2::{Digest, Sha256};

use super::uptime;
use crate::spec::hex;

/// This machine, as the ledger names it: by its own id, which it keeps whatever its name and address
/// are. Without one, as in many containers, by its boot and the processes that it can see: no process
/// of this machine outlives those.
///
/// The machine id is confidential (`man machine-id`), so the result contains a hash of it.
pub(crate) fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let ids = ["/etc/machine-id", "/var/lib/dbus/machine-id"].map(read);
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    named(&ids, &format!("{} {}", uptime::boot().unwrap_or_default(), space.display()))
}

/// This machine's host name, for people.
pub(crate) fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

fn named(ids: &[String], life: &str) -> String {
    // systemd writes `uninitialized` where the machine has no id yet.
    let is_id = |id: &&str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let hash = |text: String| hex(&Sha256::digest(text)[..8]);
    match ids.iter().map(|id| id.trim()).find(is_id) {
        Some(id) => format!("machine {}", hash(format!("skyward {id}"))),
        None => format!("machine of boot {}", hash(format!("skyward {life}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_by_its_id_or_else_by_its_boot_and_never_by_its_host_name() {
        let id = "0123456789abcdef0123456789abcdef";
        let named = |first: &str, second: &str, life| named(&[first.to_owned(), second.to_owned()], life);
        let known = named(&format!("{id}\n"), "", "a");
        assert_eq!(known, named("uninitialized\n", id, "b"));
        assert!(known.starts_with("machine ") && !known.contains(&id[..8]), "{known}");
        assert_ne!(known, named("f123456789abcdef0123456789abcdef", "", "a"));
        let nameless = named("", "", "boot pid:[1]");
        assert_eq!(nameless, named("", "uninitialized", "boot pid:[1]"));
        assert_ne!(nameless, named("", "", "boot pid:[2]"), "another container on the same kernel");
        assert!(nameless.starts_with("machine of boot "), "{nameless}");
        let (name, machine) = (host_name(), machine());
        assert!(!name.is_empty() && !machine.contains(&name), "{machine}");
    }
}
