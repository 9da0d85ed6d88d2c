//! OpenSSH's server, which the tests of SSH start as the current user.

use std::time::Duration;

use crate::console::say;
use crate::process::Run;
use crate::sshd::Sshd;

/// Installs it where it is missing and this user may; otherwise those tests say that they were skipped, and why.
pub(crate) fn ensure() {
    if Sshd::program().is_ok() {
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
    for arguments in [&["update", "-q"][..], &["install", "-q", "-y", "--no-install-recommends", "openssh-server"]] {
        let mut words = words.iter().chain(&["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]).chain(arguments);
        let Some(program) = words.next() else { return };
        let install = Run::new(program).args(words).deadline(Duration::from_secs(300)).check();
        if let Err(error) = install {
            say!("the OpenSSH server cannot be installed: {error:#}");
            return;
        }
    }
}
