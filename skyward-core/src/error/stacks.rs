//! The Python stacks of ranks.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::ids::Rank;

/// The Python stacks of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RankStacks {
    /// The rank.
    pub rank: Rank,
    /// Where the rank's main thread was, in a few words. `None` if the rank did not answer.
    pub place: Option<String>,
    /// The stacks of all threads of the rank, as Python's `faulthandler` writes them: the most
    /// recent call first, the main thread last. A long text is cut at its front.
    pub text: String,
}

impl RankStacks {
    /// Reads the output of `faulthandler`, and keeps at most the last `longest` bytes.
    pub(crate) fn new(rank: Rank, text: &str, longest: usize) -> Self {
        let mut start = text.len().saturating_sub(longest);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        Self { rank, place: place(text), text: text[start..].trim_end().to_owned() }
    }
}

/// The message of a stall: for how long there was no progress, and where each rank was.
pub(crate) fn silence(silent: Duration, stacks: &[RankStacks]) -> String {
    format!("no progress for {silent:.0?}: {}", places(stacks))
}

/// Where each rank was.
pub(crate) fn places(stacks: &[RankStacks]) -> String {
    let places = stacks.iter().take(MOST_PLACES).map(|one| match &one.place {
        Some(place) => format!("rank {} was in {place}", one.rank),
        None => format!("rank {} did not answer", one.rank),
    });
    let mut places = places.collect::<Vec<_>>().join(", ");
    if stacks.len() > MOST_PLACES {
        places += &format!(", and {} more", stacks.len() - MOST_PLACES);
    }
    places
}

/// The stacks of all ranks, as an error displays them. Ranks with the same stacks share one entry.
/// Each line begins with a line break.
#[derive(Debug)]
pub(crate) struct Listed<'a>(pub(crate) &'a [RankStacks]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self.0, f)
    }
}

fn write(stacks: &[RankStacks], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut left: Vec<&RankStacks> = stacks.iter().filter(|one| !one.text.is_empty()).collect();
    while let Some(first) = left.first().map(|one| without_ids(&one.text)) {
        let (same, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|one| without_ids(&one.text) == first);
        let ranks: Vec<String> = same.iter().map(|one| one.rank.to_string()).collect();
        write!(f, "\nstacks of rank {}:", ranks.join(", "))?;
        for line in same.first().iter().flat_map(|one| one.text.lines()) {
            write!(f, "\n  {line}")?;
        }
        left = others;
    }
    Ok(())
}

/// The lines without those that name a thread, because thread ids differ between processes.
fn without_ids(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.contains("hread 0x")).collect()
}

/// The innermost frame of the main thread, and the innermost frame of the payload if it is another
/// one.
fn place(text: &str) -> Option<String> {
    let main = text.rsplit("hread 0x").next().filter(|_| text.contains("hread 0x"))?;
    let frames: Vec<(&str, &str, &str)> = main
        .lines()
        .filter_map(|line| {
            let (file, rest) = line.trim().strip_prefix("File \"")?.split_once("\", line ")?;
            let (line, function) = rest.split_once(" in ")?;
            Some((file, line, function))
        })
        // The frames below belong to the worker, and are the same for every task.
        .take_while(|(file, ..)| !file.ends_with("/skyward/_tasks/runner.py"))
        .collect();
    let short = |(file, line, function): &(&str, &str, &str)| {
        format!("`{function}` ({}:{line})", file.rsplit('/').next().unwrap_or(file))
    };
    let innermost = frames.first()?;
    let payload = frames.iter().find(|(file, ..)| !file.starts_with(['/', '<']));
    Some(match payload {
        Some(payload) if payload != innermost => format!("{} of {}", short(innermost), short(payload)),
        _ => short(innermost),
    })
}

/// The most ranks whose places the message names.
const MOST_PLACES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Thread 0x00007f01 (most recent call first):\n  File \"a.py\", line 9 in beside\n\n\
        Current thread 0x00007f02 (most recent call first):\n  File \"/usr/lib/python3.11/socket.py\", line 294 in accept\n  \
        File \"a.py\", line 5 in meet\n  File \"a.py\", line 7 in f\n  File \"/x/skyward/_tasks/runner.py\", line 64 in run\n";

    #[test]
    fn the_place_is_that_of_the_main_thread_in_the_payload() {
        let stacks = RankStacks::new(Rank(0), TEXT, 1000);
        assert_eq!(stacks.place.as_deref(), Some("`accept` (socket.py:294) of `meet` (a.py:5)"));
        let direct = "Current thread 0x1 (most recent call first):\n  File \"a.py\", line 5 in meet\n";
        assert_eq!(place(direct).as_deref(), Some("`meet` (a.py:5)"));
    }

    #[test]
    fn a_text_without_a_stack_has_no_place() {
        for text in [
            "",
            "nonsense",
            "Thread 0x",
            "Thread 0x1 (most recent call first):\n  <no Python frame>\n",
            "File \"a\", line ",
        ] {
            assert_eq!(RankStacks::new(Rank(0), text, 1000).place, None, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut_at_its_front() {
        assert_eq!(RankStacks::new(Rank(0), "äöü", 3).text, "ü");
    }
}
