//! Makes a line of task output safe to show.

/// Converts a line to text: replaces bytes that are not UTF-8, applies backspaces, and removes
/// control characters and escape sequences. Keeps colours if `colours` is set.
pub(super) fn clean(bytes: &[u8], colours: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains(|c: char| c.is_control() && c != '\t') {
        return text.into_owned();
    }
    let mut shown = String::with_capacity(text.len());
    let mut coloured = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\t' => shown.push(c),
            '\u{8}' => drop(shown.pop()),
            '\u{1b}' => {
                let sequence = escape(&mut rest);
                if colours && sequence.starts_with('[') && sequence.ends_with('m') {
                    shown.push(c);
                    shown.push_str(&sequence);
                    coloured = true;
                }
            }
            c if c.is_control() => {}
            c => shown.push(c),
        }
    }
    if coloured {
        shown.push_str(RESET);
    }
    shown
}

/// The rest of an escape sequence (ECMA-48), which may be cut off.
fn escape(rest: &mut std::str::Chars<'_>) -> String {
    let mut sequence = String::new();
    let Some(first) = rest.next() else { return sequence };
    sequence.push(first);
    let ends = |c: char, before: Option<char>| match first {
        '[' => ('@'..='~').contains(&c),
        // Operating system commands and similar strings, up to BEL or ESC \.
        ']' | 'P' | 'X' | '^' | '_' => c == '\u{7}' || (c == '\\' && before == Some('\u{1b}')),
        _ => true,
    };
    if !"[]PX^_".contains(first) {
        return sequence;
    }
    for c in rest.by_ref() {
        let before = sequence.chars().next_back();
        sequence.push(c);
        if ends(c, before) {
            break;
        }
    }
    sequence
}

const RESET: &str = "\u{1b}[0m";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_that_move_the_cursor_are_removed() {
        for (bytes, plain, coloured) in [
            (&b"a\tb"[..], "a\tb", "a\tb"),
            (b"caf\xc3\xa9 \xff", "café \u{fffd}", "café \u{fffd}"),
            (b"\x1b[1;32mok\x1b[0m", "ok", "\u{1b}[1;32mok\u{1b}[0m\u{1b}[0m"),
            (b"\x1b[2K\x1b[1Ax\x07", "x", "x"),
            (b"\x1b]0;title\x07x\x1b]8;;u\x1b\\y", "xy", "xy"),
            (b"10%\x08\x08\x0820%", "20%", "20%"),
            (b"a\x1b7b\x1b", "ab", "ab"),
            (b"\x1b[31", "", ""),
        ] {
            assert_eq!(clean(bytes, false).as_str(), plain);
            assert_eq!(clean(bytes, true).as_str(), coloured);
        }
    }
}
