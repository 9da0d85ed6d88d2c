//! Causes in the machine itself: its disk and folders, its package manager, its libraries.

use super::{Cause, Evidence, between};

/// A full disk, or a folder that cannot be written to or from which no program may run.
pub(super) fn of_folder(evidence: &Evidence<'_>) -> Option<Cause> {
    if evidence.has(&[
        "no space left on device",
        "os error 28",
        "disk quota exceeded",
        "os error 122",
        "enough free space",
    ]) {
        let folder = &evidence.plan.folder;
        let hint = match evidence.step {
            "packages" | "python" => "free some space in /var: `df -h /var`, `sudo apt-get clean`".to_owned(),
            "agent" | "setup" => format!("free some space where the machine's own folder is: `df -h {folder}`"),
            _ => "free some space, or set SKYWARD_CACHE_DIR (environments) and UV_CACHE_DIR (downloads) to folders on another disk: `df -h`".to_owned(),
        };
        return Some(Cause::of_disk("the disk is full", hint));
    }
    // The shell's exit status for a program that it finds and may not run.
    let not_run = evidence.output.status == 126 && evidence.has(&["permission denied"]);
    if not_run || evidence.has(&["is mounted noexec", "failed to map segment from shared object"]) {
        let folder = between(evidence.text, "cannot be run from ", &[":"]).unwrap_or("its folder for environments");
        return Some(Cause::of_disk(
            format!("no program may be run from {folder}: its file system is mounted noexec"),
            "set SKYWARD_CACHE_DIR on the machine to a folder where programs may run: `findmnt -o TARGET,OPTIONS`",
        ));
    }
    let refused =
        evidence.has(&["read-only file system", "permission denied", "cannot create", "os error 13", "os error 30"]);
    (refused && !evidence.has(&["failed to build"])).then(|| {
        Cause::of_disk(
            "a folder cannot be written to",
            "set SKYWARD_CACHE_DIR to a folder that this user may write to; for uv's cache, set UV_CACHE_DIR",
        )
    })
}

/// What keeps apt-get from installing, apart from the network.
pub(super) fn of_apt(evidence: &Evidence<'_>) -> Option<Cause> {
    if evidence.has(&["error: apt is locked by"]) {
        let holder = between(evidence.text, "error: apt is locked by ", &[", and was"]).unwrap_or("another process");
        return Some(Cause::passing(
            format!("apt is locked by {holder}"),
            "the machine's own updates hold the lock for minutes after its first start; find the process: `ps -ef | grep -E 'apt|dpkg'`",
        ));
    }
    if let Some(missing) = between(evidence.text, "error: not installed:", &[";"]) {
        let why = between(evidence.text, "; ", &[]).unwrap_or("none may be installed");
        return Some(Cause::new(
            format!("Debian packages are missing, and {why}"),
            if evidence.has(&["no apt-get"]) {
                "run the pool on machines with Debian or Ubuntu, or leave `.apt(…)` out".to_owned()
            } else {
                format!("install them on the machine: `sudo apt-get install -y {missing}`")
            },
        ));
    }
    if !evidence.is_of_apt() {
        return None;
    }
    if evidence.has(&["dpkg was interrupted", "dpkg --configure -a"]) {
        return Some(Cause::new(
            "an earlier installation on the machine was cut short",
            "complete it on the machine: `sudo dpkg --configure -a`",
        ));
    }
    if evidence.has(&["unmet dependencies", "fix-broken", "held broken packages"]) {
        return Some(Cause::new(
            "the Debian packages of the machine contradict each other",
            "repair them on the machine: `sudo apt-get --fix-broken install`",
        ));
    }
    None
}

/// A package that apt-get does not know. The same message may come from lists that could not be
/// updated.
fn of_name(evidence: &Evidence<'_>) -> Option<Cause> {
    let unknown =
        evidence.has(&["unable to locate package", "has no installation candidate", "couldn't find any package"]);
    (evidence.is_of_apt() && unknown).then(|| {
        let name = between(evidence.text, "Unable to locate package ", &[" "])
            .or_else(|| between(evidence.text, "Package '", &["'"]))
            .unwrap_or("of that name");
        Cause::new(
            format!("the machine's mirrors have no Debian package {name}"),
            "check the spelling, and whether the package has another name in the machine's release: `apt-cache policy NAME`",
        )
    })
}

/// A C library that is too old, or another one; too little memory.
pub(super) fn of_libraries(evidence: &Evidence<'_>) -> Option<Cause> {
    if evidence.has(&["version `glibc_", "version 'glibc_"]) {
        return Some(Cause::of_packages(
            "the C library of the machine (glibc) is too old for a package",
            "use a newer Debian or Ubuntu, or ask for an older version of the package",
        ));
    }
    let musl = evidence.has(&["platform tag (e.g., `musllinux", "on linux (`musllinux", "ld-musl", "libc.musl"]);
    if musl {
        return Some(Cause::of_packages(
            "a package has no wheel for the C library of the machine, musl, as in Alpine",
            "use a machine or an image with Debian or Ubuntu",
        ));
    }
    if evidence.has(&["cannot allocate memory", "os error 12)"]) {
        return Some(Cause::new(
            "the machine ran out of memory",
            "use a machine with more memory, or end the processes that use the memory",
        ));
    }
    // The shell's exit status after SIGKILL.
    (evidence.output.status == 137).then(|| {
        Cause::new(
            "the step was killed: the machine ran out of memory, or its lease was not renewed in time",
            "if `dmesg` on the machine lists the process, the kernel killed it: use a machine with more memory. \
             Otherwise, the machine's keeper killed it: raise `Limits::lease` if the client or the network is \
             overloaded",
        )
    })
}

/// A tool that the machine lacks.
pub(super) fn of_tools(evidence: &Evidence<'_>) -> Option<Cause> {
    if let Some(cause) = of_name(evidence) {
        return Some(cause);
    }
    if evidence.has(&["do not match the hashes", "hash mismatch"]) {
        return Some(Cause::new(
            "the index returned another uv than the pinned one",
            "put uv 0.7 or newer into the machine's PATH, or use an index that passes files on unchanged",
        ));
    }
    if evidence.has(&["error: the index has no uv"]) {
        return Some(Cause::new(
            "the package index has no uv for this machine",
            "put uv 0.7 or newer into the machine's PATH, or use an index that has all of PyPI",
        ));
    }
    let tool = ["flock", "sha256sum", "od", "gzip", "getent", "stat"]
        .into_iter()
        .find(|tool| evidence.has(&[&format!("{tool}: not found"), &format!("{tool}: command not found")]))?;
    let package = match tool {
        "flock" => "util-linux",
        "gzip" => "gzip",
        "getent" => "libc-bin",
        _ => "coreutils",
    };
    Some(Cause::new(format!("the machine has no `{tool}`"), format!("install the package {package} on the machine")))
}
