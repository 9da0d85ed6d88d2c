//! OpenSSH's server, which the tests of SSH start as the current user, and sudo, which the machines
//! of the loopback EC2 have as those of EC2 do.

use std::path::Path;
use std::time::Duration;

use crate::process::Run;
use crate::say;
use crate::sshd::Sshd;

/// Installs it where it is missing and this user may; otherwise those tests say that they were
/// skipped, and why.
pub fn ensure() {
    let mut packages = Vec::new();
    if Sshd::program().is_err() {
        packages.push("openssh-server");
    }
    if !["/usr/bin/sudo", "/bin/sudo"].iter().any(|program| Path::new(program).is_file()) {
        packages.push("sudo");
    }
    if packages.is_empty() {
        return;
    }
    let may = |program: &str, args: &[&str]| Run::new(program).args(args).read().is_ok();
    let words: &[&str] = if may("sh", &["-c", "[ $(id -u) = 0 ]"]) {
        &[]
    } else if may("sudo", &["-n", "true"]) {
        &["sudo", "-n"]
    } else {
        return;
    };
    let install: Vec<&str> =
        ["install", "-q", "-y", "--no-install-recommends"].into_iter().chain(packages.clone()).collect();
    for arguments in [&["update", "-q"][..], &install] {
        let mut words = words.iter().chain(&["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]).chain(arguments);
        let Some(program) = words.next() else { return };
        let install = Run::new(program).args(words).deadline(Duration::from_secs(300)).check();
        if let Err(error) = install {
            say!("cannot install {}: {error:#}", packages.join(" and "));
            return;
        }
    }
}
