//! Assembles whole lines from the pieces in which workers' output arrives.

use std::collections::BTreeMap;

use crate::event::{OutputChunk, OutputStream};
use crate::ids::{Generation, Rank};

/// The unfinished lines of all workers.
#[derive(Debug, Default)]
pub(super) struct Lines {
    streams: BTreeMap<(Rank, bool), Unfinished>,
}

/// A line of one worker, as bytes and without prefix.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Text(Vec<u8>),
    /// This many bytes are missing.
    Gap(u64),
}

#[derive(Debug)]
struct Unfinished {
    generation: Generation,
    /// The offset of the next bytes.
    next: u64,
    text: Vec<u8>,
    /// Whether the last byte was a carriage return: the next bytes overwrite the text, unless they
    /// end the line.
    returned: bool,
    /// Whether the line has been overwritten: its text is the state of a progress.
    progress: bool,
}

impl Lines {
    /// Adds a piece of output, and returns the lines that it completes.
    pub(super) fn take(&mut self, output: &OutputChunk) -> Vec<Line> {
        let mut lines = Vec::new();
        let fresh = || Unfinished {
            generation: output.generation,
            next: output.offset,
            text: Vec::new(),
            returned: false,
            progress: false,
        };
        let stream = self.streams.entry((output.rank, output.stream == OutputStream::Stderr)).or_insert_with(fresh);
        if stream.generation != output.generation {
            lines.extend(stream.finish());
            *stream = fresh();
        }
        // After a reconnect some bytes may arrive a second time.
        let seen = usize::try_from(stream.next.saturating_sub(output.offset)).unwrap_or(usize::MAX);
        let bytes = output.bytes.get(seen..).unwrap_or_default();
        let missing = output.offset.saturating_sub(stream.next);
        if missing > 0 {
            lines.extend(stream.finish());
            lines.push(Line::Gap(missing));
        }
        stream.next = stream.next.max(output.offset.saturating_add(output.bytes.len() as u64));
        stream.add(bytes, &mut lines);
        lines
    }

    /// The unfinished lines that their workers overwrite, as `tqdm` and `rich` do, in their present
    /// state.
    pub(super) fn progress(&self) -> impl Iterator<Item = (Rank, &[u8])> {
        let streams = self.streams.iter().filter(|(_, stream)| stream.progress && !stream.text.is_empty());
        streams.map(|((rank, _), stream)| (*rank, stream.text.as_slice()))
    }

    /// Takes the unfinished lines of one worker, or of all workers.
    pub(super) fn finish(&mut self, of: Option<Rank>) -> Vec<(Rank, OutputStream, Line)> {
        let streams = self.streams.iter_mut().filter(|((rank, _), _)| of.is_none_or(|of| of == *rank));
        streams
            .filter_map(|((rank, stderr), stream)| {
                let name = if *stderr { OutputStream::Stderr } else { OutputStream::Stdout };
                stream.finish().map(|line| (*rank, name, line))
            })
            .collect()
    }
}

impl Unfinished {
    fn add(&mut self, bytes: &[u8], lines: &mut Vec<Line>) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            match piece.last() {
                Some(b'\n') => self.progress = false,
                Some(b'\r') => self.progress = true,
                _ => {}
            }
            if piece == b"\n" {
                lines.push(Line::Text(std::mem::take(&mut self.text)));
                self.returned = false;
                continue;
            }
            if piece == b"\r" && self.returned {
                continue;
            }
            if std::mem::take(&mut self.returned) {
                self.text.clear();
            }
            match piece.split_last() {
                Some((b'\n', text)) => {
                    self.text.extend_from_slice(text);
                    lines.push(Line::Text(std::mem::take(&mut self.text)));
                }
                Some((b'\r', text)) => {
                    self.text.extend_from_slice(text);
                    self.returned = true;
                }
                _ => self.text.extend_from_slice(piece),
            }
            while self.text.len() > MAX_LINE {
                let rest = self.text.split_off(MAX_LINE);
                lines.push(Line::Text(std::mem::replace(&mut self.text, rest)));
            }
        }
    }

    fn finish(&mut self) -> Option<Line> {
        self.returned = false;
        self.progress = false;
        let text = std::mem::take(&mut self.text);
        (!text.is_empty()).then_some(Line::Text(text))
    }
}

/// The most bytes of a line. Longer lines are split.
const MAX_LINE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeIndex;

    /// Feeds output in order, with consecutive offsets.
    struct Feed {
        lines: Lines,
        offset: u64,
        generation: u64,
    }

    impl Feed {
        fn new() -> Self {
            Self { lines: Lines::default(), offset: 0, generation: 1 }
        }

        fn bytes(&mut self, bytes: &[u8]) -> Vec<Line> {
            let bytes = bytes.to_vec();
            let length = bytes.len() as u64;
            let output = OutputChunk::new(
                NodeIndex(0),
                Rank(0),
                OutputStream::Stdout,
                Generation(self.generation),
                self.offset,
                bytes,
            );
            self.offset += length;
            self.lines.take(&output)
        }

        fn texts(&mut self, bytes: &[u8]) -> Vec<String> {
            let text = |line| match line {
                Line::Text(text) => String::from_utf8(text).unwrap(),
                Line::Gap(missing) => format!("<{missing}>"),
            };
            self.bytes(bytes).into_iter().map(text).collect()
        }
    }

    #[test]
    fn a_line_is_returned_when_it_is_whole() {
        let mut feed = Feed::new();
        assert!(feed.texts(b"ep").is_empty());
        assert_eq!(feed.texts(b"och 1\n\nepoch 2\r\nx"), ["epoch 1", "", "epoch 2"]);
        assert_eq!(feed.lines.finish(Some(Rank(1))), []);
        assert_eq!(feed.lines.finish(None), [(Rank(0), OutputStream::Stdout, Line::Text(b"x".to_vec()))]);
        assert_eq!(feed.lines.finish(None), []);
    }

    #[test]
    fn an_overwritten_line_keeps_the_last_text() {
        let mut feed = Feed::new();
        assert!(feed.texts(b"10%\r20%\r").is_empty());
        assert!(feed.texts(b"\r100%").is_empty());
        assert_eq!(feed.texts(b" done\r"), [""; 0]);
        assert_eq!(feed.texts(b"\nnext\n"), ["100% done", "next"]);
    }

    #[test]
    fn a_line_that_is_overwritten_is_a_progress_until_it_ends() {
        let mut feed = Feed::new();
        let mut state = |bytes: &[u8]| {
            feed.bytes(bytes);
            feed.lines.progress().map(|(_, text)| String::from_utf8(text.to_vec()).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(state(b"no progress"), [""; 0]);
        assert_eq!(state(b"\n\r 10%"), [" 10%"]);
        assert_eq!(state(b"\r 20%\r"), [" 20%"]);
        assert_eq!(state(b" 30"), [" 30"]);
        assert_eq!(state(b"%\nnext"), [""; 0]);
        assert_eq!(state(b"\r\n"), [""; 0], "a line of Windows");
        assert_eq!(state(b"1\r2"), ["2"]);
        feed.lines.finish(None);
        assert_eq!(feed.lines.progress().count(), 0);
    }

    #[test]
    fn a_gap_is_reported_and_repeated_bytes_are_dropped() {
        let mut feed = Feed::new();
        assert_eq!(feed.texts(b"one\ntw"), ["one"]);
        feed.offset = 4;
        assert_eq!(feed.texts(b"two\n"), ["two"]);
        feed.offset = 2;
        assert_eq!(feed.texts(b"e\n"), [""; 0]);
        feed.offset = 8;
        assert_eq!(feed.texts(b"th"), [""; 0]);
        feed.offset = 20;
        assert_eq!(feed.texts(b"four\n"), ["th", "<10>", "four"]);
    }

    #[test]
    fn a_new_generation_starts_new_lines() {
        let mut feed = Feed::new();
        feed.texts(b"cut of");
        (feed.generation, feed.offset) = (2, 0);
        assert_eq!(feed.texts(b"new\n"), ["cut of", "new"]);
    }

    #[test]
    fn a_long_line_is_split() {
        let mut feed = Feed::new();
        let lines = feed.texts(&vec![b'x'; 2 * MAX_LINE + 1]);
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [MAX_LINE, MAX_LINE]);
        assert_eq!(feed.texts(b"\n"), ["x"]);
    }
}
