//! The report: a line for each file with the reasons below it, and the counts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::check::Verdict;
use crate::files::File;

/// Writes verdicts as they come, and counts them.
pub(crate) struct Report<W> {
    output: W,
    accepted: usize,
    refused: usize,
    /// How many files are refused for reasons of each kind.
    kinds: BTreeMap<String, usize>,
}

impl<W: Write> Report<W> {
    pub(crate) fn new(output: W) -> Self {
        Self { output, accepted: 0, refused: 0, kinds: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, file: &File, verdict: Verdict) -> io::Result<()> {
        let path = visible(&file.path.display().to_string());
        if verdict.reasons.is_empty() {
            self.accepted += 1;
            return writeln!(self.output, "accepted {path}");
        }
        self.refused += 1;
        writeln!(self.output, "refused  {path}")?;
        for reason in &verdict.reasons {
            reason.lines.iter().try_for_each(|line| writeln!(self.output, "    {}", visible(line)))?;
        }
        let kinds: BTreeSet<String> = verdict.reasons.into_iter().map(|reason| reason.kind).collect();
        kinds.into_iter().for_each(|kind| *self.kinds.entry(kind).or_default() += 1);
        Ok(())
    }

    /// Writes the counts; whether all files are accepted, and where the report was written to.
    pub(crate) fn finish(self) -> io::Result<(bool, W)> {
        let Self { mut output, accepted, refused, kinds } = self;
        writeln!(output, "\n{:>8} files\n{accepted:>8} accepted\n{refused:>8} refused", accepted + refused)?;
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
        if !kinds.is_empty() {
            writeln!(output, "\nrefused files by kind of reason; a file counts for each kind that it has")?;
        }
        kinds.iter().try_for_each(|(kind, files)| writeln!(output, "{files:>8} {kind}"))?;
        Ok((refused == 0, output))
    }
}

/// A line with its control characters escaped, other than tabs: paths and texts of files that others
/// wrote must not move the cursor of a terminal, or begin a line that looks like a verdict.
pub(crate) fn visible(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for character in line.chars() {
        match character {
            '\t' => shown.push(character),
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Reason;

    #[test]
    fn files_are_counted_by_kind_and_reasons_stand_below_them() {
        let mut report = Report::new(Vec::new());
        let file = |path: &str| File { path: path.into(), unreadable: None };
        let reason = |kind: &str, text: &str| {
            let lines = text.split('\n').map(str::to_owned).collect();
            Reason { kind: kind.to_owned(), lines }
        };
        report.add(&file("a.py"), Verdict::default()).unwrap();
        let reasons = vec![reason("syntax", "b.py:1:1: x\n1 | x"), reason("syntax", "b.py:2:1: y")];
        report.add(&file("b.py"), Verdict { reasons }).unwrap();
        let reasons = vec![reason("syntax", "c.py:1:1: z"), reason("entry", "c.py:1:1: w")];
        report.add(&file("c.py"), Verdict { reasons }).unwrap();
        let (accepted, output) = report.finish().unwrap();
        assert!(!accepted);
        let expected = "\
accepted a.py
refused  b.py
    b.py:1:1: x
    1 | x
    b.py:2:1: y
refused  c.py
    c.py:1:1: z
    c.py:1:1: w

       3 files
       1 accepted
       2 refused

refused files by kind of reason; a file counts for each kind that it has
       2 syntax
       1 entry
";
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }

    #[test]
    fn control_characters_are_escaped() {
        for (line, shown) in [
            ("\tx = 'é…'", "\tx = 'é…'"),
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("a\naccepted b.py\r\0", "a\\naccepted b.py\\r\\u{0}"),
            ("\u{9b}1m\u{7f}", "\\u{9b}1m\\u{7f}"),
        ] {
            assert_eq!(visible(line), shown);
        }
    }

    #[test]
    fn what_files_hold_begins_no_line_of_the_report() {
        let mut report = Report::new(Vec::new());
        let path = "a\naccepted b.py\u{1b}[A";
        let reason =
            Reason { kind: "syntax".to_owned(), lines: vec![format!("{path}:1:1: x"), "1 | \ry\u{1b}".to_owned()] };
        report.add(&File { path: path.into(), unreadable: None }, Verdict { reasons: vec![reason] }).unwrap();
        report.add(&File { path: path.into(), unreadable: None }, Verdict::default()).unwrap();
        let output = String::from_utf8(report.finish().unwrap().1).unwrap();
        let expected = "\
refused  a\\naccepted b.py\\u{1b}[A
    a\\naccepted b.py\\u{1b}[A:1:1: x
    1 | \\ry\\u{1b}
accepted a\\naccepted b.py\\u{1b}[A
";
        assert!(output.starts_with(expected), "{output}");
    }
}
