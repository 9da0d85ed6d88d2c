//! A Python function as a call sees it.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ParameterWithDefault, Stmt, StmtFunctionDef, UnaryOp};
use ruff_text_size::{Ranged as _, TextRange};

use super::annotation::{Annotation, Annotations};
use super::bindings::{Binding, Bindings};
use super::finding::Location;

/// A function, its parameters, and whether it is a generator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function {
    /// The name behind `def`.
    pub name: String,
    /// Whether it is an `async def`.
    pub is_async: bool,
    /// Where its name is.
    pub(crate) location: Location,
    /// Its parameters in order, without `*args` and `**kwargs`.
    pub parameters: Vec<Parameter>,
    /// `**kwargs`: it takes any name.
    pub takes_any: bool,
    /// `path:line:column` of the first `yield` of its own.
    pub first_yield: Option<String>,
    /// Whether there is a `return` with a value in it.
    pub returns_value: bool,
    /// Whether it may return an iterator, such as a generator of another function. A worker streams
    /// that, too.
    pub may_return_iterator: bool,
    /// The result's annotation.
    pub returns: Annotation,
}

/// A parameter that is not `*args` or `**kwargs`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// It stands before `/`, so it has no name for a caller.
    pub positional_only: bool,
    /// Whether a call may leave it out.
    pub has_default: bool,
    /// The annotation of its type.
    pub annotation: Annotation,
}

impl Function {
    pub(crate) fn read(bindings: &Bindings<'_>, function: &StmtFunctionDef) -> Self {
        let module = bindings.module;
        let mut flow = Flow::default();
        flow.visit_body(&function.body);
        let written = &function.parameters;
        let is_plain = function.decorator_list.iter().all(|decorator| changes_nothing(bindings, &decorator.expression));
        let annotations = is_plain.then(|| Annotations::of(bindings));
        let annotation = |written: Option<&Expr>| Annotation {
            text: written.map(|at| module.text[at.range()].to_owned()),
            scalars: annotations.as_ref().and_then(|annotations| annotations.read(written)),
        };
        let read = |positional_only| {
            let annotation = &annotation;
            move |parameter: &ParameterWithDefault| Parameter {
                name: parameter.name().to_string(),
                positional_only,
                has_default: parameter.default.is_some(),
                annotation: annotation(parameter.parameter.annotation()),
            }
        };
        let by_position = written.posonlyargs.iter().map(read(true));
        let by_name = written.args.iter().chain(&written.kwonlyargs).map(read(false));
        Self {
            name: function.name.to_string(),
            is_async: function.is_async,
            location: module.location(function.name.start()),
            parameters: by_position.chain(by_name).collect(),
            takes_any: written.kwarg.is_some(),
            first_yield: flow.first_yield.map(|range| module.locate(range.start())),
            returns_value: flow.returns_value,
            may_return_iterator: flow.returns_iterator && !function.returns.as_deref().is_some_and(is_no_iterator),
            returns: annotation(function.returns.as_deref()),
        }
    }

    /// `path:line:column` of its name.
    pub fn location(&self) -> String {
        self.location.to_string()
    }

    /// The parameter of this name.
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }
}

/// Whether it is a decorator of the package `skyward`.
fn changes_nothing(bindings: &Bindings<'_>, decorator: &Expr) -> bool {
    let is_skyward = |path: &str| path.split('.').next() == Some("skyward");
    match decorator {
        Expr::Call(call) => changes_nothing(bindings, &call.func),
        Expr::Attribute(attribute) => changes_nothing(bindings, &attribute.value),
        Expr::Name(name) => match bindings.find(name.id.as_str()) {
            Some(Binding::Module { path, .. }) => is_skyward(path),
            Some(Binding::Import { level: 0, module, .. }) => is_skyward(module),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the value of an expression may have `__next__`.
fn may_be_iterator(expression: &Expr) -> bool {
    match expression {
        Expr::If(choice) => may_be_iterator(&choice.body) || may_be_iterator(&choice.orelse),
        Expr::BoolOp(operation) => operation.values.iter().any(may_be_iterator),
        Expr::Named(named) => may_be_iterator(&named.value),
        Expr::UnaryOp(operation) => operation.op != UnaryOp::Not,
        Expr::Call(call) => !matches!(&*call.func, Expr::Name(name) if CONTAINERS.contains(&name.id.as_str())),
        Expr::BooleanLiteral(_)
        | Expr::BytesLiteral(_)
        | Expr::Dict(_)
        | Expr::DictComp(_)
        | Expr::EllipsisLiteral(_)
        | Expr::FString(_)
        | Expr::Lambda(_)
        | Expr::List(_)
        | Expr::ListComp(_)
        | Expr::NoneLiteral(_)
        | Expr::NumberLiteral(_)
        | Expr::Set(_)
        | Expr::SetComp(_)
        | Expr::StringLiteral(_)
        | Expr::Tuple(_) => false,
        Expr::BinOp(operation) => may_be_iterator(&operation.left) && may_be_iterator(&operation.right),
        _ => true,
    }
}

/// Whether an annotation names a built-in type that has no `__next__`.
fn is_no_iterator(annotation: &Expr) -> bool {
    match annotation {
        Expr::NoneLiteral(_) => true,
        Expr::Name(name) => CONTAINERS.contains(&name.id.as_str()),
        Expr::Subscript(subscript) => is_no_iterator(&subscript.value),
        _ => false,
    }
}

/// What a function's own statements do; functions, lambdas and classes in it are their own.
#[derive(Default)]
struct Flow {
    first_yield: Option<TextRange>,
    returns_value: bool,
    /// Whether what it returns may be an iterator.
    returns_iterator: bool,
}

impl<'a> Visitor<'a> for Flow {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            // Defaults, decorators and bases are evaluated out here.
            Stmt::FunctionDef(function) => {
                function.decorator_list.iter().for_each(|decorator| self.visit_decorator(decorator));
                self.visit_parameters(&function.parameters);
            }
            Stmt::ClassDef(class) => {
                class.decorator_list.iter().for_each(|decorator| self.visit_decorator(decorator));
                if let Some(arguments) = &class.arguments {
                    self.visit_arguments(arguments);
                }
            }
            Stmt::Return(inner) => {
                self.returns_value |= inner.value.is_some();
                self.returns_iterator |= inner.value.as_deref().is_some_and(may_be_iterator);
                walk_stmt(self, statement);
            }
            _ => walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Lambda(_) => {}
            Expr::Yield(_) | Expr::YieldFrom(_) => {
                self.first_yield.get_or_insert(expression.range());
                walk_expr(self, expression);
            }
            _ => walk_expr(self, expression),
        }
    }
}

/// Built-in types whose values are no iterators.
const CONTAINERS: [&str; 11] =
    ["bool", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"];

#[cfg(test)]
mod tests {
    use indoc::indoc;

    use super::super::module::{Lines, Module};
    use super::super::version::Target;
    use super::*;

    fn function(text: &str) -> Function {
        let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
        assert_eq!(module.syntax_errors(), []);
        let bindings = module.bindings();
        match bindings.find("f") {
            Some(Binding::Function(function)) => Function::read(&bindings, function),
            _ => panic!("no function f in {text}"),
        }
    }

    #[test]
    fn parameters_are_read() {
        let f = function("def f(a, /, b: list[int], *rest, c=1, d: str = 'x', **kw): pass\n");
        let parameters: Vec<_> = f
            .parameters
            .iter()
            .map(|p| (p.name.as_str(), p.positional_only, p.has_default, p.annotation.text.as_deref()))
            .collect();
        assert_eq!(
            parameters,
            [
                ("a", true, false, None),
                ("b", false, false, Some("list[int]")),
                ("c", false, true, None),
                ("d", false, true, Some("str")),
            ]
        );
        assert!(f.takes_any);
        assert_eq!(f.location(), "a.py:1:5");
    }

    #[test]
    fn only_its_own_yield_makes_a_generator() {
        for (text, generator) in [
            (
                indoc! {"
                    def f():
                        yield 1
                "},
                true,
            ),
            (
                indoc! {"
                    def f():
                        x = yield from g()
                "},
                true,
            ),
            (
                indoc! {"
                    def f():
                        return [(yield)]
                "},
                true,
            ),
            (
                indoc! {"
                    def f():
                        if x:
                            while y:
                                yield
                "},
                true,
            ),
            (
                indoc! {"
                    def f():
                        def g():
                            yield 1
                        return g()
                "},
                false,
            ),
            (
                indoc! {"
                    def f():
                        return lambda: (yield)
                "},
                false,
            ),
            (
                indoc! {"
                    def f():
                        class C:
                            def g(self):
                                yield
                "},
                false,
            ),
            (
                indoc! {"
                    def f():
                        return list(x for x in y)
                "},
                false,
            ),
        ] {
            assert_eq!(function(text).first_yield.is_some(), generator, "{text}");
        }
    }

    #[test]
    fn annotations_count_unless_a_decorator_may_convert_the_values() {
        for (before, counts) in [
            ("", true),
            (
                indoc! {"
                    import skyward as sky
                    @sky.stdout(only='head')
                    @sky.compute
                "},
                true,
            ),
            (
                indoc! {"
                    from skyward import silent
                    @silent
                "},
                true,
            ),
            (
                indoc! {"
                    from pydantic import validate_call
                    @validate_call
                "},
                false,
            ),
            ("@wraps(g)\n", false),
        ] {
            let f = function(&format!("{before}def f(a: str) -> float: pass\n"));
            assert_eq!(f.parameters[0].annotation.scalars.is_some(), counts, "{before}");
            assert_eq!(f.returns.scalars.is_some(), counts, "{before}");
            assert_eq!(f.returns.text.as_deref(), Some("float"));
        }
    }

    #[test]
    fn a_return_with_a_value_is_seen() {
        for (text, returns_value) in [
            (
                indoc! {"
                    def f():
                        try:
                            return 1
                        finally:
                            pass
                "},
                true,
            ),
            (
                indoc! {"
                    def f():
                        return
                "},
                false,
            ),
            (
                indoc! {"
                    def f():
                        def g():
                            return 1
                "},
                false,
            ),
        ] {
            assert_eq!(function(text).returns_value, returns_value, "{text}");
        }
    }

    #[test]
    fn what_is_returned_may_be_an_iterator() {
        for (text, may) in [
            ("def f(): return make()\n", true),
            ("def f(): return (x for x in y)\n", true),
            ("def f(): return made if x else []\n", true),
            ("def f():\n    if x:\n        return []\n    return iter(y)\n", true),
            ("async def f(): return await make()\n", true),
            ("def f() -> Iterator[int]: return make()\n", true),
            ("def f(): pass\n", false),
            ("def f(): return\n", false),
            ("def f(): return [1.0] * x\n", false),
            ("def f(): return [x for x in y]\n", false),
            ("def f(): return list(make())\n", false),
            ("def f() -> dict[str, float]: return make()\n", false),
            ("def f():\n    def g(): return make()\n    return {}\n", false),
        ] {
            assert_eq!(function(text).may_return_iterator, may, "{text}");
        }
    }
}
