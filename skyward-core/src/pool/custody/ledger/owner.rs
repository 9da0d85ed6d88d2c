//! The process that owns a pool, distinguished from a later process with the same process id.

use serde::{Deserialize, Serialize};

use crate::provider::client;

/// A process of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) pid: u32,
    /// When the process was started, in the kernel's ticks since boot.
    started: Option<u64>,
    /// The boot id of its host.
    boot: Option<String>,
    /// The machine that it runs on. Older versions did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    /// The name of its host, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Self {
        let pid = std::process::id();
        let (machine, host) = (Some(client::machine()), Some(client::host_name()));
        Self { pid, started: started(pid), boot: boot(), machine, host }
    }

    /// The name of the other machine that the process runs or ran on, if this may be another one.
    /// Clones have the machine id of this one, but not its boot; a name that differs too shows that it
    /// was not an earlier boot of this machine.
    pub(crate) fn other_machine(&self) -> Option<&str> {
        let machine = self.machine.as_deref()?;
        let name = self.host.as_deref();
        let is_clone = self.boot != boot() && name.is_some_and(|name| name != client::host_name());
        (machine != client::machine() || is_clone).then(|| name.unwrap_or(machine))
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
