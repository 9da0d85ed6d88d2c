//! The processes of a round, found by marks that they inherit in their environment.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::plan::Victim;

/// A process of a pool, or one that such a process has started.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) command: String,
    /// The kernel's letter: `T` is a stopped one.
    pub(crate) state: char,
    /// It belongs to a machine.
    of_machine: bool,
    marked: bool,
    parent: u32,
}

/// All processes that carry the mark of a round, and all below them; without its client.
pub(crate) fn of_round(mark: &str, client: u32) -> Vec<Process> {
    let mark = format!("{MARK}={mark}");
    let all: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != client)
        .filter_map(|pid| read(pid, &mark))
        .collect();
    let mut found: BTreeSet<u32> = all.iter().filter(|process| process.marked).map(|process| process.pid).collect();
    loop {
        let before = found.len();
        let below: Vec<u32> =
            all.iter().filter(|process| found.contains(&process.parent)).map(|process| process.pid).collect();
        found.extend(below);
        if found.len() == before {
            return all.into_iter().filter(|process| found.contains(&process.pid)).collect();
        }
    }
}

impl Process {
    /// Whether a fault can hit it.
    pub(crate) fn is(&self, victim: Victim) -> bool {
        let module = match victim {
            Victim::Worker => "skyward.worker",
            Victim::Agent => "skyward.agent",
            Victim::Client => return false,
        };
        self.of_machine && self.command.split(' ').any(|word| word == module)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state == 'T'
    }
}

/// One that is gone already is no error.
pub(crate) fn signal(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

fn read(pid: u32, mark: &str) -> Option<Process> {
    let folder = format!("/proc/{pid}");
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    // The name before the last parenthesis may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    let environment = fs::read(format!("{folder}/environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    let marked = variables.any(|variable| variable == mark.as_bytes());
    let of_machine = environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"SKYWARD_MACHINE="));
    let command =
        String::from_utf8_lossy(&fs::read(format!("{folder}/cmdline")).unwrap_or_default()).replace('\0', " ");
    Some(Process { pid, command: command.trim().to_owned(), state, of_machine, marked, parent })
}

/// The variable that all processes of a round inherit.
pub(crate) const MARK: &str = "SKYWARD_CHAOS";
