//! Processes that a command left running, found by a mark that they inherit in their environment.

use std::fs;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::Run;
use crate::step::Checks;

impl Checks {
    /// Runs a command that must exit with 0 and leave no process running, not even one in a session
    /// of its own. Gives what it wrote.
    pub(crate) fn run_leaving_nothing(&mut self, run: Run) -> Result<String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}.{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = run.to_string();
        let output = self.output(&run.quiet_env(MARK, &mark))?;
        let end = Instant::now() + GRACE;
        loop {
            let left = marked(&mark);
            if left.is_empty() {
                return Ok(output);
            }
            if Instant::now() > end {
                let processes = left.join("; ");
                self.fail(format!("processes still run {} seconds after {name}: {processes}", GRACE.as_secs()));
                return Ok(output);
            }
            thread::sleep(POLL);
        }
    }
}

/// Process id and command line of each process with this mark.
fn marked(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()) {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            found.push(format!("{} {}", entry.file_name().display(), command.trim()));
        }
    }
    found
}

const MARK: &str = "SKYWARD_XTASK_RUN";
/// A client that was killed leaves it to the agent to take note and to end.
const GRACE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_a_session_of_its_own_is_found() {
        let mark = format!("{}.test", process::id());
        let run = Run::new("sh").args(["-c", "setsid sleep 30 >/dev/null 2>&1 </dev/null & echo $!"]);
        let finished = run.quiet_env(MARK, &mark).check().unwrap();
        let found = marked(&mark);
        let pid = rustix::process::Pid::from_raw(finished.output.trim().parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(marked("no such mark").is_empty());
    }
}
