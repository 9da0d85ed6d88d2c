//! An EC2 on loopback: the program of `skyward-aws-testkit`, which is built, started, asked by
//! lines, and ended.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::context::Context;
use crate::environment::Environment;
use crate::interrupt;
use crate::needs;
use crate::say;
use crate::timing::{EMULATOR_ANSWER, EMULATOR_END, EMULATOR_POLL, EMULATOR_START};

/// How to build packages that need the SDK of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// As the tests are.
    Tests,
    /// As users do.
    Release,
}

/// The program, while it runs. Dropping it ends it, with all machines.
#[derive(Debug)]
pub struct Ec2 {
    child: Child,
    lines: Mutex<Lines>,
    access: Access,
}

/// What goes in and comes out of the program.
#[derive(Debug)]
struct Lines {
    /// Its end is the end of the program.
    input: Option<ChildStdin>,
    output: Receiver<String>,
}

/// How clients reach the EC2.
#[derive(Debug, Default, Deserialize)]
struct Access {
    environment: BTreeMap<String, String>,
    subnets: BTreeMap<String, String>,
    ssh_port: u16,
    region: String,
}

impl Build {
    /// The arguments of cargo beside the targets. All programs of a profile are built with the same
    /// packages and features: other features of any dependency would compile the SDK's client for
    /// EC2 again, which takes minutes.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Tests => &["--workspace", "--all-features"],
            Self::Release => &[
                "--release",
                "--package=skyward",
                "--package=skyward-aws",
                "--package=skyward-aws-testkit",
                "--package=skyward-bench",
                "--package=skyward-chaos",
                "--features=skyward/aws,skyward/testkit,skyward-bench/aws,skyward-chaos/aws",
            ],
        }
    }

    /// How this program was built, so that what it builds finds compiled dependencies.
    pub fn of_this_program() -> Self {
        if cfg!(debug_assertions) { Self::Tests } else { Self::Release }
    }

    /// Builds a program of the packages, and returns its path.
    ///
    /// # Errors
    ///
    /// The program does not compile.
    pub fn program(self, context: &Context, name: &str) -> Result<PathBuf> {
        // With an example cargo chooses the features as for all that has examples, tests and benches.
        let targets = ["--example=reap".to_owned(), format!("--bin={name}")];
        context.cargo(["build"]).args(self.arguments()).args(targets).check()?;
        let folder = match self {
            Self::Tests => "debug",
            Self::Release => "release",
        };
        Ok(context.workspace.target_directory.join(folder).join(name))
    }
}

/// Builds the program, and returns its path.
///
/// # Errors
///
/// The program does not compile.
pub fn program(context: &Context, build: Build) -> Result<PathBuf> {
    let profile = match build {
        Build::Tests => "with the profile of the tests",
        Build::Release => "in release, which takes minutes the first time",
    };
    say!("building the EC2 on loopback {profile}");
    build.program(context, PROGRAM)
}

impl Ec2 {
    /// Builds it and starts it. The inner error is the reason why there can be none here.
    ///
    /// # Errors
    ///
    /// The program does not compile, does not start, or does not report how to reach it.
    pub fn start(context: &Context, build: Build) -> Result<Result<Self, String>> {
        Self::with(context, build, &[])
    }

    /// The same with words on the program's command line.
    ///
    /// # Errors
    ///
    /// As for [`Ec2::start`].
    pub fn with(context: &Context, build: Build, words: &[&str]) -> Result<Result<Self, String>> {
        // Before a build of several minutes.
        if let Some(reason) = needs::EC2_MACHINES.missing(context)? {
            return Ok(Err(reason.to_owned()));
        }
        let python = Environment::moto(context)?.program("python");
        Self::run(&program(context, build)?, &python, words)
    }

    fn run(program: &Path, python: &Path, words: &[&str]) -> Result<Result<Self, String>> {
        let mut child = Command::new(program)
            .args(words)
            .env("SKYWARD_MOTO_PYTHON", python)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // In a process group of its own, so that Ctrl-C does not end it before its clients.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let input = child.stdin.take();
        let output = lines_of(child.stdout.take());
        let errors = lines_of(child.stderr.take());
        let first = first_line(&output);
        let mut started = Self { child, lines: Mutex::new(Lines { input, output }), access: Access::default() };
        match first {
            Ok(Some(line)) => {
                started.access = serde_json::from_str(&line)
                    .with_context(|| format!("the first line of {PROGRAM} is not JSON with its endpoint: {line}"))?;
                Ok(Ok(started))
            }
            Ok(None) => {
                let status = started.child.wait()?;
                let words: Vec<String> = errors.iter().collect();
                match status.code() {
                    Some(UNAVAILABLE) => Ok(Err(words.join(" "))),
                    _ => bail!("{PROGRAM} ended with {status}: {}", words.join("\n")),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The words of an example's command line that have it run here.
    pub fn arguments(&self) -> Vec<String> {
        let mut words: Vec<String> = ["--provider", "aws", "--private", "--region"].map(str::to_owned).to_vec();
        words.push(self.access.region.clone());
        for subnet in self.access.subnets.values() {
            words.extend(["--subnet".to_owned(), subnet.clone()]);
        }
        words.extend(["--ssh-port".to_owned(), self.access.ssh_port.to_string()]);
        words
    }

    /// The environment variables for a client.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        self.access.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The resources that clients have left, without those of the network itself.
    ///
    /// # Errors
    ///
    /// The program has ended, or gives no answer.
    pub fn left(&self) -> Result<Vec<String>> {
        Ok(serde_json::from_value(self.ask("left")?)?)
    }

    /// Sends an order to the program, and returns the answer.
    ///
    /// # Errors
    ///
    /// The program has ended, gives no answer, or cannot carry out the order.
    pub fn ask(&self, line: &str) -> Result<Value> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let input = lines.input.as_mut().context("the EC2 on loopback was ended")?;
        writeln!(input, "{line}").with_context(|| format!("the EC2 on loopback has ended, and cannot {line:?}"))?;
        let answer = lines.output.recv_timeout(EMULATOR_ANSWER);
        let answer = answer.with_context(|| format!("the EC2 on loopback gave no answer to {line:?}"))?;
        let mut answer: Value = serde_json::from_str(&answer)?;
        match answer["error"].as_str() {
            Some(error) => Err(anyhow!("the EC2 on loopback cannot {line:?}: {error}")),
            None => Ok(answer["ok"].take()),
        }
    }
}

impl Drop for Ec2 {
    fn drop(&mut self) {
        self.lines.get_mut().unwrap_or_else(PoisonError::into_inner).input = None;
        let end = Instant::now() + EMULATOR_END;
        while Instant::now() < end {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(EMULATOR_POLL),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        // Its machines end with it in any case.
        eprintln!("the EC2 on loopback did not end within {} seconds, and is killed", EMULATOR_END.as_secs());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A thread reads them as they come.
fn lines_of(source: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in source.into_iter().flat_map(|source| BufReader::new(source).lines().map_while(Result::ok)) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// None, when it ends before.
fn first_line(output: &Receiver<String>) -> Result<Option<String>> {
    let end = Instant::now() + EMULATOR_START;
    while Instant::now() < end {
        match output.recv_timeout(EMULATOR_POLL) {
            Ok(line) => return Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if interrupt::asked() => bail!("{PROGRAM} was interrupted"),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    bail!("{PROGRAM} did not start within {} seconds", EMULATOR_START.as_secs())
}

const PROGRAM: &str = "ec2-on-loopback";
/// Its exit code where this host cannot have it.
const UNAVAILABLE: i32 = 69;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Run;

    /// A program that does what a script says.
    fn play(name: &str, script: &str) -> Result<Result<Ec2, String>> {
        let program = std::env::temp_dir().join(format!("skyward-xtask-ec2-{}-{name}", std::process::id()));
        // Another process writes it: while this one had it open, a process that another thread starts
        // would have it open, too, and it could not run.
        let write = ["-c", r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 755 "$1""#, "sh"];
        Run::new("sh").args(write).args([&program]).args([script]).read().unwrap();
        let played = Ec2::run(&program, Path::new("python"), &[]);
        std::fs::remove_file(program).unwrap();
        played
    }

    const ACCESS: &str =
        r#"echo '{"environment":{"AWS_REGION":"r"},"subnets":{"r-a":"s-1"},"ssh_port":7,"region":"r"}'"#;

    #[test]
    fn it_is_reached_as_it_says_and_ends_with_its_input() {
        let script = format!(
            "{ACCESS}\nread line; echo \"{{\\\"ok\\\":[\\\"$line\\\"]}}\"\nread line; echo '{{\"error\":\"no\"}}'\nread end"
        );
        let ec2 = play("well", &script).unwrap().unwrap();
        let wanted = ["--provider", "aws", "--private", "--region", "r", "--subnet", "s-1", "--ssh-port", "7"];
        assert_eq!(ec2.arguments(), wanted);
        assert_eq!(ec2.environment().collect::<Vec<_>>(), [("AWS_REGION", "r")]);
        assert_eq!(ec2.left().unwrap(), ["left"]);
        assert!(ec2.ask("kill i-1").unwrap_err().to_string().ends_with("cannot \"kill i-1\": no"));
        let id = ec2.child.id();
        drop(ec2);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn what_cannot_be_is_distinguished_from_what_fails() {
        let reason = play("none", "echo 'there is no sudo' >&2; exit 69").unwrap().err();
        assert_eq!(reason.as_deref(), Some("there is no sudo"));
        let error = play("fails", "echo 'error: no moto' >&2; exit 1").err().unwrap().to_string();
        assert!(error.contains("exit status: 1") && error.ends_with("error: no moto"), "{error}");
        let error = play("other", "echo hello").err().unwrap().to_string();
        assert!(error.contains("hello"), "{error}");
    }
}
