//! From statements to tables of scopes.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::visitor::{Visitor, walk_except_handler, walk_expr, walk_pattern, walk_stmt};
use ruff_python_ast::{self as ast, ExceptHandler, Expr, ExprContext, Parameters, Pattern, Stmt, TypeParams};
use ruff_text_size::Ranged as _;

use super::super::branches::{Truth, branches, handles, reached, suppresses, truth};
use super::{Chance, Kind, Name, Scope, Scopes, Use, captured};

/// All scopes of a module with these statements.
pub(super) fn build(statements: &[Stmt]) -> Scopes {
    let module = Scope { kind: Kind::Module, parent: None, names: BTreeMap::new() };
    let found = Scopes {
        scopes: vec![module],
        uses: Vec::new(),
        misplaced: Vec::new(),
        bound: BTreeSet::new(),
        dynamic: false,
        defers_annotations: false,
    };
    let mut builder =
        Builder { found, scope: 0, chance: Chance::Read, nonlocals: Vec::new(), injecting: BTreeSet::new() };
    builder.visit_body(statements);
    builder.finish()
}

struct Builder {
    found: Scopes,
    scope: usize,
    chance: Chance,
    nonlocals: Vec<(usize, ast::Identifier)>,
    /// The names under which the module is imported that has [`INJECTS`].
    injecting: BTreeSet<String>,
}

impl Builder {
    fn finish(mut self) -> Scopes {
        for (scope, name) in std::mem::take(&mut self.nonlocals) {
            let outer = self.found.scopes[scope].parent.into_iter().flat_map(|parent| self.found.around(parent));
            let functions = outer.map(|at| &self.found.scopes[at]).filter(|scope| scope.kind == Kind::Function);
            // The nearest that says anything of the name decides.
            let nearest = functions.filter_map(|scope| scope.names.get(name.as_str())).find(|it| it.bound || it.global);
            // Names of this sort are others in a class.
            if !name.starts_with("__") && nearest.is_none_or(|known| known.global) {
                let message = format!(
                    "no function around this one has a variable `{name}`, which `nonlocal` needs: assign it there first"
                );
                self.found.misplaced.push((name.range(), message));
            }
        }
        // What a scope binds that declares it `global` is bound in the module.
        let names = self.found.scopes.iter().flat_map(|scope| &scope.names);
        let declared: Vec<String> =
            names.filter(|(_, it)| it.global && it.bound).map(|(name, _)| name.clone()).collect();
        for name in declared {
            self.found.scopes[0].names.entry(name).or_default().bound = true;
        }
        let names = self.found.scopes.iter().flat_map(|scope| &scope.names);
        self.found.bound = names.filter(|(_, it)| it.bound).map(|(name, _)| name.clone()).collect();
        self.found
    }

    fn name(&mut self, scope: usize, name: &str) -> &mut Name {
        self.found.scopes[scope].names.entry(name.to_owned()).or_default()
    }

    fn bind(&mut self, name: &str) {
        self.bind_in(self.scope, name);
    }

    fn bind_in(&mut self, scope: usize, name: &str) {
        let known = self.name(scope, name);
        (known.bound, known.assigned) = (true, true);
    }

    /// Walks what a new scope holds.
    fn within(&mut self, kind: Kind, walk: impl FnOnce(&mut Self)) {
        let around = self.scope;
        self.found.scopes.push(Scope { kind, parent: Some(around), names: BTreeMap::new() });
        self.scope = self.found.scopes.len() - 1;
        walk(self);
        self.scope = around;
    }

    /// Walks what is read with no more than this chance.
    fn with_chance(&mut self, chance: Chance, walk: impl FnOnce(&mut Self)) {
        let around = self.chance;
        self.chance = around.max(chance);
        walk(self);
        self.chance = around;
    }

    fn in_type_parameters(&mut self, parameters: Option<&TypeParams>, walk: impl FnOnce(&mut Self)) {
        let Some(parameters) = parameters else { return walk(self) };
        self.within(Kind::TypeParameters, |builder| {
            for parameter in parameters.iter() {
                builder.bind(parameter.name().as_str());
            }
            // Bounds and defaults are evaluated when somebody asks for them.
            builder.with_chance(Chance::Unlikely, |builder| builder.visit_type_params(parameters));
            walk(builder);
        });
    }

    fn annotation(&mut self, annotation: &Expr) {
        self.with_chance(Chance::Annotation, |builder| builder.visit_expr(annotation));
    }

    fn function(&mut self, parameters: Option<&Parameters>, walk: impl FnOnce(&mut Self)) {
        self.within(Kind::Function, |builder| {
            for parameter in parameters.into_iter().flat_map(Parameters::iter) {
                builder.bind(parameter.name().as_str());
            }
            walk(builder);
        });
    }

    fn defaults(&mut self, parameters: &Parameters) {
        let defaults = parameters.iter_non_variadic_params().filter_map(|parameter| parameter.default.as_deref());
        defaults.for_each(|default| self.visit_expr(default));
    }

    fn comprehension(&mut self, generators: &[ast::Comprehension], elements: &[&Expr]) {
        // Only the first iterable is evaluated in the scope around.
        if let Some(first) = generators.first() {
            self.visit_expr(&first.iter);
        }
        self.within(Kind::Comprehension, |builder| {
            for (index, comprehension) in generators.iter().enumerate() {
                builder.visit_expr(&comprehension.target);
                if index > 0 {
                    builder.visit_expr(&comprehension.iter);
                }
                comprehension.ifs.iter().for_each(|condition| builder.visit_expr(condition));
            }
            elements.iter().for_each(|element| builder.visit_expr(element));
        });
    }

    fn declare(&mut self, names: &[ast::Identifier], word: &str) {
        let is_module = self.found.scopes[self.scope].kind == Kind::Module;
        for name in names {
            let known = self.name(self.scope, name.as_str());
            let before = *known;
            let other = if word == "global" {
                known.global = true;
                before.nonlocal
            } else {
                known.nonlocal = true;
                before.global
            };
            let message = if other {
                format!("`{name}` is declared both `global` and `nonlocal`: keep one of them")
            } else if before.annotated {
                format!("`{name}` is annotated, so it cannot be `{word}`: remove the annotation")
            } else if before.used {
                format!("`{name}` is used before `{word} {name}`: write that at the beginning")
            } else if before.assigned {
                format!("`{name}` is assigned before `{word} {name}`: write that at the beginning")
            } else {
                if word == "nonlocal" && !is_module {
                    self.nonlocals.push((self.scope, name.clone()));
                }
                continue;
            };
            self.found.misplaced.push((name.range(), message));
        }
    }

    fn import(&mut self, names: &[ast::Alias]) {
        for alias in names {
            let bound = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
            self.found.dynamic |= bound == "*" || alias.name.as_str() == "builtins";
            if alias.name.as_str() == INJECTS.0 {
                self.injecting.insert(bound.to_owned());
            }
            self.name(self.scope, bound.split('.').next().unwrap_or(bound)).bound = true;
        }
    }
}

impl<'a> Visitor<'a> for Builder {
    fn visit_body(&mut self, body: &'a [Stmt]) {
        let (reached, behind) = body.split_at(reached(body).len());
        reached.iter().for_each(|statement| self.visit_stmt(statement));
        self.with_chance(Chance::Unlikely, |builder| {
            behind.iter().for_each(|statement| builder.visit_stmt(statement));
        });
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::FunctionDef(function) => {
                self.bind(function.name.as_str());
                function.decorator_list.iter().for_each(|decorator| self.visit_decorator(decorator));
                self.defaults(&function.parameters);
                self.in_type_parameters(function.type_params.as_deref(), |builder| {
                    let parameters = function.parameters.iter();
                    let written = parameters.filter_map(|parameter| parameter.annotation());
                    written.chain(function.returns.as_deref()).for_each(|annotation| builder.annotation(annotation));
                    builder.function(Some(&function.parameters), |builder| builder.visit_body(&function.body));
                });
            }
            Stmt::ClassDef(class) => {
                self.bind(class.name.as_str());
                class.decorator_list.iter().for_each(|decorator| self.visit_decorator(decorator));
                self.in_type_parameters(class.type_params.as_deref(), |builder| {
                    class.arguments.iter().for_each(|arguments| builder.visit_arguments(arguments));
                    builder.within(Kind::Class, |builder| builder.visit_body(&class.body));
                });
            }
            Stmt::TypeAlias(alias) => {
                self.visit_expr(&alias.name);
                self.in_type_parameters(alias.type_params.as_deref(), |builder| {
                    builder.with_chance(Chance::Unlikely, |builder| builder.visit_expr(&alias.value));
                });
            }
            Stmt::AnnAssign(assign) => {
                let in_function = self.found.scopes[self.scope].kind == Kind::Function;
                match &*assign.target {
                    Expr::Name(name) if assign.simple => {
                        let is_module = self.scope == 0;
                        let known = self.name(self.scope, name.id.as_str());
                        (known.bound, known.assigned, known.annotated) = (true, true, true);
                        if (known.global || known.nonlocal) && !is_module {
                            let message = format!("`{}` is `global` or `nonlocal`: remove the annotation", name.id);
                            self.found.misplaced.push((name.range(), message));
                        }
                    }
                    target => self.visit_expr(target),
                }
                // A function does not evaluate the annotations of its variables.
                let chance = if in_function { Chance::Unlikely } else { Chance::Annotation };
                self.with_chance(chance, |builder| builder.visit_expr(&assign.annotation));
                assign.value.iter().for_each(|value| self.visit_expr(value));
            }
            Stmt::Global(statement) => self.declare(&statement.names, "global"),
            Stmt::Nonlocal(statement) => self.declare(&statement.names, "nonlocal"),
            Stmt::Import(import) => self.import(&import.names),
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                let injects = |alias: &ast::Alias| module == INJECTS.0 && alias.name.as_str() == INJECTS.1;
                self.found.dynamic |= module == "builtins" || import.names.iter().any(injects);
                self.found.defers_annotations |=
                    module == "__future__" && import.names.iter().any(|alias| alias.name.as_str() == "annotations");
                self.import(&import.names);
            }
            Stmt::If(inner) => {
                self.visit_expr(&inner.test);
                for clause in &inner.elif_else_clauses {
                    clause.test.iter().for_each(|test| self.visit_expr(test));
                }
                for (body, taken) in branches(inner) {
                    self.with_chance(chance(taken), |builder| builder.visit_body(body));
                }
            }
            Stmt::While(inner) => {
                self.visit_expr(&inner.test);
                self.with_chance(chance(truth(&inner.test)), |builder| builder.visit_body(&inner.body));
                self.visit_body(&inner.orelse);
            }
            Stmt::Try(attempt) => {
                let chance = if handles(attempt, &ABSENCE) { Chance::Unlikely } else { Chance::Read };
                self.with_chance(chance, |builder| builder.visit_body(&attempt.body));
                attempt.handlers.iter().for_each(|handler| self.visit_except_handler(handler));
                self.visit_body(&attempt.orelse);
                self.visit_body(&attempt.finalbody);
            }
            Stmt::With(with) if suppresses(&with.items) => {
                self.with_chance(Chance::Unlikely, |builder| walk_stmt(builder, statement));
            }
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) => {
                let text = name.id.as_str();
                match name.ctx {
                    ExprContext::Load => {
                        let (scope, chance) = (self.scope, self.chance);
                        // Whether an annotation counts for `global` depends on the version.
                        self.name(scope, text).used |= chance != Chance::Annotation;
                        self.found.uses.push(Use { name: text.to_owned(), range: name.range(), scope, chance });
                    }
                    _ => self.bind(text),
                }
            }
            Expr::Attribute(attribute) => {
                let of = match &*attribute.value {
                    Expr::Name(name) => name.id.as_str(),
                    _ => "",
                };
                let name = attribute.attr.as_str();
                let injects = name == INJECTS.1 && self.injecting.contains(of);
                self.found.dynamic |= NAMESPACES.contains(&name) || of == "sys" && name == "modules" || injects;
                walk_expr(self, expression);
            }
            Expr::Named(named) => {
                self.visit_expr(&named.value);
                // It binds outside of the comprehension that it stands in.
                let is_inner = |scope: &usize| self.found.scopes[*scope].kind != Kind::Comprehension;
                let scope = self.found.around(self.scope).find(is_inner).unwrap_or(0);
                if let Expr::Name(target) = &*named.target {
                    let is_inner = scope != self.scope;
                    let known = self.name(scope, target.id.as_str());
                    known.bound = true;
                    // From a comprehension, it is global in the module at once.
                    known.assigned |= scope != 0 || !is_inner;
                }
            }
            Expr::Lambda(lambda) => {
                lambda.parameters.iter().for_each(|parameters| self.defaults(parameters));
                self.function(lambda.parameters.as_deref(), |builder| builder.visit_expr(&lambda.body));
            }
            Expr::ListComp(list) => self.comprehension(&list.generators, &[&list.elt]),
            Expr::SetComp(set) => self.comprehension(&set.generators, &[&set.elt]),
            Expr::Generator(generator) => self.comprehension(&generator.generators, &[&generator.elt]),
            Expr::DictComp(dict) => {
                let mut elements: Vec<&Expr> = dict.key.as_deref().into_iter().collect();
                elements.push(&dict.value);
                self.comprehension(&dict.generators, &elements);
            }
            Expr::If(choice) => {
                self.visit_expr(&choice.test);
                let taken = truth(&choice.test);
                self.with_chance(chance(taken), |builder| builder.visit_expr(&choice.body));
                self.with_chance(chance(taken.negated()), |builder| builder.visit_expr(&choice.orelse));
            }
            Expr::BoolOp(operation) => {
                let asks_for_version = operation.values.iter().any(|value| truth(value) == Truth::Version);
                let mut chance = if asks_for_version { Chance::Unlikely } else { Chance::Read };
                for value in &operation.values {
                    self.with_chance(chance, |builder| builder.visit_expr(value));
                    if truth(value).decides(operation.op) {
                        chance = Chance::Unlikely;
                    }
                }
            }
            _ => walk_expr(self, expression),
        }
    }

    fn visit_except_handler(&mut self, handler: &'a ExceptHandler) {
        let ExceptHandler::ExceptHandler(inner) = handler;
        inner.name.iter().for_each(|name| self.bind(name.as_str()));
        walk_except_handler(self, handler);
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        captured(pattern).into_iter().for_each(|name| self.bind(name.as_str()));
        walk_pattern(self, pattern);
    }
}

/// Of what stands behind a condition.
fn chance(taken: Truth) -> Chance {
    if matches!(taken, Truth::Never | Truth::Version) { Chance::Unlikely } else { Chance::Read }
}

/// What a name that is not there raises.
const ABSENCE: [&str; 4] = ["NameError", "UnboundLocalError", "Exception", "BaseException"];

/// A module, and its function that binds names in the module of its caller.
const INJECTS: (&str, &str) = ("sympy", "var");

/// Attributes through which names may be set that are not written down.
const NAMESPACES: [&str; 7] =
    ["__builtins__", "__globals__", "_convert_", "f_builtins", "f_globals", "f_locals", "global_enum"];
