//! The processes of a round, found by what they inherit: a mark in their environment, or the
//! container that they are in.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use crate::place::{Target, Victim};
use crate::words::CLIENT;

/// A process of a pool, or one that such a process has started.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) arguments: Vec<String>,
    /// The kernel's letter: `T` is a stopped one.
    state: char,
}

/// All processes that carry the mark of a round, and all below them.
pub(crate) fn marked(mark: &str) -> Vec<Process> {
    let mark = format!("{MARK}={mark}");
    family(|process| {
        let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    })
}

/// The processes that are chosen, and all below them.
pub(crate) fn family(chosen: impl Fn(&Process) -> bool) -> Vec<Process> {
    let mut all: Vec<Process> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?))
        .collect();
    all.sort_by_key(|process| process.pid);
    let mut found: BTreeSet<u32> = all.iter().filter(|process| chosen(process)).map(|process| process.pid).collect();
    loop {
        let before = found.len();
        let below: Vec<u32> =
            all.iter().filter(|process| found.contains(&process.parent)).map(|process| process.pid).collect();
        found.extend(below);
        if found.len() == before {
            all.retain(|process| found.contains(&process.pid));
            return all;
        }
    }
}

/// One that is gone already is no error.
pub(crate) fn signal(pid: u32, signal: Signal) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

impl Process {
    /// Whether it runs this module of the worker's package.
    pub(crate) fn runs(&self, module: &str) -> bool {
        self.arguments.windows(2).any(|words| words == ["-m", module])
    }

    /// Whether it is the program of a round's client.
    pub(crate) fn is_client(&self) -> bool {
        self.arguments.get(1).is_some_and(|word| word == CLIENT)
    }

    /// As something that can be hit.
    pub(crate) fn target(&self) -> Target {
        let stopped = if self.state == 'T' { ", stopped" } else { "" };
        // Some have a script among their arguments.
        let line = self.arguments.join(" ").replace('\n', " ");
        let line: String = line.chars().take(LONGEST_NAME).collect();
        Target::Process { pid: self.pid, name: format!("{line} ({}{stopped})", self.pid) }
    }
}

impl Victim {
    /// Whether it is this process; those that are known by what they run.
    pub(crate) fn is(self, process: &Process) -> bool {
        match self {
            Self::Worker => process.runs("skyward.worker"),
            Self::Agent => process.runs("skyward.agent"),
            Self::Mover => process.runs("skyward.mover"),
            Self::Keeper => is_keeper(&process.arguments),
            Self::Connection => process.arguments.iter().any(|word| word.starts_with(BRIDGE)),
            _ => false,
        }
    }
}

/// `bash --norc --posix -c SCRIPT keeper …`, or `sh -c SCRIPT keeper …` where there is no bash.
fn is_keeper(arguments: &[String]) -> bool {
    let is_shell = arguments.first().is_some_and(|shell| matches!(shell.rsplit('/').next(), Some("sh" | "bash")));
    let name = arguments.iter().position(|word| word == "-c").and_then(|at| arguments.get(at + 2));
    is_shell && name.is_some_and(|name| name == "keeper")
}

fn read(pid: u32) -> Option<Process> {
    let folder = format!("/proc/{pid}");
    let stat = fs::read_to_string(format!("{folder}/stat")).ok()?;
    // The name before the last parenthesis may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    let line = fs::read(format!("{folder}/cmdline")).unwrap_or_default();
    let arguments = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let arguments = arguments.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    Some(Process { pid, parent, arguments, state })
}

const LONGEST_NAME: usize = 160;
/// How the program begins that joins the streams of a connection to a container with a socket in
/// it.
const BRIDGE: &str = "\"\"\"Joins standard input and output with a Unix socket";
/// The variable that all processes of a round inherit.
pub(crate) const MARK: &str = "SKYWARD_CHAOS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_is_known_by_the_name_of_its_script() {
        let is = |line: &[&str]| is_keeper(&line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(is(&["bash", "--norc", "--posix", "-c", "a script", "keeper", "/folder"]));
        assert!(is(&["/bin/sh", "-c", "a script", "keeper", "/folder"]));
        assert!(!is(&["sh", "-c", "a script", "watch", "keeper"]));
        assert!(!is(&["cat", "-c", "a script", "keeper"]));
        assert!(!is(&["bash"]));
    }
}
