//! What the Python compiler refuses although the grammar allows it: `return` outside a function,
//! and its like.

use std::cell::RefCell;

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{self as ast, ExceptHandler, Expr, PythonVersion, Stmt};
use ruff_python_parser::semantic_errors::{
    LazyImportContext, SemanticSyntaxChecker, SemanticSyntaxContext, SemanticSyntaxError,
};
use ruff_text_size::{Ranged as _, TextLen as _, TextRange};

/// The errors of a module that has been parsed without any.
pub(super) fn semantic_errors(source: &str, version: PythonVersion, statements: &[Stmt]) -> Vec<(TextRange, String)> {
    let mut walker = Walker {
        checker: SemanticSyntaxChecker::new(),
        errors: RefCell::default(),
        source,
        version,
        scopes: vec![Scope::Module],
        loops: 0,
    };
    for statement in statements {
        walker.visit_stmt(statement);
    }
    walker.errors.into_inner()
}

struct Walker<'a> {
    checker: SemanticSyntaxChecker,
    errors: RefCell<Vec<(TextRange, String)>>,
    source: &'a str,
    version: PythonVersion,
    scopes: Vec<Scope>,
    /// Loops around the statement, within its function.
    loops: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    Module,
    Class,
    Function { is_async: bool, parameters: Vec<String> },
    Comprehension { is_async: bool, generator: bool },
}

impl Walker<'_> {
    fn check(&mut self, check: impl FnOnce(&mut SemanticSyntaxChecker, &Self)) {
        let mut checker = std::mem::take(&mut self.checker);
        check(&mut checker, self);
        self.checker = checker;
    }

    /// Walks what a new scope holds.
    fn within(&mut self, scope: Scope, walk: impl FnOnce(&mut Self)) {
        let loops = std::mem::take(&mut self.loops);
        self.scopes.push(scope);
        walk(self);
        self.scopes.pop();
        self.loops = loops;
    }

    fn in_loop(&mut self, body: &[Stmt]) {
        self.loops += 1;
        self.visit_body(body);
        self.loops -= 1;
    }

    fn comprehension(&mut self, generators: &[ast::Comprehension], generator: bool, elements: &[&Expr]) {
        // Only the first iterable is evaluated in the scope around.
        if let Some(first) = generators.first() {
            self.visit_expr(&first.iter);
        }
        let is_async = generators.iter().any(|generator| generator.is_async);
        self.within(Scope::Comprehension { is_async, generator }, |walker| {
            for (index, comprehension) in generators.iter().enumerate() {
                walker.visit_expr(&comprehension.target);
                if index > 0 {
                    walker.visit_expr(&comprehension.iter);
                }
                comprehension.ifs.iter().for_each(|condition| walker.visit_expr(condition));
            }
            elements.iter().for_each(|element| walker.visit_expr(element));
        });
    }

    fn error(&self, range: TextRange, message: &str) {
        self.errors.borrow_mut().push((range, message.to_owned()));
    }

    /// The scopes outwards, without comprehensions.
    fn proper_scopes(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.iter().rev().filter(|scope| !matches!(scope, Scope::Comprehension { .. }))
    }
}

impl Visitor<'_> for Walker<'_> {
    fn visit_stmt(&mut self, statement: &Stmt) {
        self.check(|checker, context| checker.visit_stmt(statement, context));
        match statement {
            Stmt::ClassDef(class) => {
                class.decorator_list.iter().for_each(|decorator| self.visit_decorator(decorator));
                if let Some(parameters) = &class.type_params {
                    self.visit_type_params(parameters);
                }
                if let Some(arguments) = &class.arguments {
                    self.visit_arguments(arguments);
                }
                self.within(Scope::Class, |walker| walker.visit_body(&class.body));
            }
            Stmt::FunctionDef(function) => {
                // Decorators, defaults and annotations belong to the scope around.
                function.decorator_list.iter().for_each(|decorator| self.visit_decorator(decorator));
                self.visit_parameters(&function.parameters);
                let scope = Scope::Function { is_async: function.is_async, parameters: names(&function.parameters) };
                self.within(scope, |walker| walker.visit_body(&function.body));
            }
            Stmt::For(inner) => {
                self.visit_expr(&inner.iter);
                self.visit_expr(&inner.target);
                self.in_loop(&inner.body);
                // A loop has ended where its `else` begins.
                self.visit_body(&inner.orelse);
            }
            Stmt::While(inner) => {
                self.visit_expr(&inner.test);
                self.in_loop(&inner.body);
                self.visit_body(&inner.orelse);
            }
            Stmt::Try(attempt) => {
                let before_last = attempt.handlers.iter().rev().skip(1);
                for ExceptHandler::ExceptHandler(handler) in before_last.filter(|handler| is_bare(handler)) {
                    let keyword = TextRange::at(handler.start(), "except".text_len());
                    self.error(keyword, "`except:` takes every exception, so it must be the last one: move it down");
                }
                walk_stmt(self, statement);
            }
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, expression: &Expr) {
        if matches!(expression, Expr::Yield(_) | Expr::YieldFrom(_))
            && matches!(self.scopes.last(), Some(Scope::Comprehension { .. }))
        {
            let message = "`yield` cannot stand in a comprehension: write a loop";
            self.error(expression.range(), message);
            return walk_expr(self, expression);
        }
        self.check(|checker, context| checker.visit_expr(expression, context));
        match expression {
            Expr::Lambda(lambda) => {
                let parameters = lambda.parameters.as_deref().map(names).unwrap_or_default();
                self.within(Scope::Function { is_async: false, parameters }, |walker| walk_expr(walker, expression));
            }
            Expr::ListComp(list) => self.comprehension(&list.generators, false, &[&list.elt]),
            Expr::SetComp(set) => self.comprehension(&set.generators, false, &[&set.elt]),
            Expr::Generator(generator) => self.comprehension(&generator.generators, true, &[&generator.elt]),
            Expr::DictComp(dict) => {
                let mut elements: Vec<&Expr> = dict.key.as_deref().into_iter().collect();
                elements.push(&dict.value);
                self.comprehension(&dict.generators, false, &elements);
            }
            _ => walk_expr(self, expression),
        }
    }
}

impl SemanticSyntaxContext for Walker<'_> {
    fn future_annotations_or_stub(&self) -> bool {
        true
    }

    fn lazy_import_context(&self) -> Option<LazyImportContext> {
        None
    }

    fn python_version(&self) -> PythonVersion {
        self.version
    }

    fn source(&self) -> &str {
        self.source
    }

    // The tables of scopes say what is wrong with `global` and `nonlocal`.
    fn global(&self, _: &str) -> Option<TextRange> {
        None
    }

    fn has_nonlocal_binding(&self, _: &str) -> bool {
        true
    }

    // A comprehension may be asynchronous wherever the function around it is.
    fn in_async_context(&self) -> bool {
        matches!(self.scopes.last(), Some(Scope::Comprehension { is_async: true, .. }))
            || matches!(self.proper_scopes().next(), Some(Scope::Function { is_async: true, .. }))
    }

    fn in_await_allowed_context(&self) -> bool {
        matches!(self.proper_scopes().next(), Some(Scope::Function { .. }))
    }

    fn in_yield_allowed_context(&self) -> bool {
        matches!(self.scopes.last(), Some(Scope::Function { .. }))
    }

    fn in_sync_comprehension(&self) -> bool {
        self.scopes.iter().any(|scope| matches!(scope, Scope::Comprehension { is_async: false, .. }))
    }

    fn in_class_body_comprehension(&self) -> bool {
        matches!(self.scopes.last(), Some(Scope::Comprehension { .. }))
            && matches!(self.proper_scopes().next(), Some(Scope::Class))
    }

    fn in_module_scope(&self) -> bool {
        self.scopes.len() == 1
    }

    fn in_function_scope(&self) -> bool {
        matches!(self.proper_scopes().next(), Some(Scope::Function { .. }))
    }

    fn in_generator_context(&self) -> bool {
        self.scopes.iter().any(|scope| matches!(scope, Scope::Comprehension { generator: true, .. }))
    }

    fn in_notebook(&self) -> bool {
        false
    }

    fn report_semantic_error(&self, error: SemanticSyntaxError) {
        self.errors.borrow_mut().push((error.range, error.to_string()));
    }

    fn in_loop_context(&self) -> bool {
        self.loops > 0
    }

    fn is_bound_parameter(&self, name: &str) -> bool {
        matches!(self.proper_scopes().next(), Some(Scope::Function { parameters, .. }) if parameters.iter().any(|parameter| parameter == name))
    }
}

fn names(parameters: &ast::Parameters) -> Vec<String> {
    parameters.iter().map(|parameter| parameter.name().to_string()).collect()
}

/// `except:`, without a type.
fn is_bare(handler: &ExceptHandler) -> bool {
    let ExceptHandler::ExceptHandler(handler) = handler;
    handler.type_.is_none()
}
