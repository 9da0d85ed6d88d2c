//! The processes of a machine: those that carry its mark in their environment, and all their
//! descendants.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, getuid, pidfd_open, pidfd_send_signal};

use crate::ids::MachineId;

pub(super) use crate::provider::keeper::MARK;

/// The marks in the environments of this user's processes, without zombies.
pub(super) fn marks() -> BTreeSet<String> {
    let look = || ids().filter_map(mark_of);
    let first: BTreeSet<String> = look().collect();
    // A process that was just replacing its program has an environment again.
    std::thread::sleep(PAUSE);
    first.into_iter().chain(look()).collect()
}

/// How many checks in a row must find nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Looks {
    /// Sufficient when nothing can have been started since.
    Once = 1,
    /// A process that is just replacing its program has no environment for a moment.
    Twice,
}

/// Ends all processes of a machine, and returns when none is left. When the time is up, fails with
/// the ids of those that are left. Resource trackers of Python get a moment to remove the shared
/// memory that the others have left; then they end by themselves.
pub(super) fn end(machine: &MachineId, looks: Looks, patience: Duration) -> Result<(), Vec<u32>> {
    let began = Instant::now();
    let deadline = began + patience;
    let mut clean = 0;
    loop {
        let members = members(machine.as_str());
        for (id, started) in &members {
            if began.elapsed() >= TRACKING || !is_tracker(*id) {
                kill(*id, *started);
            }
        }
        clean = if members.is_empty() { clean + 1 } else { 0 };
        if clean == looks as u32 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(members.into_keys().collect());
        }
        std::thread::sleep(PAUSE);
    }
}

/// The machine's processes, each with its start time.
fn members(mark: &str) -> BTreeMap<u32, u64> {
    let marked: Vec<_> = ids().filter(|id| mark_of(*id).is_some_and(|found| found == mark)).collect();
    if marked.is_empty() {
        return BTreeMap::new();
    }
    let processes: Vec<_> = ids().filter_map(running).collect();
    let mut members: BTreeMap<u32, u64> = processes
        .iter()
        .filter(|process| marked.contains(&process.id))
        .map(|process| (process.id, process.started))
        .collect();
    // A process that clears its environment still has a parent here, while that lives.
    loop {
        let before = members.len();
        for process in &processes {
            if members.contains_key(&process.parent) {
                members.insert(process.id, process.started);
            }
        }
        if members.len() == before {
            return members;
        }
    }
}

struct Running {
    id: u32,
    parent: u32,
    started: u64,
}

fn ids() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The state of a process, unless it has ended.
fn running(id: u32) -> Option<Running> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before the last parenthesis may contain anything.
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ended = matches!(*fields.first()?, "Z" | "X");
    (!ended).then_some(Running { id, parent: fields.get(1)?.parse().ok()?, started: fields.get(19)?.parse().ok()? })
}

fn mark_of(id: u32) -> Option<String> {
    // Another user's environment cannot be read, and does not matter.
    let environment = std::fs::read(format!("/proc/{id}/environ")).ok()?;
    environment
        .split(|byte| *byte == 0)
        .filter_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))
        .find_map(|value| String::from_utf8(value.to_vec()).ok())
}

/// Whether a process is a resource tracker of Python's `multiprocessing` or of loky.
fn is_tracker(id: u32) -> bool {
    let mark = b"resource_tracker import main";
    std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.windows(mark.len()).any(|part| part == mark))
}

/// Ends a process, unless its id belongs to another one meanwhile.
fn kill(id: u32, started: u64) {
    let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) else { return };
    if pid == rustix::process::getpid() {
        return;
    }
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    if running(id).is_some_and(|process| process.started == started) {
        // A process that is gone meanwhile has ended as well.
        let _ = pidfd_send_signal(&handle, Signal::KILL);
    }
}

/// The numeric id of the user.
pub(super) fn user() -> u32 {
    getuid().as_raw()
}

/// How long resource trackers may work after the other processes have ended.
const TRACKING: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);
