//! What happens on a host before a program of this library runs: the login of the user.
//!
//! The user's shell runs its start-up files first, or the server runs another program. Either may
//! print, take its time, read standard input, become another shell, or end. The launcher prints a
//! mark when it has read its own input; what comes before that is not the program's.

use crate::error::{Error, ErrorKind};

/// One output of a program, up to the mark.
#[derive(Default)]
pub(super) struct Before(Vec<u8>);

/// What a login did instead of running the launcher.
#[derive(Debug)]
pub(super) struct Instead {
    /// The exit status; none where the login did not end.
    pub(super) status: Option<i32>,
    printed: String,
    /// Whether it has read what was meant for the launcher.
    has_read: bool,
}

impl Before {
    /// Takes bytes of the output. Returns those after the mark, once it is there.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.0.extend_from_slice(bytes);
        let begin = self.0.len().saturating_sub(bytes.len() + MARK.len());
        if let Some(at) = self.0[begin..].windows(MARK.len()).position(|window| window == MARK) {
            return Some(self.0.split_off(begin + at + MARK.len()));
        }
        if self.0.len() > 2 * MOST {
            self.0.drain(..self.0.len() - MOST);
        }
        None
    }
}

impl Instead {
    pub(super) fn new(status: Option<i32>, out: Before, err: Before) -> Self {
        let [out, err] = [out, err].map(|before| String::from_utf8_lossy(&before.0).into_owned());
        let has_read = err.lines().any(|line| line == HAS_READ);
        let lines = out.lines().chain(err.lines()).map(str::trim_end).filter(|line| !line.is_empty());
        let mut printed = lines.filter(|line| *line != HAS_READ).collect::<Vec<_>>().join("\n");
        // A login that prints its input has the variables of the command, which may be secret.
        if let Some(at) = printed.find(COMMAND) {
            printed.truncate(at);
            printed.push_str("… (the input of the login)");
        }
        Self { status, printed, has_read }
    }

    /// The error of a program that was not run.
    pub(super) fn error(self, name: &str, host: &str, within: std::time::Duration) -> Error {
        let Self { status, printed, has_read } = self;
        let did = match status {
            _ if has_read => "a start-up file of the login has read the standard input of the program".to_owned(),
            Some(status) => format!("the login ended with status {status} before the program was run"),
            None => format!("the login did not run the program within {within:?}"),
        };
        let kind = if status.is_none() { ErrorKind::Timeout } else { ErrorKind::Bootstrap };
        let error = Error::new(kind, format!("cannot run `{name}` on {host}: {did}"))
            .with_context("it printed", if printed.is_empty() { "nothing" } else { &printed })
            .with_hint(HINT);
        if status.is_none() { error.temporary() } else { error }
    }
}

/// The first lines of a launcher's input. A shell that reads them in place of the launcher, as where
/// a start-up file becomes another shell, ends at the first one.
pub(super) fn head(size: usize, at_end: &str, command: &str) -> String {
    format!("exit 125 #{size} {at_end}\n{COMMAND}{command}\n")
}

/// The bytes after the line that marks the beginning of the program's own output.
pub(super) const MARK: &[u8] = b"skyward-output\n";
/// Printed by a launcher whose input somebody else has read.
const HAS_READ: &str = "skyward-has-read";
/// The beginning of the shell text that becomes the program.
const COMMAND: &str = ": skyward-command; ";
/// How much of what a login prints is kept of each output, in bytes.
const MOST: usize = 64 << 10;
const HINT: &str = "`ssh -T` with a command, such as `true`, must run it and print no more: the user needs a shell that \
    runs any command (not nologin, a restricted shell or a forced command), and its start-up files must not end, \
    start another shell or read standard input when the shell is not interactive. At the top of ~/.bashrc: \
    `case $- in *i*) ;; *) return ;; esac`";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn before(text: &str) -> Before {
        Before(text.as_bytes().to_vec())
    }

    #[test]
    fn the_mark_is_found_in_pieces_and_what_precedes_it_is_kept() {
        let mut output = Before::default();
        assert_eq!(output.push(b"Welcome!\nsky"), None);
        assert_eq!(output.push(b"ward-output\nours").unwrap(), b"ours");
        let mut long = Before::default();
        assert_eq!(long.push(&vec![b'x'; 5 * MOST]), None);
        assert_eq!(long.push(b"skyward-out"), None);
        assert!(long.0.len() <= 2 * MOST && long.0.ends_with(b"xskyward-out"));
        assert_eq!(long.push(b"put\n").unwrap(), b"");
    }

    #[test]
    fn the_error_has_all_that_the_login_printed_but_not_its_input() {
        let instead = Instead::new(Some(1), before("Welcome to gpu1\n\nno shell\n"), before("bye\n"));
        let error = instead.error("true", "me@gpu1:22", Duration::from_secs(60));
        assert_eq!(
            error.message(),
            "cannot run `true` on me@gpu1:22: the login ended with status 1 before the program was run"
        );
        assert_eq!(error.context(), [("it printed", "Welcome to gpu1\nno shell\nbye".to_owned())]);
        assert!(!error.is_temporary());
        let input = head(7, "kill", "export TOKEN='hunter2'; exec true");
        let error = Instead::new(None, before(&input), Before::default()).error("true", "h", Duration::from_secs(60));
        assert_eq!(error.context()[0].1, "exit 125 #7 kill\n… (the input of the login)");
        assert!(error.is_temporary());
        let read = Instead::new(Some(125), Before::default(), before("skyward-has-read\n"));
        let error = read.error("true", "h", Duration::from_secs(60));
        assert!(error.message().contains("has read") && error.context()[0].1 == "nothing", "{error}");
    }
}
