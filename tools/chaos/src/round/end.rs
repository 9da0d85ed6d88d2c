//! The end of a round: what has to end by itself ends, the rest is ended, and all that is left is
//! counted.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Round, command};
use crate::place::{Act, Target, names};
use crate::timing::{CLIENT_EXIT, END_POLL, LEASE_MARGIN, REAP};
use crate::words::CLIENT;

impl Round<'_> {
    /// Waits for what has to end by itself, ends the rest, and counts.
    pub(super) fn finish(&mut self) {
        self.machines.heal();
        if self.client_gone {
            self.check_layers();
        }
        if !self.ended {
            self.machines.act(&self.client(), Act::Kill);
        }
        let status = self.until_client_exits();
        if !self.ended && !self.client_gone && self.counts.stuck == 0 {
            self.counts.stuck += 1;
            self.problems.push(format!("the client crashed: {status:?}, see `stderr`"));
        }
        // The client's last lines.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(5)) {
            self.on_line(&line);
        }
        if self.ended && !self.ended_well && self.only_cuts {
            // A round whose pool did not start has tested nothing, so it must not pass.
            self.counts.wrong += 1;
            self.problems.push("the scope ended with an error, and nothing but connections had been hit".into());
        }
        if !self.ended {
            self.reap();
        } else if self.was_away && !self.ended_well {
            // The client has reported what it could not end.
            self.check_layers();
            self.reap();
        }
        self.look_for_leftovers();
        self.tasks.on_executions(&self.machines.executed());
        self.machines.clear();
        let (counts, problems) = self.tasks.count(self.ended || self.counts.stuck > 0, self.only_cuts);
        self.counts += &counts;
        self.problems.extend(problems);
    }

    /// Waits for the client, whose scope has ended, or which was killed. A client that does not exit
    /// is killed.
    fn until_client_exits(&mut self) -> io::Result<ExitStatus> {
        let is_lost = self.counts.stuck > 0 || self.given_up;
        if let Some(status) = within(&mut self.client, if is_lost { Duration::ZERO } else { CLIENT_EXIT })? {
            return Ok(status);
        }
        if !is_lost && !self.client_gone {
            self.counts.stuck += 1;
            self.problems.push(format!("the client had not exited {CLIENT_EXIT:?} after its scope"));
        }
        self.machines.act(&self.client(), Act::Kill);
        self.client.wait()
    }

    /// Whether machines must end by themselves without their client: not if faults have hit all
    /// that would end them.
    fn check_layers(&mut self) {
        let place = self.game.place;
        let guarded = place.ends_alone(&self.lost);
        let end = Instant::now() + place.lives_alone() + LEASE_MARGIN;
        loop {
            let left = self.running();
            if left.is_empty() || self.gives_up() || (!guarded && Instant::now() + LEASE_MARGIN > end) {
                return;
            }
            if Instant::now() > end {
                self.left("still run without their client", left.iter().map(Target::to_string).collect());
                return;
            }
            thread::sleep(END_POLL);
        }
    }

    fn reap(&mut self) {
        let provider = serde_json::to_string(&self.machines.provider()).unwrap_or_default();
        let reaper = command(self.game.client, &self.folder, &self.mark, self.machines.as_ref())
            .args([CLIENT, "reap", &provider])
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn();
        // It prints a few lines, for which a pipe has room.
        let output = reaper.and_then(|mut reaper| {
            if within(&mut reaper, REAP)?.is_none() {
                reaper.kill()?;
            }
            reaper.wait_with_output()
        });
        match output {
            Ok(output) if output.status.success() => {
                let printed = String::from_utf8_lossy(&output.stdout).into_owned();
                self.note("reaped");
                if !printed.trim().is_empty() {
                    self.left("could not be reaped", printed.lines().map(str::to_owned).collect());
                }
            }
            other => self.left("could not be reaped", vec![format!("{other:?}")]),
        }
    }

    fn look_for_leftovers(&mut self) {
        let left = self.running();
        self.left("still run", left.iter().map(Target::to_string).collect());
        let end = Instant::now() + LEASE_MARGIN;
        while !self.machines.passing().is_empty() && Instant::now() < end && !self.gives_up() {
            thread::sleep(END_POLL);
        }
        let left = self.machines.passing();
        self.left("still run for a client that is gone", left.iter().map(Target::to_string).collect());
        for (what, things) in self.machines.left() {
            self.left(what, things);
        }
        self.left("are still on record", names(&self.folder.join("state/ledger"), |name| name.ends_with(".ledger")));
    }

    /// The processes and machines that still run.
    fn running(&self) -> Vec<Target> {
        let mut running = self.machines.running();
        running.retain(|target| !matches!(target, Target::Process { pid, .. } if *pid == self.client.id()));
        running
    }

    fn left(&mut self, what: &str, things: Vec<String>) {
        if !things.is_empty() {
            self.counts.left_running += things.len() as u64;
            self.problems.push(format!("these {what}: {}", things.join("; ")));
        }
    }
}

/// Waits for a process, for so long.
fn within(process: &mut Child, time: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + time;
    loop {
        match process.try_wait()? {
            None if Instant::now() < end => thread::sleep(END_POLL),
            status => return Ok(status),
        }
    }
}
