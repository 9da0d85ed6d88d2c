//! Runs programs in channels of a connection.
//!
//! A host is no [`Exec`](crate::remote::Exec): the user's shell splits the arguments and may write
//! first, the server itself reports the status and kills the program, and a connection may refuse
//! one more program and leave it to another connection.

use std::time::Duration;

use bytes::Bytes;
use russh::client::Msg;
use russh::{ChannelMsg, ChannelWriteHalf, Sig};
use tokio::time::Instant;

use super::connection::{Connection, Refusal};
use super::prelude::{Before, Instead, head};
use super::timing::LOGIN;
use crate::remote::lines::Lines;
use crate::remote::shell::launched;
use crate::remote::timing::OUTPUT_AFTER_EXIT;

/// A program to run on a host.
pub(super) struct Program<'a> {
    /// Shell text in one line, which becomes the program.
    text: String,
    stdin: &'a [u8],
    /// Standard input is sent when the program writes this line. Without one, it is sent at once.
    gate: Option<&'static str>,
    /// Whether the program is killed when it is given up. Otherwise its input ends.
    kill: bool,
}

/// How a program ended.
pub(super) enum Ended {
    /// With this status; `128 + signal` for a signal.
    Status(i32),
    /// It was not run: the login did something else.
    Instead(Instead),
    /// It ran for longer than it may.
    Late,
    /// The connection was lost, for this reason.
    Lost(String),
    /// The server runs no programs.
    Refused,
    /// The server did not reply to the request.
    Unanswered,
}

impl<'a> Program<'a> {
    /// A program that is killed with its children when it is given up.
    ///
    /// # Errors
    ///
    /// Why an argument or a variable cannot be passed on.
    pub(super) fn new<'b>(
        argv: &[String],
        env: impl IntoIterator<Item = (&'b String, &'b String)>,
        stdin: &'a [u8],
    ) -> Result<Self, String> {
        let program = argv.first().ok_or("the command is empty")?;
        let mut text = String::new();
        for (name, value) in env {
            if !is_name(name) {
                return Err(format!("`{name}` is not a valid name of a variable"));
            }
            text.push_str(&format!("export {name}={}; ", quoted(value)?));
        }
        let program = quoted(program)?;
        text.push_str(&format!("command -v {program} >/dev/null 2>&1 || {{ echo {NOT_FOUND} >&2; exit 127; }}; exec"));
        for argument in argv {
            text.push_str(&format!(" {}", quoted(argument)?));
        }
        Ok(Self { text, stdin, gate: None, kill: true })
    }

    /// Sends standard input only when the program asks for it with this line. A program that is
    /// given up can clean up.
    pub(super) fn gated(mut self, line: &'static str) -> Self {
        self.gate = Some(line);
        self.kill = false;
        self
    }

    /// Runs it to its end, for as long as `limit` from its beginning; its output goes to `out` and
    /// `err`.
    ///
    /// # Errors
    ///
    /// Why no channel was opened for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the program.
    pub(super) async fn run(
        &self,
        connection: &Connection,
        limit: Duration,
        out: &mut Lines<'_>,
        err: &mut Lines<'_>,
    ) -> Result<Ended, Refusal> {
        let (mut read, half) = connection.session().await?.split();
        let running = connection.running(half, self.kill);
        let Some(half) = running.half() else { return Ok(Ended::Lost(connection.reason())) };
        let (mut out, mut err) = (Sieve::new(out), Sieve::new(err));
        let mut gate = self.gate.map(|line| format!("{line}\n").into_bytes());
        let at_end = if self.kill { "kill" } else { "end" };
        let head = head(self.stdin.len(), at_end, &self.text);
        let (open, gate_opened) = tokio::sync::oneshot::channel::<()>();
        let mut open = Some(open);
        if gate.is_none() {
            open.take();
        }
        // At the same time as reading: a server takes no byte before it has started the program,
        // and only reading reports that it does not start it or is lost.
        let feed = async {
            if start(half, head).await {
                feed(half, self.stdin, gate_opened).await;
            }
        };
        let mut feed = std::pin::pin!(feed);
        let (mut fed, mut status, mut at_end) = (false, None, false);
        // The login has a time of its own, which does not count as the program's.
        let mut end = std::pin::pin!(tokio::time::sleep(LOGIN));
        let mut is_running = false;
        while !(at_end && status.is_some()) {
            let linger = async {
                match status {
                    // A daemon that the program left may hold its output open for ever. The
                    // program's own output is on the way already.
                    Some(_) => tokio::time::sleep(OUTPUT_AFTER_EXIT).await,
                    None => std::future::pending().await,
                }
            };
            let message = tokio::select! {
                biased;
                // First: output may always be there.
                () = &mut end => match (out.before, err.before) {
                    (Some(out), err) => return Ok(Ended::Instead(Instead::new(None, out, err.unwrap_or_default()))),
                    (None, _) => return Ok(Ended::Late),
                },
                message = read.wait() => message,
                () = &mut feed, if !fed => {
                    fed = true;
                    continue;
                }
                () = linger => break,
            };
            match message {
                Some(ChannelMsg::Data { data }) => {
                    out.push(&data);
                    if out.before.is_none() && !is_running {
                        is_running = true;
                        end.as_mut().reset(Instant::now() + limit);
                    }
                    if gate.as_ref().is_some_and(|line| out.has(line)) {
                        gate = None;
                        open.take();
                    }
                }
                Some(ChannelMsg::ExtendedData { data, ext: 1 }) => err.push(&data),
                Some(ChannelMsg::ExitStatus { exit_status }) => status = Some(i32::try_from(exit_status).unwrap_or(-1)),
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => status = Some(128 + number(&signal_name)),
                Some(ChannelMsg::Failure) => return Ok(Ended::Refused),
                Some(ChannelMsg::Eof) => at_end = true,
                Some(ChannelMsg::Close) => break,
                Some(_) => {}
                None => break,
            }
        }
        let Some(status) = status else { return Ok(Ended::Lost(connection.reason())) };
        running.ended();
        Ok(match out.before {
            None => Ended::Status(status),
            Some(out) => Ended::Instead(Instead::new(Some(status), out, err.before.unwrap_or_default())),
        })
    }
}

/// The output of a program, without what the login wrote before it.
struct Sieve<'a, 'b> {
    lines: &'a mut Lines<'b>,
    /// What came before the mark; none after the mark.
    before: Option<Before>,
    /// The last bytes of the output, in which a line is searched.
    last: Vec<u8>,
}

impl<'a, 'b> Sieve<'a, 'b> {
    fn new(lines: &'a mut Lines<'b>) -> Self {
        Self { lines, before: Some(Before::default()), last: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8]) {
        let Some(before) = &mut self.before else {
            self.hand_on(bytes);
            return;
        };
        if let Some(rest) = before.push(bytes) {
            self.before = None;
            self.hand_on(&rest);
        }
    }

    fn hand_on(&mut self, bytes: &[u8]) {
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT)..]);
        let excess = self.last.len().saturating_sub(KEPT);
        self.last.drain(..excess);
        self.lines.push(bytes);
    }

    /// Whether the last line is this one.
    fn has(&self, line: &[u8]) -> bool {
        self.last.ends_with(line)
    }
}

/// Requests the launcher, and writes what it reads first. Returns `false` when the connection is
/// lost.
///
/// Waits for ever when the connection is lost while the server takes nothing, so the caller must
/// read the channel at the same time.
pub(super) async fn start(half: &ChannelWriteHalf<Msg>, head: String) -> bool {
    half.exec(true, launched(LAUNCHER)).await.is_ok() && half.data_bytes(head.into_bytes()).await.is_ok()
}

async fn feed(half: &ChannelWriteHalf<Msg>, stdin: &[u8], opened: tokio::sync::oneshot::Receiver<()>) {
    // The sender opens the gate by being dropped, which is an error here.
    let _ = opened.await;
    // Each piece waits for room in the channel's window, so only one is kept here.
    for piece in stdin.chunks(PIECE) {
        if half.data_bytes(Bytes::copy_from_slice(piece)).await.is_err() {
            // A program need not read all of its input, and the reader notices a lost connection.
            return;
        }
    }
}

/// Shell text for a value, in one line. `newline` is a variable of the launcher.
pub(super) fn quoted(value: &str) -> Result<String, String> {
    if value.contains('\0') {
        return Err("arguments and variables cannot contain a zero byte".into());
    }
    Ok(format!("'{}'", value.replace('\'', r"'\''").replace('\n', r#"'"$newline"'"#)))
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().enumerate().all(|(index, byte)| is_letter(byte) || index > 0 && byte.is_ascii_digit())
        && !name.is_empty()
}

/// Whether a program ended because it does not exist.
pub(super) fn is_not_found(status: i32, stderr: &str) -> bool {
    status == 127 && stderr.trim_end().ends_with(NOT_FOUND)
}

fn number(signal: &Sig) -> i32 {
    match signal {
        Sig::HUP => 1,
        Sig::INT => 2,
        Sig::QUIT => 3,
        Sig::ILL => 4,
        Sig::ABRT => 6,
        Sig::FPE => 8,
        Sig::KILL => 9,
        Sig::USR1 => 10,
        Sig::SEGV => 11,
        Sig::PIPE => 13,
        Sig::ALRM => 14,
        Sig::TERM => 15,
        Sig::Custom(name) => match name.trim_end_matches("@openssh.com") {
            "TRAP" => 5,
            "BUS" => 7,
            "USR2" => 12,
            "XCPU" => 24,
            "XFSZ" => 25,
            "SYS" => 31,
            _ => 0,
        },
    }
}

const LAUNCHER: &str = include_str!("scripts/run.sh");
const NOT_FOUND: &str = "skyward-not-found";
/// How much input is handed to the connection at once, in bytes.
const PIECE: usize = 256 << 10;
/// Longer than any line that is searched.
const KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_one_line() {
        assert_eq!(quoted("it's\n\"$HOME\"").unwrap(), r#"'it'\''s'"$newline"'"$HOME"'"#);
        assert!(quoted("a\0b").is_err());
    }

    #[test]
    fn launchers_are_one_line_that_any_shell_accepts() {
        let line = launched(LAUNCHER);
        assert_eq!(line.matches('\'').count(), 2, "{line}");
        assert!(!line.contains(['\n', '!', '\\']), "{line}");
    }

    #[test]
    fn names_of_variables_are_checked() {
        for (name, is) in [("A_1", true), ("_x", true), ("1A", false), ("", false), ("A-B", false), ("A;rm", false)] {
            assert_eq!(is_name(name), is, "{name}");
        }
    }
}
