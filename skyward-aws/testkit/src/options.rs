//! The options of an emulated cloud, and whether this host can run it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::records::Phases;

/// The options of an emulated cloud.
#[derive(Debug, Clone)]
pub struct CloudOptions {
    pub(crate) region: String,
    pub(crate) user: String,
    pub(crate) ssh_port: Option<u16>,
    pub(crate) cache: Option<PathBuf>,
    pub(crate) boot_delay: Duration,
    pub(crate) gpus: u32,
    pub(crate) phases: Phases,
    pub(crate) has_machines: bool,
}

impl Default for CloudOptions {
    fn default() -> Self {
        Self {
            region: "us-east-1".into(),
            user: "ubuntu".into(),
            ssh_port: None,
            cache: None,
            boot_delay: Duration::ZERO,
            gpus: 0,
            phases: Phases::default(),
            has_machines: true,
        }
    }
}

impl CloudOptions {
    /// `us-east-1`, with machines that boot at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// The region; its first three zones have a subnet each.
    #[must_use]
    pub fn region(mut self, region: &str) -> Self {
        self.region = region.into();
        self
    }

    /// Sets the user of the images. The default is `ubuntu`.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = user.into();
        self
    }

    /// Sets the port of the machines' SSH servers. The default is a free port.
    #[must_use]
    pub fn ssh_port(mut self, port: u16) -> Self {
        self.ssh_port = Some(port);
        self
    }

    /// Sets the folder of this host that is `~/.cache` on all machines, so that they share what
    /// they build. The default is a folder in the user's cache, which is kept between runs.
    #[must_use]
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Sets how long a machine takes until its system boots.
    #[must_use]
    pub fn boot_delay(mut self, delay: Duration) -> Self {
        self.boot_delay = delay;
        self
    }

    /// Sets how many GPUs `nvidia-smi` shows; with 0, machines do not have the program.
    #[must_use]
    pub fn gpus(mut self, gpus: u32) -> Self {
        self.gpus = gpus;
        self
    }

    /// Sets the phases of instances, call by call.
    #[must_use]
    pub fn phases(mut self, phases: Phases) -> Self {
        self.phases = phases;
        self
    }

    /// Boots no machines, so that the cloud answers calls only. This needs no superuser.
    #[must_use]
    pub fn without_machines(mut self) -> Self {
        self.has_machines = false;
        self
    }
}

/// Why this host cannot boot machines; none if it can.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("the machines of the loopback EC2 need namespaces, and this user is not root".into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from)).collect();
    let is_here = |program: &str| folders.iter().any(|folder| folder.join(program).is_file());
    let programs = PROGRAMS.iter().find(|(program, _)| !is_here(program));
    if let Some((program, package)) = programs {
        return Some(format!("there is no `{program}` here: apt-get install -y {package}"));
    }
    if !Path::new("/proc/self/ns/time").exists() {
        return Some("the kernel has no namespaces of time, by which a machine counts from its own boot".into());
    }
    let filesystems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    // The kernel may load the module when it is first used.
    let has_overlay = filesystems.lines().any(|line| line.trim_end().ends_with("overlay"))
        || Path::new("/sys/module/overlay").exists()
        || std::process::Command::new("modprobe").args(["-q", "overlay"]).status().is_ok_and(|status| status.success());
    (!has_overlay).then(|| "the kernel has no overlay file system".into())
}

/// The programs that machines need, with their packages.
const PROGRAMS: [(&str, &str); 10] = [
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
