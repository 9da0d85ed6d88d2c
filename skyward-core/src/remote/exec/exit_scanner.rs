//! Finds the end of a command in its output: a record that only the courier writes.

/// Passes on a command's output, up to the record with the token and the exit status.
///
/// The record begins with a byte that is rare in text. Only what may be the beginning of a record
/// is held back, so a complete line is passed on at once.
#[derive(Debug)]
pub(super) struct ExitScanner {
    /// The beginning of that record.
    mark: Vec<u8>,
    /// Bytes that may be the beginning of the mark.
    held: Vec<u8>,
    /// The exit status as far as it was read.
    status: Option<Vec<u8>>,
}

impl ExitScanner {
    pub(super) fn new(token: &str) -> Self {
        Self { mark: format!("\x1e{token} ").into_bytes(), held: Vec::new(), status: None }
    }

    /// Takes new bytes, and returns the command's own output in them and in bytes that were held
    /// back.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if let Some(status) = &mut self.status {
            status.extend_from_slice(&bytes[..bytes.len().min(ROOM.saturating_sub(status.len()))]);
            return Vec::new();
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let candidates = (0..all.len()).filter(|at| all[*at] == self.mark[0]);
        for at in candidates {
            let rest = &all[at..];
            let length = rest.len().min(self.mark.len());
            if rest[..length] != self.mark[..length] {
                continue;
            }
            let rest = all.split_off(at);
            match rest.get(self.mark.len()..) {
                Some(status) => self.status = Some(status[..status.len().min(ROOM)].to_vec()),
                None => self.held = rest,
            }
            break;
        }
        all
    }

    /// The exit status, once its record is complete.
    pub(super) fn status(&self) -> Option<i32> {
        let line = self.status.as_ref()?.strip_suffix(b"\n")?;
        std::str::from_utf8(line).ok()?.parse().ok()
    }

    /// The bytes that were held back, when no more bytes come and so they are the command's own.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

/// The length of an exit status with the end of its record.
const ROOM: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What was passed on of a text that came in pieces of these sizes, and the status.
    fn read(text: &[u8], sizes: &[usize]) -> (Vec<u8>, Option<i32>) {
        let mut scanner = ExitScanner::new("token");
        let (mut rest, mut passed) = (text, Vec::new());
        for size in sizes.iter().chain([&usize::MAX]) {
            let (piece, left) = rest.split_at(rest.len().min(*size));
            passed.extend(scanner.push(piece));
            rest = left;
        }
        let status = scanner.status();
        passed.extend(scanner.rest());
        (passed, status)
    }

    #[test]
    fn output_may_look_like_the_mark() {
        for (text, out, status) in [
            ("\x1etoken 0\n", "", Some(0)),
            ("a\n\x1etoken 137\n", "a\n", Some(137)),
            ("a\x1etoken 1\n", "a", Some(1)),
            ("token 2\n\x1etoken 1\n", "token 2\n", Some(1)),
            ("\x1etoke\x1etoken 3\n", "\x1etoke", Some(3)),
            ("\x1e\x1etoken 3\n", "\x1e", Some(3)),
            ("a\x1etok", "a\x1etok", None),
            ("a\x1etoken 1", "a", None),
        ] {
            assert_eq!(read(text.as_bytes(), &[]), (out.into(), status), "{text:?}");
        }
    }

    #[test]
    fn a_whole_line_is_not_held_back() {
        assert_eq!(ExitScanner::new("token").push(b"a\n"), b"a\n");
    }

    proptest! {
        #[test]
        fn the_sizes_of_pieces_make_no_difference(text in "[ton\n\x1e]{0,40}", sizes in prop::collection::vec(0_usize..5, 0..60)) {
            let whole = format!("{text}\x1etoken 7\n");
            prop_assert_eq!(read(whole.as_bytes(), &sizes), (text.into_bytes(), Some(7)));
        }
    }
}
