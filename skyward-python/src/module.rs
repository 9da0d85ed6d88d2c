//! A parsed Python file.

use std::sync::OnceLock;

use ruff_python_ast::Stmt;
use ruff_python_parser::{Mode, ParseOptions};
use ruff_text_size::{TextRange, TextSize};

use super::bindings::Bindings;
use super::excerpt;
use super::finding::{Finding, Kind, Location};
use super::imports::{Import, imports};
use super::metadata;
use super::scopes::Scopes;
use super::semantics::semantic_errors;
use super::tree::{DEEPEST, Tree};
use super::undefined::{undefined, undefined_names};
use super::uses::unknown_names;
use super::version::Target;

/// A Python file and what the parser makes of it.
pub(crate) struct Module {
    /// The path that messages show.
    pub(crate) path: String,
    pub(crate) text: String,
    tree: Tree,
    lines: Lines,
    target: Target,
    /// The offset at which each line of the text begins.
    line_starts: Vec<usize>,
    scopes: OnceLock<Scopes>,
    syntax_errors: OnceLock<Vec<Finding>>,
    unknown_names: OnceLock<Vec<Finding>>,
    metadata_errors: OnceLock<Vec<Finding>>,
    imports: OnceLock<Vec<Import>>,
}

/// From a location in the text to a location in the file that the text stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lines {
    /// The text is the file.
    Own,
    /// The text stands inside a Rust file: the line of its first line, and what to add to a column
    /// of each line.
    Within { first_line: u32, columns: Vec<i64> },
    /// The text stands inside a Rust file, but escapes hide its line numbers.
    Unknown,
}

impl Module {
    pub(crate) fn parse(path: impl Into<String>, text: impl Into<String>, lines: Lines, target: Target) -> Self {
        let text = text.into();
        let options = ParseOptions::from(Mode::Module).with_target_version(target.version);
        let tree = Tree::parse(&text, options);
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self {
            path: path.into(),
            text,
            tree,
            lines,
            target,
            line_starts,
            scopes: OnceLock::new(),
            syntax_errors: OnceLock::new(),
            unknown_names: OnceLock::new(),
            metadata_errors: OnceLock::new(),
            imports: OnceLock::new(),
        }
    }

    /// None of a text that is nested too deeply, which is one of its syntax errors.
    pub(crate) fn statements(&self) -> &[Stmt] {
        self.tree.statements()
    }

    /// What its scopes bind and use.
    pub(crate) fn scopes(&self) -> &Scopes {
        self.scopes.get_or_init(|| Scopes::of(self.statements()))
    }

    /// What Python's grammar and compiler refuse, in the order of the text.
    pub(crate) fn syntax_errors(&self) -> &[Finding] {
        self.syntax_errors.get_or_init(|| self.find_syntax_errors())
    }

    fn find_syntax_errors(&self) -> Vec<Finding> {
        if let Some(at) = self.tree.too_deep() {
            let message = format!(
                "in this statement, something is nested more than {DEEPEST} levels deep, which Python before 3.13 refuses, and this check does not read"
            );
            let found = self.finding(Kind::Compiler, at, message);
            return vec![found.with_help("compute it in several statements, or in a loop")];
        }
        let grammar = self.tree.errors().iter();
        let mut errors: Vec<(TextRange, Kind, String)> =
            grammar.map(|error| (error.location, Kind::Syntax, error.error.to_string())).collect();
        // What the grammar allows is looked at only once the grammar is kept: half a tree misleads.
        if errors.is_empty() {
            let newer = self.tree.unsupported_syntax_errors().iter();
            errors.extend(newer.map(|error| (error.range, Kind::Version, error.to_string())));
            let refused = semantic_errors(&self.text, self.target.version, self.statements());
            let misplaced = self.scopes().misplaced.iter().cloned();
            errors
                .extend(refused.into_iter().chain(misplaced).map(|(range, message)| (range, Kind::Compiler, message)));
        }
        errors.sort_by_key(|(range, ..)| range.start());
        Finding::first(errors, |(range, kind, message)| self.syntax_error(kind, range, &sentence(&message)))
    }

    /// What neither it nor Python defines. A module that is made of a body has one function, with
    /// these parameters.
    pub(crate) fn undefined_names(&self, parameters: Option<&[&str]>) -> Vec<Finding> {
        // What is wrong otherwise may bind the names.
        if !self.syntax_errors().is_empty() {
            return Vec::new();
        }
        let scopes = self.scopes();
        Finding::first(undefined_names(scopes, self.target.version), |used| {
            self.finding(Kind::Undefined, used.range, undefined(used, scopes, parameters))
        })
    }

    /// What it names of the package `skyward` that is not there.
    pub(crate) fn unknown_names(&self) -> &[Finding] {
        self.unknown_names.get_or_init(|| self.find_unknown_names())
    }

    fn find_unknown_names(&self) -> Vec<Finding> {
        // A partial syntax tree would produce misleading messages.
        let found =
            if self.is_valid() { unknown_names(self.statements(), self.defers_annotations()) } else { Vec::new() };
        Finding::first(found, |(range, message)| self.finding(Kind::Skyward, range, message))
    }

    /// What it imports, as far as that is certain.
    pub(crate) fn imports(&self) -> &[Import] {
        self.imports.get_or_init(|| if self.is_valid() { imports(self.statements()) } else { Vec::new() })
    }

    /// Whether no Python that may run it evaluates annotations.
    fn defers_annotations(&self) -> bool {
        self.target.version.defers_annotations() || self.scopes().defers_annotations
    }

    /// What is wrong with its metadata.
    pub(crate) fn metadata_errors(&self) -> &[Finding] {
        self.metadata_errors.get_or_init(|| self.find_metadata_errors())
    }

    fn find_metadata_errors(&self) -> Vec<Finding> {
        Finding::first(metadata::check(&self.text), |(line, message)| {
            let location = self.line_location(line);
            let excerpt = excerpt::plain(location.number().unwrap_or_default(), self.line(line));
            Finding::new(Kind::Metadata, location, message).with_excerpt(excerpt)
        })
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.tree.is_valid()
    }

    /// Where a location in the text stands in the file that messages name.
    pub(crate) fn location(&self, at: TextSize) -> Location {
        let (line, column) = self.position(at);
        match &self.lines {
            Lines::Own => Location::column(&*self.path, line, column),
            Lines::Within { first_line, columns } => {
                let shift = columns.get(line - 1).copied().unwrap_or(0);
                let column = i64::try_from(column).unwrap_or(1).saturating_add(shift).max(1);
                let column = usize::try_from(column).unwrap_or(1);
                Location::column(&*self.path, *first_line as usize + line - 1, column)
            }
            Lines::Unknown => self.line_location(line),
        }
    }

    /// Where a line of the text stands in the file that messages name.
    fn line_location(&self, line: usize) -> Location {
        match &self.lines {
            Lines::Own => Location::column(&*self.path, line, 1),
            Lines::Within { first_line, .. } => Location::line(&*self.path, *first_line as usize + line - 1),
            // Without the line of `def`, which the Rust file does not have.
            Lines::Unknown => Location::text_line(&*self.path, line.saturating_sub(1).max(1)),
        }
    }

    /// `path:line:column`, as editors take it.
    pub(crate) fn locate(&self, at: TextSize) -> String {
        self.location(at).to_string()
    }

    /// A finding with its location, the line of text and a mark below it.
    pub(crate) fn finding(&self, kind: Kind, range: TextRange, message: impl Into<String>) -> Finding {
        let location = self.location(range.start());
        let (line, column) = self.position(range.start());
        let width = self.text[range].split('\n').next().unwrap_or("").chars().count();
        let excerpt = excerpt::marked(location.number().unwrap_or_default(), self.line(line), column - 1, width);
        Finding::new(kind, location, message).with_excerpt(excerpt)
    }

    /// The parser says which version a syntax was added in; what to do about that is said here.
    fn syntax_error(&self, kind: Kind, range: TextRange, message: &str) -> Finding {
        let added = |rest: &str| {
            let needed = rest.rsplit_once("(syntax was added in ")?.1.trim_end_matches(')');
            Some(needed.trim_start_matches("Python ").to_owned())
        };
        match message.split_once(" on Python ").and_then(|(what, rest)| Some((what, added(rest)?))) {
            Some((what, needed)) => {
                let found = self.finding(Kind::Version, range, format!("{what} before Python {needed}"));
                found.with_help(self.target.advice(&needed))
            }
            None => self.finding(kind, range, message),
        }
    }

    /// What the names at its top level are bound to.
    pub(crate) fn bindings(&self) -> Bindings<'_> {
        Bindings::of(self)
    }

    /// The line of this number, from 1, without its end.
    fn line(&self, number: usize) -> &str {
        let begin = self.line_starts.get(number - 1).copied().unwrap_or(self.text.len());
        self.text[begin..].split('\n').next().unwrap_or("").trim_end_matches('\r')
    }

    /// Line and column, both from 1; the column counts characters.
    fn position(&self, at: TextSize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= at.to_usize());
        let column = self.text[self.line_starts[line - 1]..at.to_usize()].chars().count() + 1;
        (line, column)
    }
}

/// The parser's messages begin in upper case.
fn sentence(message: &str) -> String {
    let mut chars = message.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => first.to_lowercase().chain(chars).collect(),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
