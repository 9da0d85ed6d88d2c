//! The output of a command: its lines as they arrive, and its last part.

use super::OnLine;

/// Passes lines on as they arrive, and keeps the last part of the output.
pub(super) struct Lines<'a> {
    on_line: OnLine<'a>,
    tail: Vec<u8>,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(on_line: OnLine<'a>) -> Self {
        Self { on_line, tail: Vec::new(), line: Vec::new() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        // Cut at twice the size, so that each byte is moved once on average.
        if self.tail.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() > LINE {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        let end = self.line.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
        (self.on_line)(&String::from_utf8_lossy(&self.line[..end]));
        self.line.clear();
    }

    pub(super) fn finish(&mut self) {
        if !self.line.is_empty() {
            self.flush();
        }
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.tail).into_owned()
    }

    pub(super) fn last_line(&self) -> Option<&str> {
        let start = self.tail.iter().rposition(|byte| *byte == b'\n' && !self.tail.ends_with(b"\n"));
        let text = std::str::from_utf8(&self.tail[start.unwrap_or(0)..]).ok()?;
        text.lines().rev().find(|line| !line.trim().is_empty())
    }
}

/// How much is kept of standard output and of standard error each, in bytes.
pub(super) const TAIL: usize = 256 << 10;
/// A line longer than this is passed on in parts.
const LINE: usize = 64 << 10;
