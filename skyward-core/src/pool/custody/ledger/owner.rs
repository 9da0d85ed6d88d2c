//! The process that owns a pool, distinguished from a later process with the same process id.

use serde::{Deserialize, Serialize};

/// A process of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// When the process was started, in the kernel's ticks since boot.
    started: Option<u64>,
    /// The boot id of its host.
    boot: Option<String>,
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Self {
        let pid = std::process::id();
        Self { pid, started: started(pid), boot: boot() }
    }

    /// Whether the process still runs, as far as this host can tell.
    pub(crate) fn is_alive(&self) -> bool {
        self.boot == boot() && self.started.is_some() && self.started == started(self.pid)
    }
}

fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The process name before the last parenthesis may contain any character.
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

fn boot() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}
