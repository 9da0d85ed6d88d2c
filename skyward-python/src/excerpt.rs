//! The line of a finding in messages. Of a long one, what stands around the mark.

use std::borrow::Cow;

/// A line with its number.
pub(super) fn plain(number: u32, line: &str) -> String {
    format!("{number} | {}", Window::of(line, 0, 0).text)
}

/// A line with its number, and a mark of this width below the column, which counts characters from 0.
pub(super) fn marked(number: u32, line: &str, column: usize, width: usize) -> String {
    let Window { text, column, width } = Window::of(line, column, width);
    // Tabs are kept, so that the mark stands below what it means.
    let blank: String = text.chars().take(column).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let number = number.to_string();
    let margin = " ".repeat(number.len());
    format!("{number} | {text}\n{margin} | {blank}{}", "^".repeat(width))
}

/// A part of a line, and the mark in that.
struct Window<'a> {
    text: Cow<'a, str>,
    column: usize,
    width: usize,
}

impl<'a> Window<'a> {
    fn of(line: &'a str, column: usize, width: usize) -> Self {
        let length = line.chars().count();
        if length <= WIDEST {
            let width = width.clamp(1, length.saturating_sub(column).max(1));
            return Self { text: line.into(), column, width };
        }
        let first = column.saturating_sub(WIDEST / 2).min(length - WIDEST);
        let shown: String = line.chars().skip(first).take(WIDEST).collect();
        let (before, after) = (if first > 0 { "…" } else { "" }, if first + WIDEST < length { "…" } else { "" });
        let rest = (first + WIDEST).saturating_sub(column).max(1);
        let column = column - first + before.chars().count();
        Self { text: format!("{before}{shown}{after}").into(), column, width: width.clamp(1, rest) }
    }
}

/// Characters of a line that are shown, at most. The lines of generated files may have millions.
const WIDEST: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ordinary_length_are_shown_whole() {
        assert_eq!(marked(12, "\tx = yy + 1", 5, 2), "12 | \tx = yy + 1\n   | \t    ^^");
        assert_eq!(marked(1, "x = ", 4, 1), "1 | x = \n  |     ^");
        assert_eq!(marked(1, "é = y", 4, 9), "1 | é = y\n  |     ^", "the mark ends with the line");
        assert_eq!(plain(3, "# x = 1"), "3 | # x = 1");
        let line = "é".repeat(WIDEST);
        assert_eq!(plain(3, &line), format!("3 | {line}"));
    }

    #[test]
    fn of_a_long_line_what_stands_around_the_mark_is_shown() {
        let line = format!("{}bad{}", "é".repeat(1000), "ü".repeat(1000));
        let shown = marked(1, &line, 1000, 3);
        let (text, mark) = shown.split_once('\n').unwrap();
        assert_eq!(text, format!("1 | …{}bad{}…", "é".repeat(80), "ü".repeat(77)));
        assert_eq!(mark, format!("  | {}^^^", " ".repeat(81)));
    }

    #[test]
    fn the_ends_of_a_long_line_are_shown_as_such() {
        let line = format!("bad{}end", "x".repeat(1000));
        let first = marked(1, &line, 0, 3);
        assert!(first.starts_with("1 | badx") && first.ends_with("x…\n  | ^^^"), "{first}");
        let last = marked(1, &line, 1003, 3);
        assert!(last.starts_with("1 | …x") && last.contains("xend\n"), "{last}");
        assert!(last.ends_with(&format!("| {}^^^", " ".repeat(158))), "{last}");
        let behind = marked(1, &line, 1006, 1);
        assert!(behind.ends_with(&format!("| {}^", " ".repeat(161))), "{behind}");
        let all = marked(1, &line, 0, 1006);
        assert!(all.ends_with(&format!("| {}", "^".repeat(160))), "{all}");
        assert!(plain(1, &line).ends_with("x…"));
    }
}
