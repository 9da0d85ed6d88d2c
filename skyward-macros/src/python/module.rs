//! A parsed Python file.

use ruff_python_ast::visitor::{Visitor, walk_stmt};
use ruff_python_ast::{Expr, ModModule, PythonVersion, Stmt, StmtFunctionDef};
use ruff_python_parser::{Mode, ParseOptions, Parsed, parse_unchecked};
use ruff_text_size::{Ranged as _, TextRange, TextSize};

use super::semantics::semantic_errors;
use super::uses::unknown_names;

/// A Python file and what the parser makes of it.
pub(crate) struct Module {
    /// The path that messages show.
    pub(crate) path: String,
    pub(crate) text: String,
    parsed: Parsed<ModModule>,
    lines: Lines,
}

/// From a place in the text to a place in the file that the text stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lines {
    /// The text is the file.
    Own,
    /// The text stands inside a Rust file: the line of its first line, and what to add to a column of each line.
    Within { first_line: u32, columns: Vec<i64> },
    /// The text stands inside a Rust file, but its lines cannot be told because of escapes.
    Unknown,
}

/// How a name comes to be in a module.
pub(crate) enum Binding<'a> {
    Function(&'a StmtFunctionDef),
    /// `from …module import name`, with as many dots.
    Import {
        level: u32,
        module: &'a str,
        name: &'a str,
        at: TextRange,
    },
    /// Something whose parameters are not written down: a class, an assignment, an imported module.
    Other {
        what: &'static str,
        at: TextRange,
    },
}

impl Module {
    pub(crate) fn parse(path: impl Into<String>, text: impl Into<String>, lines: Lines) -> Self {
        let text = text.into();
        let options = ParseOptions::from(Mode::Module).with_target_version(PythonVersion::latest());
        let parsed =
            parse_unchecked(&text, options).try_into_module().expect("a text parsed in module mode is a module");
        Self { path: path.into(), text, parsed, lines }
    }

    pub(crate) fn statements(&self) -> &[Stmt] {
        self.parsed.suite()
    }

    /// Every error, in the order of the text, as `path:line:column: what` and the line itself.
    pub(crate) fn syntax_errors(&self) -> Vec<String> {
        let mut errors: Vec<(TextRange, String)> =
            self.parsed.errors().iter().map(|error| (error.location, sentence(&error.error.to_string()))).collect();
        // What the grammar allows is looked at only once the grammar is kept: half a tree misleads.
        if errors.is_empty() {
            errors.extend(
                semantic_errors(&self.text, self.statements())
                    .into_iter()
                    .map(|error| (error.range, sentence(&error.to_string()))),
            );
        }
        errors.sort_by_key(|(range, _)| range.start());
        errors.into_iter().map(|(range, message)| self.show(range, &message)).collect()
    }

    /// What it names of the package `skyward` that is not there, shown as `syntax_errors` are.
    pub(crate) fn unknown_names(&self) -> Vec<String> {
        // Half a tree misleads.
        let found = if self.is_valid() { unknown_names(self.statements()) } else { Vec::new() };
        found.into_iter().map(|(range, message)| self.show(range, &message)).collect()
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.parsed.has_valid_syntax()
    }

    /// `path:line:column`, as editors take it.
    pub(crate) fn locate(&self, at: TextSize) -> String {
        let (line, column) = self.position(at);
        match &self.lines {
            Lines::Own => format!("{}:{line}:{column}", self.path),
            Lines::Within { first_line, columns } => {
                let shift = columns.get(line - 1).copied().unwrap_or(0);
                let column = (i64::try_from(column).unwrap_or(1) + shift).max(1);
                format!("{}:{}:{column}", self.path, *first_line as usize + line - 1)
            }
            Lines::Unknown => format!("{}, line {} of the Python text", self.path, line.saturating_sub(1).max(1)),
        }
    }

    /// A message with its place, the line of text and a mark below it.
    pub(crate) fn show(&self, range: TextRange, message: &str) -> String {
        let place = self.locate(range.start());
        let (line, column) = self.position(range.start());
        let text = self.text.split('\n').nth(line - 1).unwrap_or("").trim_end_matches('\r');
        let number = match &self.lines {
            Lines::Own => line.to_string(),
            Lines::Within { first_line, .. } => (*first_line as usize + line - 1).to_string(),
            Lines::Unknown => line.saturating_sub(1).max(1).to_string(),
        };
        // Tabs are kept, so that the mark stands below what it means.
        let blank: String = text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let rest = text.chars().count().saturating_sub(column - 1).max(1);
        let width = self.text[range].split('\n').next().unwrap_or("").chars().count().clamp(1, rest);
        let margin = " ".repeat(number.len());
        format!("{place}: {message}\n{number} | {text}\n{margin} | {blank}{}", "^".repeat(width))
    }

    /// What `name` is at the module's top level; the last binding holds. `if`, `try` and `with` open no scope.
    pub(crate) fn find(&self, name: &str) -> Option<Binding<'_>> {
        let mut bindings = Bindings { name, found: None };
        bindings.visit_body(self.statements());
        bindings.found
    }

    /// The names of the functions at the top level.
    pub(crate) fn function_names(&self) -> Vec<&str> {
        let mut functions = FunctionNames(Vec::new());
        functions.visit_body(self.statements());
        functions.0
    }

    /// Line and column, both from 1; the column counts characters.
    fn position(&self, at: TextSize) -> (usize, usize) {
        let before = &self.text[..at.to_usize()];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line, column)
    }
}

/// Looks for the last binding of a name, without entering functions and classes.
struct Bindings<'a, 'n> {
    name: &'n str,
    found: Option<Binding<'a>>,
}

impl<'a> Visitor<'a> for Bindings<'a, '_> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let other = |what| Some(Binding::Other { what, at: statement.range() });
        let is_name = |target: &Expr| matches!(target, Expr::Name(name) if name.id.as_str() == self.name);
        match statement {
            Stmt::FunctionDef(function) => {
                if function.name.as_str() == self.name {
                    self.found = Some(Binding::Function(function));
                }
            }
            Stmt::ClassDef(class) => {
                if class.name.as_str() == self.name {
                    self.found = other("a class");
                }
            }
            Stmt::Assign(assign) => {
                if assign.targets.iter().any(is_name) {
                    self.found = other("assigned");
                }
            }
            Stmt::AnnAssign(assign) => {
                if assign.value.is_some() && is_name(&assign.target) {
                    self.found = other("assigned");
                }
            }
            Stmt::Import(import) => {
                for alias in &import.names {
                    let bound = alias.asname.as_ref().unwrap_or(&alias.name);
                    if bound.as_str() == self.name {
                        self.found = other("a module");
                    }
                }
            }
            Stmt::ImportFrom(import) => {
                for alias in &import.names {
                    if alias.asname.as_ref().unwrap_or(&alias.name).as_str() == self.name {
                        self.found = Some(Binding::Import {
                            level: import.level,
                            module: import.module.as_ref().map_or("", |module| module.as_str()),
                            name: alias.name.as_str(),
                            at: statement.range(),
                        });
                    }
                }
            }
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, _: &'a Expr) {}
}

struct FunctionNames<'a>(Vec<&'a str>);

impl<'a> Visitor<'a> for FunctionNames<'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::FunctionDef(function) => {
                if !self.0.contains(&function.name.as_str()) {
                    self.0.push(function.name.as_str());
                }
            }
            Stmt::ClassDef(_) => {}
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, _: &'a Expr) {}
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
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        Module::parse("a.py", text, Lines::Own).syntax_errors()
    }

    #[test]
    fn every_syntax_error_has_its_place_and_line() {
        let errors = errors("def f(x)\n    return x\n\n\ny = (1 +\n");
        assert!(errors.len() >= 2, "{errors:#?}");
        assert!(errors[0].starts_with("a.py:1:9: "), "{}", errors[0]);
        assert!(errors[0].ends_with("1 | def f(x)\n  |         ^"), "{}", errors[0]);
    }

    #[test]
    fn what_only_the_compiler_refuses_is_found_too() {
        for (text, words) in [
            ("return 1\n", "return"),
            ("def f():\n    break\n", "break"),
            ("def f(a, a): pass\n", "a"),
            ("class C:\n    yield 1\n", "yield"),
            ("def f():\n    await g()\n", "await"),
            ("from __future__ import braces\n", "braces"),
        ] {
            let errors = errors(text);
            assert_eq!(errors.len(), 1, "{text}: {errors:#?}");
            assert!(errors[0].contains(words), "{}", errors[0]);
        }
    }

    #[test]
    fn valid_code_has_no_errors() {
        let text = "
import asyncio

class C:
    x = [y for y in range(3)]
    def m(self):
        while True:
            break
        for _ in range(3):
            continue
        return lambda: (yield)

async def g():
    async with a as b:
        await b
    y = [await c for c in x] + [[d async for d in c] for c in x]
    return [x async for x in b]

def asynchronous_generator():
    return (i async for i in x if await y(i)), (i for i in x if await y(i))

def h():
    global late
    late = 1
    def inner():
        nonlocal_name = 1
        return nonlocal_name
    x = yield
    match x:
        case [1, *rest]:
            return rest
    try:
        pass
    except* ValueError:
        pass

type Alias = int
";
        assert_eq!(errors(text), [""; 0]);
    }

    #[test]
    fn the_last_binding_holds() {
        let text = "
def f(a): pass
try:
    from .fast import f as f
except ImportError:
    def g(): pass
class h:
    def inner(self): pass
k = f
";
        let module = Module::parse("a.py", text, Lines::Own);
        assert!(matches!(module.find("f"), Some(Binding::Import { level: 1, module: "fast", name: "f", .. })));
        assert!(matches!(module.find("g"), Some(Binding::Function(_))));
        assert!(matches!(module.find("h"), Some(Binding::Other { what: "a class", .. })));
        assert!(matches!(module.find("k"), Some(Binding::Other { what: "assigned", .. })));
        assert!(module.find("inner").is_none());
        assert_eq!(module.function_names(), ["f", "g"]);
    }

    #[test]
    fn columns_count_characters() {
        let module = Module::parse("a.py", "é = 'ü' +\n", Lines::Own);
        assert!(module.syntax_errors()[0].starts_with("a.py:1:10: "), "{:?}", module.syntax_errors());
    }
}
