//! What the names at the top level of a module are bound to.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::visitor::{Visitor, walk_pattern};
use ruff_python_ast::{Expr, ExprContext, Pattern, Stmt, StmtFunctionDef};
use ruff_text_size::{Ranged as _, TextRange};

use super::branches::{walk_reached, walk_run_expr, walk_run_stmt};
use super::module::Module;
use super::scopes::captured;

/// The names of a module's top level. `if`, `try` and `with` open no scope.
pub(crate) struct Bindings<'a> {
    pub(crate) module: &'a Module,
    names: BTreeMap<&'a str, Bound<'a>>,
    stars: Vec<Star<'a>>,
    functions: Vec<&'a str>,
}

/// How a name comes to be in a module.
#[derive(Clone, Copy)]
pub(crate) enum Binding<'a> {
    Function(&'a StmtFunctionDef),
    /// `from …module import name`, with as many dots.
    Import {
        level: u32,
        module: &'a str,
        name: &'a str,
        at: TextRange,
    },
    /// `import path`, or `import path as name`.
    Module {
        path: &'a str,
        at: TextRange,
    },
    /// Something whose parameters are not written down: a class, an assignment.
    Other {
        what: &'static str,
        at: TextRange,
    },
}

/// `from …module import *`, with as many dots.
#[derive(Clone, Copy)]
pub(crate) struct Star<'a> {
    pub(crate) level: u32,
    pub(crate) module: &'a str,
}

/// The last binding of a name.
struct Bound<'a> {
    binding: Binding<'a>,
    /// How many `import *` stand before it.
    stars: usize,
}

impl<'a> Bindings<'a> {
    pub(crate) fn of(module: &'a Module) -> Self {
        let mut reader = Reader {
            names: BTreeMap::new(),
            stars: Vec::new(),
            functions: Vec::new(),
            seen: BTreeSet::new(),
            comprehensions: 0,
        };
        reader.visit_body(module.statements());
        let Reader { names, stars, functions, .. } = reader;
        Self { module, names, stars, functions }
    }

    /// What a name is at the end of the module, but for `import *`.
    pub(crate) fn find(&self, name: &str) -> Option<Binding<'a>> {
        self.names.get(name).map(|bound| bound.binding)
    }

    /// Each `import *`, in order.
    pub(crate) fn stars(&self) -> &[Star<'a>] {
        &self.stars
    }

    /// How many of these stand before the binding of a name; those behind it may bind the name anew.
    pub(crate) fn stars_before(&self, name: &str) -> usize {
        self.names.get(name).map_or(0, |bound| bound.stars)
    }

    /// The names of the functions, in order.
    pub(crate) fn function_names(&self) -> &[&'a str] {
        &self.functions
    }
}

/// Reads bindings, without entering functions and classes.
struct Reader<'a> {
    names: BTreeMap<&'a str, Bound<'a>>,
    stars: Vec<Star<'a>>,
    functions: Vec<&'a str>,
    seen: BTreeSet<&'a str>,
    /// Comprehensions around the expression, whose targets are their own.
    comprehensions: usize,
}

impl<'a> Reader<'a> {
    fn bind(&mut self, name: &'a str, binding: Binding<'a>) {
        self.names.insert(name, Bound { binding, stars: self.stars.len() });
    }

    fn bind_other(&mut self, name: &'a str, at: TextRange) {
        self.bind(name, Binding::Other { what: "assigned", at });
    }
}

impl<'a> Visitor<'a> for Reader<'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let at = statement.range();
        match statement {
            Stmt::FunctionDef(function) => {
                let name = function.name.as_str();
                if self.seen.insert(name) {
                    self.functions.push(name);
                }
                self.bind(name, Binding::Function(function));
            }
            Stmt::ClassDef(class) => self.bind(class.name.as_str(), Binding::Other { what: "a class", at }),
            Stmt::Import(import) => {
                for alias in &import.names {
                    let path = alias.name.as_str();
                    let bound = match &alias.asname {
                        Some(name) => name.as_str(),
                        None => path.split('.').next().unwrap_or(path),
                    };
                    self.bind(bound, Binding::Module { path, at });
                }
            }
            Stmt::ImportFrom(import) => {
                let (level, module) = (import.level, import.module.as_ref().map_or("", |module| module.as_str()));
                for alias in &import.names {
                    let name = alias.name.as_str();
                    if name == "*" {
                        self.stars.push(Star { level, module });
                    } else {
                        let bound = alias.asname.as_ref().unwrap_or(&alias.name).as_str();
                        self.bind(bound, Binding::Import { level, module, name, at });
                    }
                }
            }
            // It binds nothing, and its annotation does not either.
            Stmt::AnnAssign(assign) if assign.value.is_none() => {}
            // Not what stands below `if __name__ == "__main__":`, which a worker does not run.
            _ => walk_run_stmt(self, statement),
        }
    }

    fn visit_body(&mut self, body: &'a [Stmt]) {
        walk_reached(self, body);
    }

    /// Binds the names of all targets: of assignments of any form, loops, `with` and `:=`.
    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Name(name) if name.ctx == ExprContext::Store && self.comprehensions == 0 => {
                self.bind_other(name.id.as_str(), name.range());
            }
            Expr::Named(named) => {
                if let Expr::Name(name) = &*named.target {
                    self.bind_other(name.id.as_str(), name.range());
                }
                self.visit_expr(&named.value);
            }
            Expr::Lambda(_) => {}
            Expr::ListComp(_) | Expr::SetComp(_) | Expr::DictComp(_) | Expr::Generator(_) => {
                self.comprehensions += 1;
                walk_run_expr(self, expression);
                self.comprehensions -= 1;
            }
            _ => walk_run_expr(self, expression),
        }
    }

    fn visit_pattern(&mut self, pattern: &'a Pattern) {
        if let Some(name) = captured(pattern) {
            self.bind_other(name.as_str(), name.range());
        }
        walk_pattern(self, pattern);
    }
}

#[cfg(test)]
mod tests {
    use indoc::indoc;

    use super::super::module::Lines;
    use super::super::version::Target;
    use super::*;

    #[test]
    fn the_last_binding_holds() {
        let text = indoc! {"
            def f(a): pass
            try:
                from .fast import f as f
            except ImportError:
                def g(): pass
            class h:
                def inner(self): pass
            k = f
        "};
        let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
        let bindings = module.bindings();
        assert!(matches!(bindings.find("f"), Some(Binding::Import { level: 1, module: "fast", name: "f", .. })));
        assert!(matches!(bindings.find("g"), Some(Binding::Function(_))));
        assert!(matches!(bindings.find("h"), Some(Binding::Other { what: "a class", .. })));
        assert!(matches!(bindings.find("k"), Some(Binding::Other { what: "assigned", .. })));
        assert!(bindings.find("inner").is_none());
        assert_eq!(bindings.function_names(), ["f", "g"]);
    }

    #[test]
    fn every_target_is_bound() {
        for text in [
            "f, g = make()\n",
            "[g, (h, *f)] = make()\n",
            "f: Callable = make()\n",
            "x = f = make()\n",
            "for f in made: pass\n",
            "with made as (f, g): pass\n",
            "if (f := make()): pass\n",
            "x = [y for y in z if (f := y)]\n",
            "match made:\n    case {'f': f}: pass\n",
            "try:\n    f, = make()\nfinally:\n    pass\n",
            "type f = int\n",
        ] {
            let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
            assert!(matches!(module.bindings().find("f"), Some(Binding::Other { what: "assigned", .. })), "{text}");
        }
        for text in
            ["f: Callable\n", "x = [f for f in y]\n", "x = lambda: (f := 1)\n", "f.g = f[0] = 1\n", "if 0: f, g = 1\n"]
        {
            let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
            assert!(module.bindings().find("f").is_none(), "{text}");
        }
    }

    #[test]
    fn what_everything_is_imported_from_may_bind_anew_what_stands_before() {
        let text = indoc! {"
            from .a import *
            def f(): pass
            from ..b import *
            x = y = 1
            from c import *
        "};
        let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
        let bindings = module.bindings();
        let stars: Vec<_> = bindings.stars().iter().map(|star| (star.level, star.module)).collect();
        assert_eq!(stars, [(1, "a"), (2, "b"), (0, "c")]);
        for (name, before) in [("f", 1), ("x", 2), ("y", 2), ("z", 0)] {
            assert_eq!(bindings.stars_before(name), before, "{name}");
        }
    }
}
