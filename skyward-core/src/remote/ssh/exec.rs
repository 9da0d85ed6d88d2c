//! Runs programs in channels of a connection.

use bytes::Bytes;
use russh::client::Msg;
use russh::{ChannelMsg, ChannelWriteHalf, Sig};

use super::connection::{Connection, Refusal};
use crate::remote::lines::Lines;

/// What to run on a host.
pub(super) struct Program {
    /// Shell text in one line, which becomes the program.
    text: String,
    stdin: Bytes,
    /// Standard input is sent when the program writes this line; at once when there is none.
    gate: Option<&'static str>,
    /// Whether it is killed when it is given up; otherwise it sees the end of its input.
    kill: bool,
}

/// How a program ended.
pub(super) enum Ended {
    /// With this status, a signal as `128 + signal`.
    Status(i32),
    /// The connection was lost, for this reason.
    Lost(String),
    /// The server does not run programs.
    Refused,
    /// The server does not say whether it does.
    Unanswered,
}

impl Program {
    /// A program that is killed with its children when it is given up.
    ///
    /// # Errors
    ///
    /// What cannot be passed on.
    pub(super) fn new<'a>(
        argv: &[String],
        env: impl IntoIterator<Item = (&'a String, &'a String)>,
        stdin: Bytes,
    ) -> Result<Self, String> {
        let program = argv.first().ok_or("the command is empty")?;
        let mut text = String::new();
        for (name, value) in env {
            if !is_name(name) {
                return Err(format!("`{name}` is no name for a variable"));
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

    /// Sends standard input only when the program asks for it with this line, and lets it clean up when it is given up.
    pub(super) fn gated(mut self, line: &'static str) -> Self {
        self.gate = Some(line);
        self.kill = false;
        self
    }

    /// Runs it to its end; what it writes goes to `out` and `err`.
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
        out: &mut Lines<'_>,
        err: &mut Lines<'_>,
    ) -> Result<Ended, Refusal> {
        let (mut read, half) = connection.session().await?.split();
        let running = connection.running(half, self.kill);
        let Some(half) = running.half() else { return Ok(Ended::Lost(connection.reason())) };
        let (mut out, mut err) = (Sieve::new(out), Sieve::new(err));
        let mut gate = self.gate.map(|line| format!("{line}\n").into_bytes());
        let lost = || Ended::Lost(connection.reason());
        let at_end = if self.kill { "kill" } else { "end" };
        let head = format!("{} {at_end}\n{}\n", self.stdin.len(), self.text);
        let (open, gate_opened) = tokio::sync::oneshot::channel::<()>();
        let mut open = Some(open);
        if gate.is_none() {
            open.take();
        }
        // Beside the reading: a server takes no byte before it has started the program, and when it does not, or is
        // lost, only who reads hears of it.
        let feed = async {
            if start(half, LAUNCHER, head).await {
                feed(half, self.stdin.clone(), gate_opened).await;
            }
        };
        let mut feed = std::pin::pin!(feed);
        let (mut fed, mut status, mut at_end) = (false, None, false);
        while !(at_end && status.is_some()) {
            let linger = async {
                match status {
                    // A daemon that it left may hold its output open for ever; what the program itself wrote is on the way already.
                    Some(_) => tokio::time::sleep(super::LINGER).await,
                    None => std::future::pending().await,
                }
            };
            let message = tokio::select! {
                biased;
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
        match status {
            Some(status) => {
                running.ended();
                Ok(Ended::Status(status))
            }
            None => Ok(lost()),
        }
    }
}

/// What a program writes, without what a start-up file of the user's shell wrote before it.
struct Sieve<'a, 'b> {
    lines: &'a mut Lines<'b>,
    /// The bytes before the mark, and then none.
    before: Option<Vec<u8>>,
    /// The end of what came, for a line to be found in.
    last: Vec<u8>,
}

impl<'a, 'b> Sieve<'a, 'b> {
    fn new(lines: &'a mut Lines<'b>) -> Self {
        Self { lines, before: Some(Vec::new()), last: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8]) {
        let Some(before) = &mut self.before else {
            self.hand_on(bytes);
            return;
        };
        before.extend_from_slice(bytes);
        if let Some(rest) = after_mark(before) {
            let rest = rest.to_vec();
            self.before = None;
            self.hand_on(&rest);
        } else if before.len() > CHATTER {
            // Not a word of it is the program's; the beginning of the mark may be in its end.
            before.drain(..before.len() - MARK.len());
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

/// What is behind the line that says that the program's own output begins.
pub(super) fn after_mark(bytes: &[u8]) -> Option<&[u8]> {
    let at = bytes.windows(MARK.len()).position(|window| window == MARK)?;
    Some(&bytes[at + MARK.len()..])
}

/// Asks for a launcher, and writes what it reads first. `false` when the connection is lost.
///
/// When it is lost while the server takes nothing, this waits for ever: whoever waits for it reads the channel as well.
pub(super) async fn start(half: &ChannelWriteHalf<Msg>, launcher: &str, head: String) -> bool {
    half.exec(true, launched(launcher)).await.is_ok() && half.data_bytes(head.into_bytes()).await.is_ok()
}

async fn feed(half: &ChannelWriteHalf<Msg>, stdin: Bytes, opened: tokio::sync::oneshot::Receiver<()>) {
    // An error says that the sender was dropped, which is how it opens.
    let _ = opened.await;
    // A program need not read all of its input, and a lost connection is seen by whoever reads.
    let _ = half.data_bytes(stdin).await;
}

/// A launcher as one argument of the user's shell, whichever that is.
pub(super) fn launched(script: &str) -> String {
    let lines: Vec<_> = script.lines().map(str::trim).filter(|line| !line.starts_with('#')).collect();
    format!("exec sh -c '{}'", lines.join(" "))
}

/// Shell text for a value, in one line: `newline` is a variable of the launcher.
pub(super) fn quoted(value: &str) -> Result<String, String> {
    if value.contains('\0') {
        return Err("a zero byte can be in no argument and no variable".into());
    }
    Ok(format!("'{}'", value.replace('\'', r"'\''").replace('\n', r#"'"$newline"'"#)))
}

fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.bytes().enumerate().all(|(index, byte)| is_letter(byte) || index > 0 && byte.is_ascii_digit())
        && !name.is_empty()
}

/// Whether a program's end means that it is not there.
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
/// Written before the program's own output.
const MARK: &[u8] = b"skyward-output\n";
const NOT_FOUND: &str = "skyward-not-found";
/// Longer than any line that is looked for.
const KEPT: usize = 64;
/// How much of what a start-up file writes is kept, in bytes.
const CHATTER: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_one_line() {
        assert_eq!(quoted("it's\n\"$HOME\"").unwrap(), r#"'it'\''s'"$newline"'"$HOME"'"#);
        assert!(quoted("a\0b").is_err());
    }

    #[test]
    fn launchers_are_one_line_that_any_shell_passes_on() {
        for script in [LAUNCHER, include_str!("scripts/line.sh")] {
            let line = launched(script);
            assert_eq!(line.matches('\'').count(), 2, "{line}");
            assert!(!line.contains(['\n', '!']), "{line}");
        }
    }

    #[test]
    fn names_of_variables_are_checked() {
        for (name, is) in [("A_1", true), ("_x", true), ("1A", false), ("", false), ("A-B", false), ("A;rm", false)] {
            assert_eq!(is_name(name), is, "{name}");
        }
    }

    #[test]
    fn what_a_start_up_file_writes_is_not_the_programs() {
        let mut lines = Lines::new(&|_| {});
        let mut sieve = Sieve::new(&mut lines);
        for part in ["Welcome!\nsky", "ward-output\nour", "s\n"] {
            sieve.push(part.as_bytes());
        }
        assert!(sieve.has(b"ours\n"));
        assert_eq!(lines.text(), "ours\n");
    }
}
