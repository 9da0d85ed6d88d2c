//! An EC2 on loopback in a separate process, so that its memory and processor time do not count for
//! Skyward.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use skyward::provider::{Addressing, Aws};

/// The process, which ends when the value is dropped.
pub(crate) struct Emulator {
    child: Child,
    pipes: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    told: Told,
}

#[derive(Deserialize)]
struct Told {
    endpoint: String,
    environment: BTreeMap<String, String>,
    subnets: BTreeMap<String, String>,
    ssh_port: u16,
    region: String,
}

impl Emulator {
    /// Starts the program with these arguments.
    pub(crate) fn start(program: &str, words: &[&str]) -> io::Result<Self> {
        let mut child = Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or_else(untold)?;
        let mut output = BufReader::new(child.stdout.take().ok_or_else(untold)?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let told = serde_json::from_str(&line)?;
        Ok(Self { child, pipes: Mutex::new(Some((input, output))), told })
    }

    /// The provider, as a user of this account would set it up.
    pub(crate) fn aws(&self) -> Aws {
        let value = |name: &str| self.told.environment.get(name).map(String::as_str).unwrap_or_default();
        Aws::new()
            .region(&self.told.region)
            .endpoint_url(&self.told.endpoint)
            .credentials(value("AWS_ACCESS_KEY_ID"), value("AWS_SECRET_ACCESS_KEY"), None)
            .subnets(self.told.subnets.values())
            .addressing(Addressing::Private)
            .ssh_port(self.told.ssh_port)
    }

    pub(crate) fn ssh_port(&self) -> u16 {
        self.told.ssh_port
    }

    /// How often each action was called since the previous call of this function.
    pub(crate) fn calls(&self) -> io::Result<BTreeMap<String, u64>> {
        self.ask("calls")
    }

    /// Fails when anything is left in the account.
    pub(crate) fn check_left(&self) -> io::Result<()> {
        let left: Vec<String> = self.ask("left")?;
        match left.is_empty() {
            true => Ok(()),
            false => Err(io::Error::other(format!("this is left in EC2: {}", left.join("; ")))),
        }
    }

    fn ask<T: DeserializeOwned>(&self, line: &str) -> io::Result<T> {
        let mut pipes = self.pipes.lock().map_err(|_| untold())?;
        let (input, output) = pipes.as_mut().ok_or_else(untold)?;
        writeln!(input, "{line}")?;
        let mut answer = String::new();
        output.read_line(&mut answer)?;
        let mut answer: Value = serde_json::from_str(&answer)?;
        match answer["error"].as_str() {
            Some(error) => Err(io::Error::other(format!("{line}: {error}"))),
            None => Ok(serde_json::from_value(answer["ok"].take())?),
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The process ends when its input closes, and has a deadline of its own for its machines.
        if let Ok(pipes) = self.pipes.get_mut() {
            *pipes = None;
        }
        if let Err(error) = self.child.wait() {
            eprintln!("the EC2 on loopback cannot be waited for: {error}");
        }
    }
}

fn untold() -> io::Error {
    io::Error::other("the EC2 on loopback does not answer")
}
