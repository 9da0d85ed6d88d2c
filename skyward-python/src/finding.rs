//! A problem that a check reports.

use std::fmt;
use std::num::NonZeroU32;

/// A problem in the Python of a payload.
///
/// `Display` shows it as the errors of `#[skyward::compute]` do: the location, the message, the line
/// of Python with a mark below it, and what to do.
///
/// ```
/// use skyward_python::{Kind, Payload};
///
/// let payload = Payload::from_text("train.py", "import skyward as sky\nrank = sky.shrad([1])\n");
/// let finding = &payload.findings()[0];
/// assert_eq!(finding.kind(), Kind::Skyward);
/// assert_eq!(finding.path(), "train.py");
/// assert_eq!(finding.line(), Some(2));
/// assert_eq!(finding.column(), Some(12));
/// assert_eq!(finding.message(), "`skyward` has no `shrad`; did you mean `shard`?");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    kind: Kind,
    location: Location,
    /// The message itself has the location in it.
    names_location: bool,
    message: String,
    excerpt: Option<String>,
    help: Option<String>,
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A file or folder that does not exist or cannot be read.
    File,
    /// A file that is not in the encoding that it names, or in UTF-8.
    Encoding,
    /// The file with the entry, of a folder: `main` does not name one.
    Main,
    /// Text that Python's grammar does not allow.
    Syntax,
    /// Syntax that the oldest Python which may run the payload does not have.
    Version,
    /// What Python's compiler refuses although the grammar allows it.
    Compiler,
    /// A name that nothing defines.
    Undefined,
    /// A name that the package `skyward` does not have, or a keyword that its function does not
    /// take.
    Skyward,
    /// An import of a file that is no part of the payload.
    Import,
    /// The metadata (PEP 723).
    Metadata,
    /// The entry function.
    Entry,
}

/// Where something is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    path: String,
    at: At,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// The whole file, or folder.
    File,
    Line {
        line: u32,
        column: Option<NonZeroU32>,
    },
    /// A line of the Python text in a Rust file, where escapes hide its lines in that file.
    TextLine(u32),
}

impl Finding {
    pub(crate) fn new(kind: Kind, location: Location, message: impl Into<String>) -> Self {
        Self { kind, location, names_location: false, message: message.into(), excerpt: None, help: None }
    }

    /// At most [`MOST`] findings, and behind them one that says how many more there are.
    pub(crate) fn first<T>(found: impl IntoIterator<Item = T>, show: impl Fn(T) -> Self) -> Vec<Self> {
        let mut found = found.into_iter();
        let mut shown: Vec<Self> = found.by_ref().take(MOST).map(&show).collect();
        if let Some(next) = found.next() {
            let Self { kind, location, .. } = show(next);
            let message = format!("from here on, the file has {} more that are not shown", 1 + found.count());
            shown.push(Self::new(kind, location, message));
        }
        shown
    }

    /// Does not show the location before the message, which has it in its own words.
    pub(crate) fn naming_its_location(self) -> Self {
        Self { names_location: true, ..self }
    }

    pub(crate) fn with_excerpt(self, excerpt: String) -> Self {
        Self { excerpt: Some(excerpt), ..self }
    }

    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// What it is about.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The file, as the reader of the payload named it.
    pub fn path(&self) -> &str {
        &self.location.path
    }

    /// The line in the file, from 1; `None` for a finding about the whole file.
    pub fn line(&self) -> Option<u32> {
        match self.location.at {
            At::Line { line, .. } => Some(line),
            At::File | At::TextLine(_) => None,
        }
    }

    /// The column in that line, from 1, in characters.
    pub fn column(&self) -> Option<u32> {
        match self.location.at {
            At::Line { column, .. } => column.map(NonZeroU32::get),
            At::File | At::TextLine(_) => None,
        }
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The line of Python with its number, and a mark below it.
    pub fn excerpt(&self) -> Option<&str> {
        self.excerpt.as_deref()
    }

    /// What to do, or what there is instead.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.names_location && self.location.at != At::File {
            write!(f, "{}: ", self.location)?;
        }
        f.write_str(&self.message)?;
        [&self.excerpt, &self.help].into_iter().flatten().try_for_each(|part| write!(f, "\n{part}"))
    }
}

impl std::error::Error for Finding {}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::File => "file",
            Self::Encoding => "encoding",
            Self::Main => "main file",
            Self::Syntax => "syntax",
            Self::Version => "syntax of a later Python",
            Self::Compiler => "refused by Python's compiler",
            Self::Undefined => "undefined name",
            Self::Skyward => "name of `skyward`",
            Self::Import => "import",
            Self::Metadata => "metadata",
            Self::Entry => "entry",
        })
    }
}

impl Location {
    pub(crate) fn file(path: impl Into<String>) -> Self {
        Self { path: path.into(), at: At::File }
    }

    pub(crate) fn line(path: impl Into<String>, line: usize) -> Self {
        Self { path: path.into(), at: At::Line { line: number(line), column: None } }
    }

    pub(crate) fn column(path: impl Into<String>, line: usize, column: usize) -> Self {
        let column = NonZeroU32::new(number(column));
        Self { path: path.into(), at: At::Line { line: number(line), column } }
    }

    pub(crate) fn text_line(path: impl Into<String>, line: usize) -> Self {
        Self { path: path.into(), at: At::TextLine(number(line)) }
    }

    /// The file, as messages name it.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The number of the line that messages show.
    pub(crate) fn number(&self) -> Option<u32> {
        match self.at {
            At::File => None,
            At::Line { line, .. } | At::TextLine(line) => Some(line),
        }
    }
}

/// `path:line:column`, as editors take it.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, at } = self;
        match at {
            At::File => write!(f, "{path}"),
            At::Line { line, column: None } => write!(f, "{path}:{line}"),
            At::Line { line, column: Some(column) } => write!(f, "{path}:{line}:{column}"),
            At::TextLine(line) => write!(f, "{path}, line {line} of the Python text"),
        }
    }
}

/// A line or column; a text has fewer than 2³² characters.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Findings that one check shows of a file. Who mends these finds the next ones.
const MOST: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_many_findings_counts_the_others() {
        let show = |line: usize| Finding::new(Kind::Undefined, Location::column("a.py", line, 1), "wrong");
        for (lines, shown) in [(0, 0), (1, 1), (MOST, MOST), (MOST + 1, MOST + 1), (3 * MOST, MOST + 1)] {
            let found = Finding::first(1..=lines, show);
            assert_eq!(found.len(), shown, "{lines}");
            let counts = found.iter().filter(|found| found.message() != "wrong").map(Finding::to_string);
            let expected = (lines > MOST).then(|| {
                format!("a.py:{}:1: from here on, the file has {} more that are not shown", MOST + 1, lines - MOST)
            });
            assert_eq!(counts.collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>(), "{lines}");
        }
    }

    #[test]
    fn a_finding_shows_its_place_what_is_wrong_and_what_to_do() {
        let location = Location::column("a.py", 3, 5);
        let finding = Finding::new(Kind::Syntax, location.clone(), "wrong").with_help("write it otherwise");
        assert_eq!(finding.to_string(), "a.py:3:5: wrong\nwrite it otherwise");
        let finding = finding.with_excerpt("3 | x".to_owned());
        assert_eq!(finding.to_string(), "a.py:3:5: wrong\n3 | x\nwrite it otherwise");
        assert_eq!(
            Finding::new(Kind::Entry, location, "no `f` (a.py:3:5)").naming_its_location().to_string(),
            "no `f` (a.py:3:5)"
        );
        assert_eq!(Finding::new(Kind::File, Location::file("a.py"), "`a.py` is empty").to_string(), "`a.py` is empty");
    }

    #[test]
    fn a_finding_has_the_line_of_the_file_where_that_is_known() {
        let lines = |location: Location| {
            let finding = Finding::new(Kind::Syntax, location, "");
            (finding.line(), finding.column())
        };
        assert_eq!(lines(Location::column("a.py", 3, 5)), (Some(3), Some(5)));
        assert_eq!(lines(Location::line("a.py", 3)), (Some(3), None));
        assert_eq!(lines(Location::text_line("a.rs", 3)), (None, None));
        assert_eq!(lines(Location::file("a.py")), (None, None));
    }
}
