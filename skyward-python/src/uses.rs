//! Whether what a module names of `skyward` is there.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::visitor::{
    Visitor, walk_annotation, walk_except_handler, walk_parameter, walk_pattern, walk_type_param,
};
use ruff_python_ast::{self as ast, ExceptHandler, Expr, Parameter, Pattern, Stmt, TypeParam};
use ruff_text_size::{Ranged as _, TextRange};

use super::branches::{walk_certain_stmt, walk_reached, walk_run_expr, walk_run_stmt};
use super::exports::{Export, Exports, SKYWARD};
use super::names::{list, nearest};
use super::scopes::captured;

/// What is not there, in the order of the text. Only what is plain: names that are bound by one
/// import alone, and attributes that nothing in the module sets, asks for by `hasattr`, or expects
/// to fail. Nothing of what no worker runs, such as the part of a script below
/// `if __name__ == "__main__":`, and deferred annotations.
pub(super) fn unknown_names(statements: &[Stmt], defers_annotations: bool) -> Vec<(TextRange, String)> {
    let mut bindings = Bindings::default();
    bindings.visit_body(statements);
    if bindings.dynamic {
        return Vec::new();
    }
    let mut uses = Uses { bindings, found: Vec::new(), defers_annotations };
    uses.visit_body(statements);
    uses.found.sort_by_key(|(range, _)| range.start());
    uses.found
}

/// What names mean in the whole module, in whatever scope.
#[derive(Default)]
struct Bindings {
    /// None for a name that may mean something else.
    names: BTreeMap<String, Option<Export>>,
    /// Attributes that may be there although `skyward` does not export them.
    attributes: BTreeSet<String>,
    /// Attributes are set by names that are not written down.
    dynamic: bool,
}

impl Bindings {
    fn bind(&mut self, name: &str, export: Option<Export>) {
        self.names
            .entry(name.to_owned())
            .and_modify(|known| *known = known.filter(|it| Some(*it) == export))
            .or_insert(export);
    }

    fn bind_import(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Import(import) => {
                for alias in &import.names {
                    let path = alias.name.as_str();
                    match &alias.asname {
                        Some(name) => self.bind(name.as_str(), module_of(path).map(Export::Module)),
                        None => {
                            let first = path.split('.').next().unwrap_or(path);
                            self.bind(first, module_of(first).map(Export::Module));
                        }
                    }
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().filter(|_| import.level == 0);
                let module = module.and_then(|module| module_of(module.as_str()));
                for alias in &import.names {
                    let export = module.and_then(|module| module.find(alias.name.as_str()));
                    self.bind(alias.asname.as_ref().unwrap_or(&alias.name).as_str(), export);
                }
            }
            _ => {}
        }
    }
}

impl<'a> Visitor<'a> for Bindings {
    fn visit_body(&mut self, body: &'a [Stmt]) {
        walk_reached(self, body);
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Import(_) | Stmt::ImportFrom(_) => self.bind_import(statement),
            Stmt::FunctionDef(function) => self.bind(function.name.as_str(), None),
            Stmt::ClassDef(class) => self.bind(class.name.as_str(), None),
            _ => {}
        }
        walk_run_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) if !name.ctx.is_load() => self.bind(name.id.as_str(), None),
            Expr::Attribute(attribute) if !attribute.ctx.is_load() => {
                self.attributes.insert(attribute.attr.to_string());
            }
            Expr::Call(call) => match (&*call.func, &*call.arguments.args) {
                (Expr::Name(name), [_, Expr::StringLiteral(text), ..]) if name.id.as_str().ends_with("attr") => {
                    self.attributes.insert(text.value.to_str().to_owned());
                }
                (Expr::Name(name), [_, ..]) if ["setattr", "vars"].contains(&name.id.as_str()) => self.dynamic = true,
                _ => {}
            },
            _ => {}
        }
        walk_run_expr(self, expression);
    }

    fn visit_parameter(&mut self, parameter: &'a Parameter) {
        self.bind(parameter.name.as_str(), None);
        walk_parameter(self, parameter);
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(inner) = handler;
        if let Some(name) = &inner.name {
            self.bind(name.as_str(), None);
        }
        walk_except_handler(self, handler);
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        if let Some(name) = captured(pattern) {
            self.bind(name.as_str(), None);
        }
        walk_pattern(self, pattern);
    }

    fn visit_type_param(&mut self, parameter: &'a TypeParam) {
        self.bind(parameter.name().as_str(), None);
        walk_type_param(self, parameter);
    }
}

struct Uses {
    bindings: Bindings,
    found: Vec<(TextRange, String)>,
    /// No annotation is evaluated.
    defers_annotations: bool,
}

impl Uses {
    /// What an expression means, and its name from `skyward` on.
    fn meaning(&self, expression: &Expr) -> Option<(Export, String)> {
        match expression {
            Expr::Name(name) => {
                let export = self.bindings.names.get(name.id.as_str()).copied().flatten()?;
                let shown = match export {
                    Export::Module(module) => module.module.to_owned(),
                    _ => name.id.to_string(),
                };
                Some((export, shown))
            }
            Expr::Attribute(attribute) => match self.meaning(&attribute.value)? {
                (Export::Module(module), path) => {
                    let name = attribute.attr.as_str();
                    Some((module.find(name)?, format!("{path}.{name}")))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn check_name(&mut self, module: &Exports, name: &str, at: TextRange) {
        if module.find(name).is_some() || self.bindings.attributes.contains(name) {
            return;
        }
        let known = || module.names.iter().map(|(name, _)| *name);
        let rest = match nearest(name, known()) {
            Some(close) => format!("did you mean `{close}`?"),
            None => format!("it has {}", list(known())),
        };
        self.found.push((at, format!("`{}` has no `{name}`; {rest}", module.module)));
    }

    fn check_keywords(&mut self, call: &ast::ExprCall) {
        let Some((Export::Function(known), path)) = self.meaning(&call.func) else { return };
        for keyword in &call.arguments.keywords {
            let Some(name) = keyword.arg.as_ref().filter(|name| !known.contains(&name.as_str())) else { continue };
            let rest = match nearest(name.as_str(), known.iter().copied()) {
                Some(close) => format!("did you mean `{close}`?"),
                None if known.is_empty() => "it takes no keywords".to_owned(),
                None => format!("it takes {}", list(known.iter().copied())),
            };
            self.found.push((name.range(), format!("`{path}` takes no `{name}`; {rest}")));
        }
    }

    fn check_import(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Import(import) => {
                for alias in &import.names {
                    self.check_path(alias.name.as_str(), alias.name.range());
                }
            }
            Stmt::ImportFrom(import) if import.level == 0 => {
                let Some(path) = &import.module else { return };
                self.check_path(path.as_str(), path.range());
                let Some(module) = module_of(path.as_str()) else { return };
                for alias in import.names.iter().filter(|alias| alias.name.as_str() != "*") {
                    self.check_name(module, alias.name.as_str(), alias.name.range());
                }
            }
            _ => {}
        }
    }

    /// The module that is named right below `skyward`.
    fn check_path(&mut self, path: &str, at: TextRange) {
        if let Some(("skyward", rest)) = path.split_once('.') {
            self.check_name(&SKYWARD, rest.split('.').next().unwrap_or(rest), at);
        }
    }
}

impl<'a> Visitor<'a> for Uses {
    fn visit_body(&mut self, body: &'a [Stmt]) {
        walk_reached(self, body);
    }

    fn visit_annotation(&mut self, annotation: &'a Expr) {
        if !self.defers_annotations {
            walk_annotation(self, annotation);
        }
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        self.check_import(statement);
        walk_certain_stmt(self, statement, &ABSENCE);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Attribute(attribute) if attribute.ctx.is_load() => {
                if let Some((Export::Module(module), _)) = self.meaning(&attribute.value) {
                    self.check_name(module, attribute.attr.as_str(), attribute.attr.range());
                }
            }
            Expr::Call(call) => self.check_keywords(call),
            _ => {}
        }
        walk_run_expr(self, expression);
    }
}

fn module_of(path: &str) -> Option<&'static Exports> {
    let mut parts = path.split('.');
    if parts.next() != Some(SKYWARD.module) {
        return None;
    }
    parts.try_fold(&SKYWARD, |module, part| match module.find(part) {
        Some(Export::Module(inner)) => Some(inner),
        _ => None,
    })
}

/// What a name that is not there raises, in an import or as an attribute.
const ABSENCE: [&str; 6] =
    ["AttributeError", "BaseException", "Exception", "ImportError", "ModuleNotFoundError", "TypeError"];

#[cfg(test)]
mod tests;
