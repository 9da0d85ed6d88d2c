//! Control groups, by which the kernel knows the processes of a machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

/// A control group of the second version. It is removed when this is dropped and it is empty.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
    level: usize,
}

/// Where nftables finds a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) level: usize,
}

impl Cgroup {
    /// Makes one below that of this process.
    pub(crate) fn make(name: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (parent, level) = parent()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("{PREFIX}{}-{count}-{name}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make the control group {}", folder.display()))?;
        Ok(Self { folder, level: level + 1 })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn place(&self) -> Place {
        let path = self.folder.strip_prefix(BASE).unwrap_or(&self.folder);
        Place { path: path.display().to_string(), level: self.level }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // One with a process that has not ended yet is removed by a later cloud.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A command whose processes are in a control group from their beginning.
pub(crate) fn enter(group: Option<&Path>, program: &str) -> Command {
    let Some(group) = group else { return Command::new(program) };
    let mut command = Command::new("/bin/sh");
    command.args(["-c", ENTER, "sh"]).arg(group.join("cgroup.procs")).arg(program);
    command
}

/// Removes the empty groups of processes that were killed.
pub(crate) fn remove_abandoned() {
    let Ok((parent, _)) = parent() else { return };
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The control group of this process, and how deep it is in the hierarchy.
fn parent() -> Result<(PathBuf, usize)> {
    let mounts = fs::read_to_string("/proc/mounts").context("cannot read /proc/mounts")?;
    let mounted = |line: &str| {
        let mut words = line.split(' ').skip(1);
        words.next().filter(|path| words.next() == Some("cgroup2") && path.starts_with(BASE)).map(PathBuf::from)
    };
    let mount = mounts.lines().find_map(mounted).with_context(|| format!("no cgroup2 is mounted below {BASE}"))?;
    let own = fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    Ok((mount.join(own), own.split('/').filter(|part| !part.is_empty()).count()))
}

/// Where nftables looks for control groups.
const BASE: &str = "/sys/fs/cgroup";
const PREFIX: &str = "skyward-ec2-";
const ENTER: &str = r#"echo $$ >"$1" && shift && exec "$@""#;
