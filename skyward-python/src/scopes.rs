//! What each scope of a module binds and uses: the tables that Python's own compiler makes.

mod builder;

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::{Identifier, Pattern, Stmt};
use ruff_text_size::TextRange;

/// All scopes of a module, the module's own first.
pub(super) struct Scopes {
    pub(super) scopes: Vec<Scope>,
    /// Where names are read, in the order of the text.
    pub(super) uses: Vec<Use>,
    /// `global` and `nonlocal` where they cannot stand.
    pub(super) misplaced: Vec<(TextRange, String)>,
    /// The names that any scope binds.
    bound: BTreeSet<String>,
    /// Names may come to be in ways that are not written down, such as `import *`.
    pub(super) dynamic: bool,
    /// `from __future__ import annotations`: no annotation is evaluated.
    pub(super) defers_annotations: bool,
}

#[derive(Debug)]
pub(super) struct Scope {
    pub(super) kind: Kind,
    pub(super) parent: Option<usize>,
    pub(super) names: BTreeMap<String, Name>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Module,
    Class,
    /// Functions and lambdas.
    Function,
    Comprehension,
    /// What stands in `[…]` behind the name of a function, class or alias.
    TypeParameters,
}

/// What a scope does with a name.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Name {
    pub(super) bound: bool,
    pub(super) global: bool,
    pub(super) nonlocal: bool,
    used: bool,
    annotated: bool,
    /// Bound otherwise than by an import, after which `global` may still stand.
    assigned: bool,
}

/// A place where a name is read.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) name: String,
    pub(super) range: TextRange,
    pub(super) scope: usize,
    pub(super) chance: Chance,
}

/// Whether a name is read when the code around it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chance {
    Read,
    /// In an annotation that Python 3.14 and later do not evaluate.
    Annotation,
    /// It may never run, or the code expects that the name is not there.
    Unlikely,
}

impl Scopes {
    pub(super) fn of(statements: &[Stmt]) -> Self {
        builder::build(statements)
    }

    /// Whether a name that is read in a scope is bound in one of them.
    pub(super) fn is_bound(&self, scope: usize, name: &str) -> bool {
        self.around(scope).any(|at| {
            let Some(known) = self.scopes[at].names.get(name) else { return false };
            // What is global is looked for in the module, and what is nonlocal further outside.
            known.bound && !known.nonlocal && !known.global
        }) || self.scopes[0].names.get(name).is_some_and(|known| known.bound)
    }

    /// Whether any scope binds a name.
    pub(super) fn binds(&self, name: &str) -> bool {
        self.bound.contains(name)
    }

    /// The names that can be read in a scope: its own, those of the scopes around it but classes,
    /// and the module's.
    pub(super) fn visible(&self, scope: usize) -> impl Iterator<Item = &str> {
        self.around(scope).flat_map(|scope| {
            self.scopes[scope].names.iter().filter(|(_, name)| name.bound).map(|(name, _)| name.as_str())
        })
    }

    /// A scope and those around it whose names can be read in it, outwards.
    pub(super) fn around(&self, scope: usize) -> impl Iterator<Item = usize> {
        let mut next = Some(scope);
        let mut inside = false;
        std::iter::from_fn(move || {
            loop {
                let at = next?;
                let Scope { kind, parent, .. } = &self.scopes[at];
                next = *parent;
                let is_hidden = *kind == Kind::Class && inside;
                // The names of a class can be read where its own statements stand, and in their
                // type parameters.
                inside |= *kind != Kind::TypeParameters;
                if !is_hidden {
                    return Some(at);
                }
            }
        })
    }
}

/// The name that a pattern of `match` itself binds, beside those within it.
pub(super) fn captured(pattern: &Pattern) -> Option<&Identifier> {
    match pattern {
        Pattern::MatchAs(inner) => inner.name.as_ref(),
        Pattern::MatchStar(inner) => inner.name.as_ref(),
        Pattern::MatchMapping(inner) => inner.rest.as_ref(),
        _ => None,
    }
}
