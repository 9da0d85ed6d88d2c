//! What a worker has written last on standard error: its last lines, and after a fatal signal the
//! Python stacks that `faulthandler` has written.

use std::sync::Arc;

/// What a worker has written last on standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LastWords {
    /// The last lines. The stacks are no part of them.
    pub(super) lines: Arc<str>,
    /// The stacks of all threads, that of the thread which got the fatal signal last.
    pub(super) stacks: Arc<str>,
}

impl LastWords {
    /// Reads the end of what a process has written on standard error.
    pub(crate) fn read(text: &str) -> Self {
        let (before, stacks) = split(text);
        Self { lines: last_lines(before).into(), stacks: stacks.into() }
    }
}

/// The text without the stacks of a fatal signal, and these stacks.
fn split(text: &str) -> (&str, String) {
    let Some(fatal) = text.rfind(FATAL).filter(|at| *at == 0 || text[..*at].ends_with('\n')) else {
        return (text, String::new());
    };
    let head = text[fatal..].find('\n').map_or(text.len(), |length| fatal + length);
    let blocks = text[head..].split("\n\n").map(str::trim).filter(|block| is_stack(block));
    let (current, mut stacks): (Vec<_>, Vec<_>) = blocks.partition(|block| block.starts_with("Current thread"));
    stacks.extend(current);
    match stacks.is_empty() {
        true => (text, String::new()),
        false => (&text[..head], stacks.join("\n\n")),
    }
}

/// Whether a part of the output of `faulthandler` is the Python stack of one thread.
fn is_stack(block: &str) -> bool {
    let first = block.lines().next().unwrap_or_default();
    first.contains("hread 0x") && first.ends_with("(most recent call first):")
}

/// The last lines of a text, as a terminal would show them: what follows a carriage return replaces
/// its line.
fn last_lines(text: &str) -> String {
    let shown = |line: &'_ str| line.trim_end().rsplit('\r').next().unwrap_or_default().trim_end().to_owned();
    let lines: Vec<String> = text.lines().map(shown).filter(|line| !line.is_empty()).collect();
    let text = lines[lines.len().saturating_sub(MOST_LINES)..].join("\n");
    match text.char_indices().map(|(at, _)| at).find(|at| text.len() - at <= MOST_BYTES) {
        None | Some(0) => text,
        Some(start) => format!("…{}", &text[start..]),
    }
}

/// How `faulthandler` and Python itself begin the report of a fatal error.
const FATAL: &str = "Fatal Python error: ";
/// The most lines that an error holds.
const MOST_LINES: usize = 20;
/// The most bytes that an error holds.
const MOST_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const CRASH: &str = "loading\nFatal Python error: Segmentation fault\n\n\
        Current thread 0x00007f02 (most recent call first):\n  File \"job.py\", line 3 in crash\n\n\
        Thread 0x00007f01 (most recent call first):\n  File \"job.py\", line 9 in beside\n\n\
        Extension modules: numpy._core._multiarray_umath, msgspec._core (total: 2)\n";

    #[test]
    fn the_stacks_of_a_fatal_signal_are_apart_and_the_thread_that_crashed_is_the_last() {
        let words = LastWords::read(CRASH);
        assert_eq!(&*words.lines, "loading\nFatal Python error: Segmentation fault");
        let (other, current) = words.stacks.split_once("\n\n").unwrap();
        assert!(other.contains("in beside") && current.ends_with("line 3 in crash"), "{}", words.stacks);
    }

    #[test]
    fn a_text_without_stacks_is_lines_alone() {
        for text in ["", "a\nb\n", "I said: Fatal Python error: no", "Fatal Python error: init failed\nno module"] {
            let words = LastWords::read(text);
            assert_eq!((&*words.lines, &*words.stacks), (text.trim_end(), ""));
        }
    }

    #[test]
    fn the_last_lines_are_bounded_in_number_and_length() {
        let many: String = (0..100).map(|n| format!("line {n}\n\n")).collect();
        let words = LastWords::read(&many);
        assert_eq!(words.lines.lines().count(), MOST_LINES);
        assert!(words.lines.ends_with("line 99"));
        let long = LastWords::read(&"ä".repeat(10_000));
        assert!(long.lines.starts_with('…') && long.lines.len() <= MOST_BYTES + '…'.len_utf8());
    }

    #[test]
    fn progress_that_replaces_its_line_is_shown_in_its_last_state() {
        assert_eq!(&*LastWords::read("\r 10%\r 50%\r\nno room\r\n").lines, " 50%\nno room");
    }
}
