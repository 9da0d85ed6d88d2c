//! Whether this host can boot machines: the superuser, programs, and what the kernel has.
//!
//! The file uses no other of the crate, so that the project's commands can include it with
//! `#[path]`: they look before they build the SDK of AWS.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Why this host cannot boot machines; none if it can.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("the machines of the loopback EC2 need namespaces, and this user is not root".into());
    }
    if let Some((program, package)) = PROGRAMS.iter().find(|(program, _)| !is_here(program)) {
        return Some(format!("there is no `{program}` here: apt-get install -y {package}"));
    }
    if !Path::new("/proc/self/ns/time").exists() {
        return Some("the kernel has no namespaces of time, by which a machine counts from its own boot".into());
    }
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    // The kernel may load the module when it is first used.
    let has_overlay = filesystems.lines().any(|line| line.trim_end().ends_with("overlay"))
        || Path::new("/sys/module/overlay").exists()
        || Command::new("modprobe").args(["-q", "overlay"]).status().is_ok_and(|status| status.success());
    (!has_overlay).then(|| "the kernel has no overlay file system".into())
}

/// Whether a program is in the search path, or in a folder for those of the superuser.
pub(crate) fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/usr/local/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(more).any(|folder| folder.join(program).is_file())
}

/// The programs that machines need, with their packages.
pub(crate) const PROGRAMS: [(&str, &str); 10] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setpriv", "util-linux"),
    ("pivot_root", "util-linux"),
    ("mount", "mount"),
    ("hostname", "hostname"),
    ("sshd", "openssh-server"),
    ("sudo", "sudo"),
    ("useradd", "passwd"),
    ("bash", "bash"),
];
