//! The syntax tree of a text, as ruff's parser makes it, and how much stack it takes to walk one.

use ruff_python_ast::token::Tokens;
use ruff_python_ast::visitor::source_order::{SourceOrderVisitor, TraversalSignal};
use ruff_python_ast::{AnyNodeRef, Expr, Mod, Stmt};
use ruff_python_parser::{ParseError, ParseOptions, Parsed, UnsupportedSyntaxError, parse_unchecked};
use ruff_text_size::{Ranged as _, TextRange, TextSize};

/// A parsed text. A tree of more than [`DEEPEST`] levels is kept only to be dropped: the checks call
/// themselves for each level.
pub(super) struct Tree {
    /// None once it is dropped.
    parsed: Option<Parsed<Mod>>,
    too_deep: Option<TextRange>,
    /// The stack that it takes to drop the tree, however deep it is.
    stack: usize,
}

impl Tree {
    pub(super) fn parse(text: &str, options: impl Into<ParseOptions>) -> Self {
        let stack = STACK.max(text.len().saturating_mul(BYTES_PER_CHARACTER));
        // The parser grows its stack where it enters a level, but not where it drops what it has
        // tried in vain.
        let parsed = stacker::maybe_grow(stack, stack, || parse_unchecked(text, options.into()));
        let too_deep = too_deep(parsed.syntax());
        Self { parsed: Some(parsed), too_deep, stack }
    }

    /// Where the statement begins in which something is nested more than [`DEEPEST`] levels deep.
    pub(super) fn too_deep(&self) -> Option<TextRange> {
        self.too_deep
    }

    pub(super) fn is_valid(&self) -> bool {
        self.too_deep.is_none() && self.parsed().has_valid_syntax()
    }

    /// The statements of a module that is not too deep.
    pub(super) fn statements(&self) -> &[Stmt] {
        match self.parsed().syntax() {
            Mod::Module(module) if self.too_deep.is_none() => &module.body,
            _ => &[],
        }
    }

    /// An expression that is valid, and not too deep.
    pub(super) fn expression(&self) -> Option<&Expr> {
        match self.parsed().syntax() {
            Mod::Expression(expression) if self.is_valid() => Some(&expression.body),
            _ => None,
        }
    }

    pub(super) fn tokens(&self) -> &Tokens {
        self.parsed().tokens()
    }

    pub(super) fn errors(&self) -> &[ParseError] {
        self.parsed().errors()
    }

    pub(super) fn unsupported_syntax_errors(&self) -> &[UnsupportedSyntaxError] {
        self.parsed().unsupported_syntax_errors()
    }

    fn parsed(&self) -> &Parsed<Mod> {
        self.parsed.as_ref().expect("a tree is there until it is dropped")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let parsed = self.parsed.take();
        stacker::maybe_grow(self.stack, self.stack, || drop(parsed));
    }
}

/// Does something that calls itself for each level of a tree, with enough stack for [`DEEPEST`] of
/// them on any thread.
pub(super) fn deep<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK, STACK, work)
}

/// Looks for a node below too many others, without calling itself for each level.
fn too_deep(module: &Mod) -> Option<TextRange> {
    let mut pending = vec![Node { node: AnyNodeRef::from(module), levels: 0, statement: TextSize::new(0) }];
    while let Some(Node { node, levels, statement }) = pending.pop() {
        if levels > DEEPEST {
            return Some(TextRange::empty(statement));
        }
        let statement = if node.is_statement() { node.start() } else { statement };
        node.visit_source_order(&mut Children { levels: levels + 1, statement, pending: &mut pending });
    }
    None
}

/// A node, the levels above it, and where the innermost statement around it begins.
struct Node<'a> {
    node: AnyNodeRef<'a>,
    levels: usize,
    statement: TextSize,
}

/// Collects the nodes right below one.
struct Children<'a, 'p> {
    levels: usize,
    statement: TextSize,
    pending: &'p mut Vec<Node<'a>>,
}

impl<'a> SourceOrderVisitor<'a> for Children<'a, '_> {
    fn enter_node(&mut self, node: AnyNodeRef<'a>) -> TraversalSignal {
        self.pending.push(Node { node, levels: self.levels, statement: self.statement });
        TraversalSignal::Skip
    }
}

/// The compiler of CPython 3.10 to 3.12 refuses more levels, three for each call that its recursion
/// limit of 1000 allows. That of 3.13 allows 10,000.
pub(super) const DEEPEST: usize = 3000;

/// For [`DEEPEST`] levels of any check: more than four times what they take in a build without
/// optimisations. Only what is used of it takes memory.
const STACK: usize = 32 << 20;

/// For each character of a text, as a level takes at least one: more than twice what the drop of a
/// level takes in a build without optimisations.
const BYTES_PER_CHARACTER: usize = 256;

#[cfg(test)]
mod tests;
