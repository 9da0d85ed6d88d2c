//! Commands with a deadline, whose output is shown as it comes and kept.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::console::Console;
use crate::interrupt;
use crate::say;
use crate::timing::{COMMAND, COMMAND_END, COMMAND_POLL, LAST_LINES};

/// A command to run.
#[derive(Debug)]
pub struct Run {
    program: OsString,
    args: Vec<OsString>,
    dir: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    quiet_env: Vec<(OsString, OsString)>,
    deadline: Duration,
}

/// How a command ended.
#[derive(Debug)]
pub struct Finished {
    /// The exit code, or the signal.
    pub status: ExitStatus,
    /// Standard output and standard error as they came.
    pub output: String,
    /// Whether something that the command started still held its output when it had ended.
    pub left_behind: bool,
}

impl Run {
    /// A command without arguments, whose program is found in the search path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref().to_owned();
        let (env, quiet_env) = (Vec::new(), Vec::new());
        Self { program, args: Vec::new(), dir: None, env, quiet_env, deadline: COMMAND }
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Runs the command in this folder.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets a variable, which is shown with the command.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((key.into(), value.as_ref().to_owned()));
        self
    }

    /// Sets a variable that changes no result, and is not shown.
    pub fn quiet_env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.quiet_env.push((key.into(), value.as_ref().to_owned()));
        self
    }

    /// Sets how long it may take before it is ended, with all that it started.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it, shows its output, and fails unless it exits with 0.
    ///
    /// # Errors
    ///
    /// It cannot be started, exceeds its deadline, is interrupted, or exits with another code.
    pub fn check(&self) -> Result<Finished> {
        let finished = self.finish()?;
        if !finished.status.success() {
            bail!("{self} ended with {}", finished.status);
        }
        Ok(finished)
    }

    /// Runs it and shows its output, whatever its exit code.
    ///
    /// # Errors
    ///
    /// It cannot be started, exceeds its deadline, or is interrupted.
    pub fn finish(&self) -> Result<Finished> {
        say!("$ {self}");
        let (reader, writer) = io::pipe()?;
        let mut command = self.command();
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().with_context(|| format!("cannot start {self}"))?;
        // The command holds the pipe's other end, and the reader would never come to its end.
        drop(command);
        let lines = show_lines(reader);
        let status = self.wait(&mut child)?;
        let (output, left_behind) = collect(&lines);
        Ok(Finished { status, output, left_behind })
    }

    /// Runs it silently and gives its standard output; fails, with what it wrote, unless it exits
    /// with 0.
    ///
    /// # Errors
    ///
    /// It cannot be started, exits with another code, or does not end before its deadline.
    pub fn read(&self) -> Result<String> {
        let mut command = self.command();
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {self}"))?;
        let (output, errors) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
        let status = self.wait(&mut child)?;
        let text = |bytes: Receiver<Vec<u8>>| bytes.recv_timeout(LAST_LINES).unwrap_or_default();
        let (output, errors) = (text(output), text(errors));
        if !status.success() {
            bail!("{self} ended with {status}: {}", String::from_utf8_lossy(&errors).trim());
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Runs it in the place of this program, with the same input and output, so that signals and the
    /// exit code are its own. Returns only if it cannot be started.
    pub fn replace(&self) -> anyhow::Error {
        let error = self.command().stdin(Stdio::inherit()).exec();
        anyhow::Error::new(error).context(format!("cannot start {self}"))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null());
        // Cargo's variables describe this program's package, and would mislead the programs that it
        // starts.
        for (key, _) in env::vars_os() {
            if key.to_str().is_some_and(|key| key.starts_with("CARGO_PKG_") || key.starts_with("CARGO_MANIFEST_")) {
                command.env_remove(key);
            }
        }
        command.envs(self.env.iter().chain(&self.quiet_env).map(|(key, value)| (key, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
    }

    fn wait(&self, child: &mut Child) -> Result<ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < self.deadline {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if interrupt::asked() {
                end(child)?;
                bail!("{self} was interrupted");
            }
            thread::sleep(COMMAND_POLL);
        }
        end(child)?;
        bail!("{self} was ended after {} seconds, its deadline", self.deadline.as_secs())
    }
}

/// As it could be typed, with the program's path shortened to its last part.
impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (key, value) in &self.env {
            write!(f, "{}={} ", key.display(), value.display())?;
        }
        write!(f, "{}", Path::new(&self.program).file_name().unwrap_or(&self.program).display())?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", arg.display()))
    }
}

/// Reads to the end on a thread of its own.
fn read_all(source: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut source) = source {
            // What was read before an error counts.
            let _ = source.read_to_end(&mut bytes);
        }
        let _ = sender.send(bytes);
    });
    receiver
}

/// Prints lines as they come, and passes them on.
fn show_lines(reader: PipeReader) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let console = Console::current();
    thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).into_owned();
            console.write(&text);
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

/// All lines of a command that has ended, and whether another process may still write more.
fn collect(lines: &Receiver<String>) -> (String, bool) {
    let mut output = String::new();
    let end = Instant::now() + LAST_LINES;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => output.push_str(&line),
            Err(RecvTimeoutError::Disconnected) => return (output, false),
            Err(RecvTimeoutError::Timeout) => return (output, true),
        }
    }
}

/// Ends a command with all that it started: a command that has something to remove gets the time for
/// it.
fn end(child: &mut Child) -> Result<()> {
    let family = family(child.id());
    if let Some(child) = family.first() {
        let _ = kill_process(*child, Signal::TERM);
    }
    let end = Instant::now() + COMMAND_END;
    while child.try_wait()?.is_none() && Instant::now() < end {
        thread::sleep(COMMAND_POLL);
    }
    for pid in family {
        // A process that is gone already is no error.
        let _ = kill_process(pid, Signal::KILL);
    }
    child.wait()?;
    Ok(())
}

/// A process and all that descend from it, parents first.
fn family(root: u32) -> Vec<Pid> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name, in parentheses, may hold anything; the state and the parent follow its end.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        if let Some(parent) = parent.and_then(|parent| parent.parse::<u32>().ok()) {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&current) = found.get(next) {
        found.extend(parents.iter().filter(|(_, parent)| *parent == current).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().filter_map(|pid| Pid::from_raw(pid.try_into().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Run {
        Run::new("sh").args(["-c", script])
    }

    #[test]
    fn both_outputs_are_kept_in_their_order() {
        let finished = shell("echo one; echo two >&2; echo three; exit 3").finish().unwrap();
        assert_eq!(finished.output, "one\ntwo\nthree\n");
        assert_eq!(finished.status.code(), Some(3));
        assert!(!finished.left_behind);
    }

    #[test]
    fn a_failure_names_the_command_and_its_code() {
        let error = shell("exit 3").check().err().unwrap().to_string();
        assert!(error.starts_with("sh -c exit 3 ended with exit status: 3"), "{error}");
    }

    #[test]
    fn a_command_past_its_deadline_is_ended_with_its_children() {
        let begin = Instant::now();
        let run = shell("sleep 1000 & echo $!; wait").deadline(Duration::from_millis(300));
        let (reader, writer) = io::pipe().unwrap();
        let mut child = run.command().stdout(writer).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        assert!(run.wait(&mut child).unwrap_err().to_string().contains("deadline"));
        let grandchild = Path::new("/proc").join(line.trim()).join("stat");
        // Gone, or a zombie until its new parent takes note.
        while fs::read_to_string(&grandchild).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begin.elapsed() < Duration::from_secs(20), "the child's child lives on");
            thread::yield_now();
        }
    }

    #[test]
    fn what_a_command_leaves_behind_is_noticed() {
        let finished = shell("sleep 30 & echo $!").finish().unwrap();
        let pid = finished.output.trim().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        assert!(finished.left_behind);
    }
}
