//! The client's side of the courier, the script that runs a command on the machine.

use std::collections::BTreeMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::ExecStreams;
use super::exit_scanner::ExitScanner;
use crate::error::{Error, ErrorKind, Result};
use crate::remote::lines::Lines;
use crate::remote::shell;
use crate::remote::timing::LAST_LINE;

/// A command's token, which its processes have in their environment.
pub(in crate::remote) struct Courier(String);

/// What happens to a command that is given up.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum GivenUp {
    /// It is killed with its children.
    IsKilled,
    /// Its input ends, which it waits for, so it can clean up.
    GetsNoMoreInput,
}

/// What the courier's streams told.
pub(super) enum Told {
    /// The command has ended with this status.
    Ended(i32),
    /// The streams ended before that; the error of reading them, if there was one.
    Lost(Option<io::Error>),
}

impl Courier {
    pub(in crate::remote) fn new() -> Self {
        Self(format!("skyward{:032x}", rand::random::<u128>()))
    }

    /// The arguments that run a command whose input has this length.
    pub(super) fn argv(&self, command: &[String], length: usize, given_up: GivenUp) -> Vec<String> {
        let at_end = match given_up {
            GivenUp::IsKilled => "kill",
            GivenUp::GetsNoMoreInput => "end",
        };
        self.script(length, at_end).into_iter().chain(command.iter().cloned()).collect()
    }

    /// The variable that marks the command and its children.
    #[cfg(feature = "ssh")]
    pub(in crate::remote) fn mark(&self) -> (String, String) {
        (MARK.to_owned(), self.0.clone())
    }

    /// The arguments that kill all that have the mark.
    pub(in crate::remote) fn kill(&self) -> Vec<String> {
        self.script(0, "kill")
    }

    fn script(&self, length: usize, at_end: &str) -> Vec<String> {
        let args = ["skyward", &self.0, &length.to_string(), at_end].map(str::to_owned);
        shell::script(SCRIPT).into_iter().chain(args).collect()
    }

    /// What precedes the command's input: its variables as lines of shell.
    pub(super) fn head(&self, env: &BTreeMap<String, String>) -> Result<String> {
        let mut lines = format!("export {MARK}={}\n", self.0);
        for (key, value) in env {
            let letter = |at, c: char| c == '_' || c.is_ascii_alphabetic() || at > 0 && c.is_ascii_digit();
            if key.is_empty() || !key.chars().enumerate().all(|(at, c)| letter(at, c)) {
                let message = format!("{key:?} is not a valid name of a shell variable");
                return Err(Error::new(ErrorKind::Bootstrap, message));
            }
            if value.contains('\0') {
                let message = format!("the value of the variable `{key}` contains a zero byte");
                return Err(Error::new(ErrorKind::Bootstrap, message));
            }
            lines.push_str(&format!("export {key}='{}'\n", value.replace('\'', r"'\''")));
        }
        Ok(lines + &self.0 + "\n")
    }

    /// Feeds the command and reads its output until it ends.
    pub(super) async fn attend(
        &self,
        streams: &mut ExecStreams,
        head: &str,
        input: &[u8],
        out: &mut Lines<'_>,
        err: &mut Lines<'_>,
    ) -> Told {
        let told = {
            let feed = async {
                feed(&mut streams.stdin, head.as_bytes(), input).await;
                std::future::pending().await
            };
            let read = async { tokio::join!(self.read(&mut streams.stdout, out), self.read(&mut streams.stderr, err)) };
            tokio::select! {
                told = read => told,
                never = feed => never,
            }
        };
        match told {
            (Ok(Some(status)), _) | (_, Ok(Some(status))) => {
                // The end was seen, so processes that the command left behind may stay. If this
                // line does not arrive, the courier ends them. It cannot arrive where one of them
                // keeps the command's input and does not read it.
                let _ = timeout(LAST_LINE, feed(&mut streams.stdin, b"\n", b"")).await;
                Told::Ended(status)
            }
            (out, err) => Told::Lost(out.err().or(err.err())),
        }
    }

    /// Reads one output up to the record with the status, or to its end.
    async fn read(&self, output: impl AsyncRead, lines: &mut Lines<'_>) -> io::Result<Option<i32>> {
        let mut output = std::pin::pin!(output);
        let (mut scanner, mut chunk) = (ExitScanner::new(&self.0), vec![0; CHUNK]);
        while scanner.status().is_none() {
            // Not every stream makes way by itself for what its task does besides.
            tokio::task::coop::consume_budget().await;
            match output.read(&mut chunk).await {
                Ok(count @ 1..) => lines.push(&scanner.push(&chunk[..count])),
                ended => {
                    lines.push(&scanner.rest());
                    return ended.map(|_| None);
                }
            }
        }
        Ok(scanner.status())
    }
}

/// Writes as much as the command reads. It need not read all, and after a failed write its end must
/// still be read.
async fn feed(stdin: impl AsyncWrite, head: &[u8], input: &[u8]) {
    let mut stdin = std::pin::pin!(stdin);
    for bytes in [head, input] {
        if stdin.write_all(bytes).await.is_err() {
            return;
        }
    }
    let _ = stdin.flush().await;
}

const MARK: &str = "SKYWARD_RUN";
const SCRIPT: &str = include_str!("courier.sh");
/// The size of one read: two messages of a Docker engine.
const CHUNK: usize = 64 << 10;
