//! The processes of a machine: those of this user that carry its mark in their environment, those
//! of any user that carry its key, and their kin.
//!
//! Every user can start processes with any environment, and root can read it. So a mark counts only
//! in a process whose real user is this one: a program that runs as its file's owner, such as `su`,
//! keeps the real user of whoever has started it. The key is known to the machine's processes alone,
//! and shows which processes of other users they have started.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getuid, kill_process_group, pidfd_open, pidfd_send_signal};

use super::timing::{PROCESSES_PAUSE, REPLACING, TRACKING};
use crate::ids::MachineId;

use super::key;
pub(super) use crate::provider::keeper::{KEY, MARK};

/// The marks in the environments of this user's processes, without zombies.
pub(super) fn marks() -> io::Result<BTreeSet<String>> {
    let deadline = Instant::now() + REPLACING;
    let mut marks = BTreeSet::new();
    for looks in 1.. {
        let mut is_replacing = false;
        for id in ids()? {
            match variables(id)? {
                Some(variables) => marks.extend(mark_of(id, variables)?),
                None => is_replacing = true,
            }
        }
        if looks > 1 && !is_replacing || Instant::now() >= deadline {
            break;
        }
        std::thread::sleep(PROCESSES_PAUSE);
    }
    Ok(marks)
}

/// How the processes of a machine are recognised.
#[derive(Debug)]
pub(super) struct Marks {
    mark: String,
    key: Option<String>,
}

impl Marks {
    /// Those of the machine with this folder, which may be gone.
    pub(super) fn of(machine: &MachineId, folder: &Path) -> Self {
        Self { mark: machine.to_string(), key: key::read(folder) }
    }

    /// Whether a process with this environment has them.
    fn are_in(&self, id: u32, variables: &Variables) -> io::Result<bool> {
        let has = |name: &str, value: &str| {
            variables.iter().any(|(found, its)| found == name.as_bytes() && its == value.as_bytes())
        };
        let is_keyed = self.key.as_ref().is_some_and(|key| has(KEY, key));
        Ok(is_keyed || (has(MARK, &self.mark) && is_own(id)?))
    }

    /// Ends all processes, and returns when two looks in a row find none. When the time is up,
    /// returns the ids of those that are left. Fails if the processes could not be read until then:
    /// what is not read may be there.
    ///
    /// The first look stops the processes, so that they start no others and still take their places
    /// within limits. What later looks find was started meanwhile, and is killed at once: a process
    /// that is killed while it forks has no child. The stopped ones are killed when a look finds
    /// nothing else. Resource trackers of Python get a moment to remove the shared memory that the
    /// others have left; then they end by themselves.
    pub(super) fn end(&self, patience: Duration) -> io::Result<Vec<u32>> {
        let began = Instant::now();
        let deadline = began + patience;
        let mut stopped = BTreeMap::new();
        let mut ended: Option<BTreeSet<u32>> = None;
        let mut signal = Signal::STOP;
        let (mut clean, mut unclear) = (0, 0);
        loop {
            let mut look = match Look::take(self, &stopped, signal, began.elapsed() < TRACKING) {
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => {
                    clean = 0;
                    std::thread::sleep(PROCESSES_PAUSE);
                    continue;
                }
                Ok(look) => look,
            };
            // Zombies that were there before, or were killed here, say nothing.
            look.is_unclear |= ended.as_ref().is_some_and(|ended| !look.ended.is_subset(ended));
            let known = ended.get_or_insert_default();
            known.extend(look.ended.iter().chain(look.new.iter().map(|process| &process.id)));
            let is_late = Instant::now() >= deadline;
            if signal == Signal::STOP {
                stopped.extend(look.new.iter().map(|process| (process.id, process.started)));
                signal = Signal::KILL;
            }
            if look.members.is_empty() {
                if look.is_replacing && began.elapsed() < REPLACING {
                    clean = 0;
                    std::thread::sleep(PROCESSES_PAUSE);
                    continue;
                }
                match look.is_unclear && unclear < UNCLEAR {
                    true if self.chase() && !is_late => (clean, unclear) = (0, 0),
                    true => (clean, unclear) = (0, unclear + 1),
                    false => clean += 1,
                }
                if clean == 2 {
                    return Ok(Vec::new());
                }
                std::thread::sleep(if clean == 0 { Duration::ZERO } else { PROCESSES_PAUSE });
                continue;
            }
            clean = 0;
            let is_all = look.new.is_empty();
            if is_all || is_late {
                look.members.values().for_each(|process| look.send(process, Signal::KILL));
            }
            if is_late {
                return Ok(look.members.into_keys().collect());
            }
            if is_all {
                std::thread::sleep(PROCESSES_PAUSE);
            }
        }
    }

    /// Kills the youngest process of the host again and again, if it is one of these, and returns
    /// whether there was one: no look finds a process that only starts the next one and ends.
    fn chase(&self) -> bool {
        let youngest = || {
            let load = std::fs::read_to_string("/proc/loadavg").ok()?;
            Process::read(load.split_whitespace().nth(4)?.parse().ok()?).ok()?
        };
        let is_member = |process: &Process| {
            let variables = if process.has_ended { None } else { variables(process.id).ok().flatten() };
            variables.is_some_and(|variables| self.are_in(process.id, &variables).unwrap_or(false))
        };
        let (mut is_hit, mut missed) = (false, 0);
        for _ in 0..CHASED {
            match youngest().filter(is_member) {
                Some(process) => {
                    process.signal(Signal::KILL, true);
                    (is_hit, missed) = (true, 0);
                }
                None => missed += 1,
            }
            if missed == MISSED {
                break;
            }
        }
        is_hit
    }
}

/// What one reading of the process table finds of a machine.
#[derive(Default)]
struct Look {
    /// All processes of the machine, without zombies.
    members: BTreeMap<u32, Process>,
    /// Those that were not known as stopped, and have been sent the signal.
    new: Vec<Process>,
    /// The zombies of the host.
    ended: BTreeSet<u32>,
    /// Whether resource trackers get no signal yet.
    spares: bool,
    /// Those trackers.
    spared: BTreeSet<u32>,
    /// The groups of those trackers.
    apart: BTreeSet<u32>,
    /// Whether a process was listed and then gone: it may have had a child that was not listed.
    is_unclear: bool,
    /// Whether a process replaced its program, so that it could not be recognised.
    is_replacing: bool,
}

impl Look {
    fn take(marks: &Marks, stopped: &BTreeMap<u32, u64>, signal: Signal, spares: bool) -> io::Result<Self> {
        let mut look = Self { spares, ..Self::default() };
        let mut table = BTreeMap::new();
        // The youngest first: a process that only starts another one lives for a moment.
        for id in ids()? {
            let Some(process) = Process::read(id)? else {
                look.is_unclear = true;
                continue;
            };
            if stopped.get(&id) == Some(&process.started) {
                look.members.insert(id, process);
            } else {
                match variables(id)? {
                    Some(variables) if marks.are_in(id, &variables)? => look.add(process, signal),
                    Some(_) => {}
                    None => look.is_replacing = true,
                }
            }
            if process.has_ended {
                look.ended.insert(id);
            }
            table.insert(id, process);
        }
        for process in kin(&table, &look.members) {
            look.add(process, signal);
        }
        look.members.retain(|_, process| !process.has_ended);
        Ok(look)
    }

    fn add(&mut self, process: Process, signal: Signal) {
        // The client may run on the machine, or a container may start with the mark.
        if process.id == std::process::id() || process.id == 1 {
            return;
        }
        if self.spares && !process.has_ended && is_tracker(process.id) {
            self.spared.insert(process.id);
            self.apart.insert(process.group);
        } else if !process.has_ended {
            self.send(&process, signal);
            self.new.push(process);
        }
        self.members.insert(process.id, process);
    }

    /// Sends a signal to a process, and to the group that it leads, unless a spared process is in it.
    fn send(&self, process: &Process, signal: Signal) {
        if !self.spared.contains(&process.id) {
            process.signal(signal, !self.apart.contains(&process.id));
        }
    }
}

/// The processes that belong to these, whatever their user and their environment: children, also of
/// a zombie; and the session and the process group that one of these leads, in which only descendants
/// of the leader can be.
fn kin(table: &BTreeMap<u32, Process>, members: &BTreeMap<u32, Process>) -> Vec<Process> {
    let mut below: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
    for process in table.values() {
        for above in BTreeSet::from([process.parent, process.group, process.session]) {
            below.entry(above).or_default().push(*process);
        }
    }
    let mut found: BTreeSet<u32> = members.keys().copied().collect();
    let mut queue: Vec<u32> = found.iter().copied().collect();
    let mut kin = Vec::new();
    while let Some(id) = queue.pop() {
        for process in below.remove(&id).unwrap_or_default() {
            if found.insert(process.id) {
                kin.push(process);
                queue.push(process.id);
            }
        }
    }
    kin
}

/// An entry of the process table.
#[derive(Clone, Copy)]
struct Process {
    id: u32,
    parent: u32,
    group: u32,
    session: u32,
    /// It distinguishes processes that have the same id, one after the other.
    started: u64,
    /// Whether it is a zombie.
    has_ended: bool,
}

impl Process {
    /// The process that has this id now, if there is one.
    fn read(id: u32) -> io::Result<Option<Self>> {
        Ok(read(id, "stat")?.and_then(|stat| Self::parse(id, &String::from_utf8_lossy(&stat))))
    }

    fn parse(id: u32, stat: &str) -> Option<Self> {
        // The name before the last parenthesis may contain anything.
        let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        // A group or session whose number has no meaning here is 0, or negative.
        let id_at = |index: usize| number(index).and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        let has_ended = matches!(*fields.first()?, "Z" | "X");
        Some(Self { id, parent: id_at(1), group: id_at(2), session: id_at(3), started: number(19)?, has_ended })
    }

    /// Sends a signal to the process, and to its group if it leads one and the group gets it too,
    /// unless its id belongs to another process meanwhile. A process of another user may refuse it.
    fn signal(&self, signal: Signal, to_group: bool) {
        let Some(pid) = i32::try_from(self.id).ok().and_then(Pid::from_raw) else { return };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if !Self::read(self.id).is_ok_and(|now| now.is_some_and(|process| process.started == self.started)) {
            return;
        }
        if to_group && self.group == self.id {
            // All at once: none of them can fork meanwhile.
            let _ = kill_process_group(pid, signal);
        }
        // A process that is gone meanwhile has ended as well.
        let _ = pidfd_send_signal(&handle, signal);
    }
}

/// The ids of all processes, the highest first.
fn ids() -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        ids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    ids.sort_unstable_by(|a, b| b.cmp(a));
    Ok(ids)
}

/// What a file says about a process; none where the process is gone, or where this user may not read
/// it. Any other error, such as that of too many open files, says nothing about the process.
fn read(id: u32, file: &str) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(format!("/proc/{id}/{file}")) {
        Err(error) if HIDDEN.map(Some).contains(&Errno::from_io_error(&error)) => Ok(None),
        read => read.map(Some),
    }
}

/// The mark of a process of this user with this environment.
fn mark_of(id: u32, variables: Variables) -> io::Result<Option<String>> {
    let mark = variables.into_iter().find(|(name, _)| name == MARK.as_bytes());
    let mark = mark.and_then(|(_, mark)| String::from_utf8(mark).ok());
    Ok(if mark.is_some() && is_own(id)? { mark } else { None })
}

/// The names and values of an environment.
type Variables = Vec<(Vec<u8>, Vec<u8>)>;

/// The environment that a process was started with, as far as this user may read it. `None` while
/// the process replaces its program: for up to a tenth of a second on a busy host it then has memory,
/// and neither arguments nor an environment, which come in this order.
fn variables(id: u32) -> io::Result<Option<Variables>> {
    let mut environment = read(id, "environ")?;
    let is_bare = environment.as_ref().is_some_and(Vec::is_empty);
    if is_bare && read(id, "statm")?.is_some_and(|pages| !pages.starts_with(b"0 ")) {
        if read(id, "cmdline")?.is_some_and(|line| line.is_empty()) {
            return Ok(None);
        }
        environment = read(id, "environ")?;
    }
    let environment = environment.unwrap_or_default();
    let pair = |variable: &[u8]| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        Some((variable[..at].to_vec(), variable[at + 1..].to_vec()))
    };
    Ok(Some(environment.split(|byte| *byte == 0).filter_map(pair).collect()))
}

/// Whether a process is a resource tracker of Python's `multiprocessing` or of loky.
fn is_tracker(id: u32) -> bool {
    let mark = b"resource_tracker import main";
    std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.windows(mark.len()).any(|part| part == mark))
}

/// Whether the real user of a process is this one.
fn is_own(id: u32) -> io::Result<bool> {
    let status = read(id, "status")?.unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let real = status.lines().find_map(|line| line.strip_prefix("Uid:")?.split_whitespace().next()?.parse().ok());
    Ok(real == Some(user()))
}

/// The numeric id of the user.
pub(super) fn user() -> u32 {
    getuid().as_raw()
}

/// How often a look that may have missed a process is repeated. Others may start and end processes
/// all the time.
const UNCLEAR: u32 = 10;
/// How many processes are read in a chase, at most.
const CHASED: u32 = 500;
/// After how many other processes a chase is over.
const MISSED: u32 = 40;
/// The errors of a process that is gone, or that this user may not read.
const HIDDEN: [Errno; 4] = [Errno::NOENT, Errno::SRCH, Errno::ACCESS, Errno::PERM];

#[cfg(test)]
mod tests;
