//! A Python function from a body in a Rust string literal.

use std::fmt;

use ruff_python_ast::token::TokenKind;
use ruff_python_ast::{Expr, Stmt};
use ruff_python_parser::Mode;
use ruff_text_size::Ranged as _;

use super::bindings::Binding;
use super::finding::Finding;
use super::function::Function;
use super::module::{Lines, Module};
use super::tree::{Tree, deep};
use super::version::Target;

/// Where a string literal stands in a Rust file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Literal {
    /// The path of the Rust file that messages show.
    pub path: String,
    /// The line of its first character.
    pub line: u32,
    /// The column, from 1, of the first character of its text.
    pub column: u32,
    /// The lines that it takes up.
    pub height: usize,
}

/// The body of a Python function in a string literal, as a module with this function alone.
///
/// ```
/// use skyward_python::{Body, Kind, Literal};
///
/// let literal = Literal { path: "src/main.rs".into(), line: 7, column: 6, height: 1 };
/// let body = Body::new("double", &["x"], "return 2 * y", literal);
/// assert_eq!(body.text(), "def double(x):\n    return 2 * y\n");
/// let findings = body.findings();
/// assert_eq!(findings[0].kind(), Kind::Undefined);
/// assert_eq!(findings[0].line(), Some(7));
/// ```
pub struct Body {
    module: Module,
    name: String,
    parameters: Vec<String>,
    first_line: u32,
}

/// What the end of a body shows about its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyEnd {
    /// An expression whose value goes nowhere.
    UnusedValue,
    /// Nothing that could be a result: no statement, `pass`, a docstring.
    Nothing,
    /// Anything else.
    Other,
}

impl Body {
    /// The module `def name(parameters):` with this body. The indentation that all lines share is
    /// removed.
    pub fn new(name: &str, parameters: &[&str], body: &str, literal: Literal) -> Self {
        let text = Text::new(body);
        let written = text.module(name, parameters, &literal, true);
        if written.module.is_valid() || !text.begins_at_once() {
            return written;
        }
        // The quote hides the first line's indentation, which may differ from that of the others.
        let other = text.module(name, parameters, &literal, false);
        if other.module.is_valid() { other } else { written }
    }

    /// The path of the Rust file.
    pub fn path(&self) -> &str {
        &self.module.path
    }

    /// The text of the module.
    pub fn text(&self) -> &str {
        &self.module.text
    }

    /// The line of the Rust file that the first line of the module stands for.
    pub fn first_line(&self) -> u32 {
        self.first_line
    }

    /// The function; `None` if the text does not parse that far.
    pub fn function(&self) -> Option<Function> {
        deep(|| {
            let bindings = self.module.bindings();
            match bindings.find(&self.name) {
                Some(Binding::Function(function)) => Some(Function::read(&bindings, function)),
                _ => None,
            }
        })
    }

    /// The problems of the body: what Python's grammar and compiler refuse, names that neither the
    /// body nor Python defines, names of the package `skyward` that do not exist, and the metadata.
    /// The places are those in the Rust file, or lines of the text where escapes in the literal hide
    /// them.
    pub fn findings(&self) -> Vec<Finding> {
        deep(|| self.find())
    }

    fn find(&self) -> Vec<Finding> {
        let parameters: Vec<&str> = self.parameters.iter().map(String::as_str).collect();
        let mut found = self.module.syntax_errors().to_vec();
        found.extend(self.module.undefined_names(Some(&parameters)));
        found.extend_from_slice(self.module.unknown_names());
        found.extend_from_slice(self.module.metadata_errors());
        found
    }

    /// What the end of the body shows about its result.
    pub fn end(&self) -> BodyEnd {
        let Some(Stmt::FunctionDef(function)) = self.module.statements().first() else { return BodyEnd::Other };
        match function.body.last() {
            Some(Stmt::Expr(statement)) => match &*statement.value {
                Expr::StringLiteral(_) | Expr::EllipsisLiteral(_) if function.body.len() == 1 => BodyEnd::Nothing,
                Expr::Call(_) | Expr::Await(_) | Expr::Yield(_) | Expr::YieldFrom(_) | Expr::Named(_) => BodyEnd::Other,
                _ => BodyEnd::UnusedValue,
            },
            Some(Stmt::Pass(_)) if function.body.len() == 1 => BodyEnd::Nothing,
            _ => BodyEnd::Other,
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Body");
        shown.field("path", &self.path()).field("name", &self.name).field("first_line", &self.first_line);
        shown.finish_non_exhaustive()
    }
}

/// The lines of a body.
struct Text<'a> {
    lines: Vec<Line<'a>>,
}

struct Line<'a> {
    text: &'a str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It begins inside a string, so what it begins with belongs to that.
    String,
    Blank,
    Comment,
    Code,
}

impl<'a> Text<'a> {
    fn new(body: &'a str) -> Self {
        let strings = string_ranges(body);
        let mut offset = 0;
        let line = |text: &'a str| {
            let start = offset;
            offset += text.len() + 1;
            let kind = match text.trim_start().chars().next() {
                _ if strings.iter().any(|(from, to)| (from + 1..*to).contains(&start)) => Kind::String,
                None => Kind::Blank,
                Some('#') => Kind::Comment,
                Some(_) => Kind::Code,
            };
            Line { text, kind }
        };
        Self { lines: body.split('\n').map(line).collect() }
    }

    /// Whether there is something in the line in which the literal opens.
    fn begins_at_once(&self) -> bool {
        self.lines.first().is_some_and(|line| line.kind != Kind::Blank)
    }

    fn module(&self, name: &str, parameters: &[&str], literal: &Literal, first_counts: bool) -> Body {
        let at_once = self.begins_at_once();
        let margin = self.margin(usize::from(at_once && !first_counts));
        let mut text = format!("def {name}({}):\n", parameters.join(", "));
        // The line of `def` stands for the one in which the literal opens, or for the one before.
        let first_line = if at_once { literal.line.saturating_sub(1).max(1) } else { literal.line };
        let mut columns = vec![0];
        let end = self.lines.iter().rposition(|line| line.kind != Kind::Blank).map_or(0, |last| last + 1);
        let mut header = true;
        for (index, line) in self.lines[..end].iter().enumerate().skip(usize::from(!at_once)) {
            header &= matches!(line.kind, Kind::Comment | Kind::Blank);
            let removed = match line.kind {
                Kind::Comment if header => leading_whitespace(line.text),
                _ if index == 0 && !first_counts => leading_whitespace(line.text),
                _ => common_prefix(line.text, margin),
            };
            let added = match line.kind {
                Kind::String | Kind::Blank => "",
                // Metadata is found at the beginning of lines only, and comments may stand
                // anywhere.
                Kind::Comment if header => "",
                Kind::Comment | Kind::Code => INDENTATION,
            };
            text.push_str(added);
            text.push_str(&line.text[removed.len()..]);
            text.push('\n');
            let opening = if index == 0 { i64::from(literal.column) - 1 } else { 0 };
            columns.push(opening + count(removed) - count(added));
        }
        if !self.lines.iter().any(|line| line.kind == Kind::Code) {
            text.push_str(INDENTATION);
            text.push_str("pass\n");
        }
        let lines =
            if literal.height == self.lines.len() { Lines::Within { first_line, columns } } else { Lines::Unknown };
        let place = |line: usize| match &lines {
            Lines::Unknown => literal.path.clone(),
            _ => format!("{}:{}", literal.path, first_line as usize + line - 1),
        };
        let target = Target::of(&text, place);
        Body {
            module: Module::parse(&*literal.path, text, lines, target),
            name: name.to_owned(),
            parameters: parameters.iter().map(|name| (*name).to_owned()).collect(),
            first_line,
        }
    }

    /// The whitespace that all lines of code begin with, from the line `skip` on.
    fn margin(&self, skip: usize) -> &'a str {
        self.lines
            .iter()
            .skip(skip)
            .filter(|line| line.kind == Kind::Code)
            .map(|line| leading_whitespace(line.text))
            .reduce(common_prefix)
            .unwrap_or("")
    }
}

/// The byte ranges of string tokens; one with fields (`f"…{x}…"`) counts whole.
fn string_ranges(body: &str) -> Vec<(usize, usize)> {
    let parsed = Tree::parse(body, Mode::Module);
    let mut ranges = Vec::new();
    let mut open = Vec::new();
    for token in parsed.tokens().iter() {
        let (start, end) = (token.start().to_usize(), token.end().to_usize());
        match token.kind() {
            TokenKind::String => ranges.push((start, end)),
            TokenKind::FStringStart | TokenKind::TStringStart => open.push(start),
            TokenKind::FStringEnd | TokenKind::TStringEnd => ranges.extend(open.pop().map(|start| (start, end))),
            _ => {}
        }
    }
    ranges
}

fn leading_whitespace(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn common_prefix<'a>(line: &'a str, other: &str) -> &'a str {
    let shared = leading_whitespace(line).bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    &line[..shared]
}

fn count(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(0)
}

const INDENTATION: &str = "    ";

#[cfg(test)]
mod tests {
    use indoc::indoc;

    use super::*;

    fn inline(body: &str) -> Body {
        let literal = Literal { path: "src/main.rs".into(), line: 10, column: 7, height: body.split('\n').count() };
        Body::new("f", &["a", "b"], body, literal)
    }

    #[test]
    fn a_body_is_moved_under_its_def() {
        let made = inline("\n        if a:\n            return b\n\n        return a\n    ");
        assert_eq!(
            made.module.text,
            indoc! {"
                def f(a, b):
                    if a:
                        return b

                    return a
            "}
        );
        assert_eq!(made.first_line, 10);
    }

    #[test]
    fn lines_inside_strings_lose_no_more_than_the_margin() {
        let body =
            "\n    x = '''\n    one\n      two\n  three\n'''\n    y = f'''\n      {a}\n    '''\n    return x + y\n";
        let made = inline(body);
        assert_eq!(made.module.syntax_errors(), []);
        assert_eq!(
            made.module.text,
            indoc! {"
                def f(a, b):
                    x = '''
                one
                  two
                three
                '''
                    y = f'''
                  {a}
                '''
                    return x + y
            "}
        );
    }

    #[test]
    fn a_body_may_begin_at_once() {
        for (body, text) in [
            (
                "return a",
                indoc! {"
                    def f(a, b):
                        return a
                "},
            ),
            (
                "for x in a:\n    yield x",
                indoc! {"
                    def f(a, b):
                        for x in a:
                            yield x
                "},
            ),
            (
                "x = a\n        return x",
                indoc! {"
                    def f(a, b):
                        x = a
                        return x
                "},
            ),
            (
                "if a:\n            x = 1\n        return x",
                indoc! {"
                    def f(a, b):
                        if a:
                            x = 1
                        return x
                "},
            ),
        ] {
            let made = inline(body);
            assert_eq!(made.module.text, text);
            assert_eq!(made.module.syntax_errors(), []);
            assert_eq!(made.first_line, 9);
        }
    }

    #[test]
    fn bodies_without_statements_do_nothing() {
        for body in ["", "\n", "  # later\n"] {
            let made = inline(body);
            assert_eq!(made.module.syntax_errors(), []);
            assert!(made.module.text.ends_with("    pass\n"), "{}", made.module.text);
            assert_eq!(made.end(), BodyEnd::Nothing);
        }
        assert_eq!(inline("'''Only says what it does.'''").end(), BodyEnd::Nothing);
        assert_eq!(inline("a + b").end(), BodyEnd::UnusedValue);
        assert_eq!(inline("print(a)").end(), BodyEnd::Other);
        assert_eq!(inline("raise ValueError").end(), BodyEnd::Other);
    }

    #[test]
    fn metadata_stays_at_the_beginning_of_its_lines() {
        let made =
            inline("\n    # /// script\n    # dependencies = ['numpy']\n    # ///\n    import numpy\n    # not this\n");
        assert_eq!(
            made.module.text,
            indoc! {"
                def f(a, b):
                # /// script
                # dependencies = ['numpy']
                # ///
                    import numpy
                    # not this
            "}
        );
        assert_eq!(made.module.syntax_errors(), []);
    }

    #[test]
    fn comments_and_tabs_do_not_shift_code() {
        let made = inline("\n\t\tx = 1\n# left\n\t\treturn x\n");
        assert_eq!(
            made.module.text,
            indoc! {"
                def f(a, b):
                    x = 1
                    # left
                    return x
            "}
        );
    }

    #[test]
    fn errors_point_into_the_rust_file() {
        let errors = inline("\n        x = 1\n        return x +\n    ").findings();
        assert!(errors[0].to_string().starts_with("src/main.rs:12:19: "), "{errors:?}");
        let errors = inline("return a +").findings();
        assert!(errors[0].to_string().starts_with("src/main.rs:10:17: "), "{errors:?}");
    }
    #[test]
    fn metadata_has_its_line_in_the_rust_file_where_that_is_known() {
        let text = "\n    # /// script\n    # dependencies = 1\n    # ///\n    return a\n";
        for (height, place, line) in [
            (6, "src/main.rs:12: ", Some(12)),
            // As with `\n` in a literal of one line.
            (1, "src/main.rs, line 2 of the Python text: ", None),
            (4, "src/main.rs, line 2 of the Python text: ", None),
        ] {
            let literal = Literal { path: "src/main.rs".into(), line: 10, column: 7, height };
            let errors = Body::new("f", &["a"], text, literal).findings();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].to_string().starts_with(place), "{}", errors[0]);
            assert_eq!(errors[0].line(), line);
        }
    }
}
