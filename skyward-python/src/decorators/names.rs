//! What the names of a module stand for, as far as imports and plain assignments show.

use std::collections::BTreeMap;

use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Alias, ExceptHandler, Expr, ExprContext, Stmt, StmtFunctionDef};

use super::super::branches::{Truth, branches, reached, truth};
use super::{Backend, PACKAGE};

/// What a name stands for: what an import names, or an attribute of that, or what a call of it has
/// made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Value {
    /// The dots before the path, seen from the module.
    pub(super) level: u32,
    pub(super) path: String,
    /// What it was called with.
    pub(super) made: Option<Backend>,
}

/// The names of a module's top level.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Nothing is known of one that is there and has no value.
    known: BTreeMap<String, Option<Value>>,
    /// `from …module import *`, with as many dots.
    stars: Vec<(u32, String)>,
    /// Whether what is read may not run, or is there in the place of something else.
    is_open: bool,
}

impl Names {
    /// The names as they are where this function is defined; without one, at the module's end.
    pub(super) fn of(statements: &[Stmt], until: Option<&StmtFunctionDef>) -> Self {
        let mut names = Self::default();
        names.read(statements, until);
        names
    }

    /// What may be meant by an expression, the likeliest first.
    pub(super) fn values(&self, expression: &Expr) -> Vec<Value> {
        match expression {
            Expr::Name(name) => self.get(name.id.as_str()),
            Expr::Attribute(attribute) => {
                let bases = self.values(&attribute.value);
                bases.into_iter().filter_map(|base| base.attribute(attribute.attr.as_str())).collect()
            }
            Expr::Call(call) => {
                let backend = Backend::of(&call.arguments);
                let called = self.values(&call.func);
                called.into_iter().filter_map(|value| value.called(backend.clone())).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a name may stand for, the likeliest first.
    pub(super) fn get(&self, name: &str) -> Vec<Value> {
        if let Some(known) = self.known.get(name) {
            return known.iter().cloned().collect();
        }
        let stars = self.stars.iter().rev();
        stars.filter_map(|(level, path)| Value::of(*level, path).attribute(name)).collect()
    }

    /// Reads statements in their order, up to this function; whether it was among them.
    fn read(&mut self, statements: &[Stmt], until: Option<&StmtFunctionDef>) -> bool {
        reached(statements).iter().any(|statement| self.read_one(statement, until))
    }

    fn read_one(&mut self, statement: &Stmt, until: Option<&StmtFunctionDef>) -> bool {
        match statement {
            Stmt::FunctionDef(function) if until.is_some_and(|until| std::ptr::eq(until, function)) => return true,
            Stmt::FunctionDef(function) => self.bind(function.name.as_str(), None),
            Stmt::ClassDef(class) => self.bind(class.name.as_str(), None),
            Stmt::Import(import) => import.names.iter().for_each(|alias| self.import(alias)),
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                import.names.iter().for_each(|alias| self.import_from(import.level, module, alias));
            }
            Stmt::Assign(assign) => assign.targets.iter().for_each(|target| self.assign(target, Some(&assign.value))),
            Stmt::AnnAssign(assign) if assign.value.is_some() => self.assign(&assign.target, assign.value.as_deref()),
            Stmt::AugAssign(assign) => self.assign(&assign.target, None),
            Stmt::Delete(delete) => delete.targets.iter().for_each(|target| self.assign(target, None)),
            Stmt::If(inner) => {
                // Behind one that may be taken, another is only where that is not.
                let mut taken = branches(inner).filter(|(_, truth)| *truth != Truth::Never).enumerate();
                return taken
                    .any(|(before, (body, truth))| self.read_if(before > 0 || truth != Truth::Always, body, until));
            }
            Stmt::Try(attempt) => {
                let handlers = attempt.handlers.iter().map(|ExceptHandler::ExceptHandler(handler)| &handler.body);
                return self.read(&attempt.body, until)
                    || handlers.into_iter().any(|body| self.read_if(true, body, until))
                    || self.read(&attempt.orelse, until)
                    || self.read(&attempt.finalbody, until);
            }
            Stmt::With(with) => {
                let bound = with.items.iter().filter_map(|item| item.optional_vars.as_deref());
                bound.for_each(|target| self.assign(target, None));
                return self.read(&with.body, until);
            }
            Stmt::For(inner) => {
                self.assign(&inner.target, None);
                return self.read_if(true, &inner.body, until) || self.read_if(true, &inner.orelse, until);
            }
            Stmt::While(inner) => {
                let runs = truth(&inner.test) != Truth::Never;
                return runs && self.read_if(true, &inner.body, until) || self.read_if(true, &inner.orelse, until);
            }
            Stmt::Match(inner) => return inner.cases.iter().any(|case| self.read_if(true, &case.body, until)),
            _ => {}
        }
        false
    }

    fn read_if(&mut self, is_open: bool, statements: &[Stmt], until: Option<&StmtFunctionDef>) -> bool {
        let around = self.is_open;
        self.is_open |= is_open;
        let found = self.read(statements, until);
        self.is_open = around;
        found
    }

    /// What may be of this package stays where something else may take its place.
    fn bind(&mut self, name: &str, value: Option<Value>) {
        let stays = self.is_open && matches!(self.known.get(name), Some(Some(before)) if before.is_ours());
        if !stays {
            self.known.insert(name.to_owned(), value);
        }
    }

    fn assign(&mut self, target: &Expr, value: Option<&Expr>) {
        match (target, value) {
            (Expr::Name(name), _) => {
                let value = value.and_then(|value| self.values(value).into_iter().next());
                self.bind(name.id.as_str(), value);
            }
            (Expr::Tuple(targets), Some(Expr::Tuple(values))) if targets.elts.len() == values.elts.len() => {
                targets.elts.iter().zip(&values.elts).for_each(|(target, value)| self.assign(target, Some(value)));
            }
            _ => Stored(self).visit_expr(target),
        }
    }

    fn import(&mut self, alias: &Alias) {
        let path = alias.name.as_str();
        let first = path.split('.').next().unwrap_or(path);
        let (name, path) = alias.asname.as_ref().map_or((first, first), |name| (name.as_str(), path));
        self.bind(name, Some(Value::of(0, path)));
    }

    fn import_from(&mut self, level: u32, module: &str, alias: &Alias) {
        let name = alias.name.as_str();
        if name == "*" {
            return self.stars.push((level, module.to_owned()));
        }
        let value = Value::of(level, module).attribute(name);
        self.bind(alias.asname.as_ref().unwrap_or(&alias.name).as_str(), value);
    }
}

impl Value {
    fn of(level: u32, path: &str) -> Self {
        Self { level, path: path.to_owned(), made: None }
    }

    /// What `value.name` is; nothing is known of what calls make.
    pub(super) fn attribute(self, name: &str) -> Option<Self> {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        self.made.is_none().then_some(Self { path, ..self })
    }

    /// What `value(backend=…)` is.
    pub(super) fn called(self, backend: Backend) -> Option<Self> {
        self.made.is_none().then_some(Self { made: Some(backend), ..self })
    }

    /// Whether it is of the package `skyward`, or may be by way of another file.
    fn is_ours(&self) -> bool {
        self.level > 0 || self.path.split('.').next() == Some(PACKAGE)
    }
}

/// Binds the names in a target to what is not known.
struct Stored<'a>(&'a mut Names);

impl<'a> Visitor<'a> for Stored<'_> {
    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) if name.ctx != ExprContext::Load => self.0.bind(name.id.as_str(), None),
            _ => walk_expr(self, expression),
        }
    }
}
