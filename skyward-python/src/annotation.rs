//! Annotations that name built-in scalars, and what they allow.

use std::collections::BTreeSet;

use ruff_python_ast::{Expr, Operator};

use super::bindings::{Binding, Bindings};

/// What is written behind the `:` of a parameter, or the `->` of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Annotation {
    /// The text of the annotation, if there is one.
    pub text: Option<String>,
    /// All types that the annotation allows, if it names built-in scalars alone, and no decorator
    /// may convert the values.
    pub scalars: Option<BTreeSet<Scalar>>,
}

/// A built-in type of Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scalar {
    /// `None`
    None,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `float`
    Float,
    /// `str`
    Str,
    /// `bytes`
    Bytes,
}

/// Reads the annotations of a module.
pub(super) struct Annotations<'a> {
    bindings: &'a Bindings<'a>,
    /// The names of types may mean something else here.
    rebound: bool,
}

impl<'a> Annotations<'a> {
    pub(super) fn of(bindings: &'a Bindings<'a>) -> Self {
        let scopes = bindings.module.scopes();
        Self { bindings, rebound: scopes.dynamic || NAMES.iter().any(|(name, _)| scopes.binds(name)) }
    }

    /// None for whatever is not plain.
    pub(super) fn read(&self, annotation: Option<&Expr>) -> Option<BTreeSet<Scalar>> {
        let annotation = annotation.filter(|_| !self.rebound)?;
        let mut found = BTreeSet::new();
        self.collect(annotation, &mut found).then_some(found)
    }

    fn collect(&self, annotation: &Expr, found: &mut BTreeSet<Scalar>) -> bool {
        match annotation {
            Expr::NoneLiteral(_) => {
                found.insert(Scalar::None);
                true
            }
            Expr::Name(name) => {
                let scalar = Scalar::named(name.id.as_str());
                found.extend(scalar);
                scalar.is_some()
            }
            Expr::BinOp(union) if union.op == Operator::BitOr => {
                self.collect(&union.left, found) && self.collect(&union.right, found)
            }
            Expr::Subscript(subscript) => match (self.of_typing(&subscript.value), &*subscript.slice) {
                (Some("Optional"), inner) => {
                    found.insert(Scalar::None);
                    self.collect(inner, found)
                }
                (Some("Union"), Expr::Tuple(members)) => members.elts.iter().all(|member| self.collect(member, found)),
                (Some("Union"), inner) => self.collect(inner, found),
                _ => false,
            },
            _ => false,
        }
    }

    /// The name in `typing`, if it is from there.
    fn of_typing(&self, expression: &'a Expr) -> Option<&'a str> {
        match expression {
            Expr::Name(name) => match self.bindings.find(name.id.as_str())? {
                Binding::Import { level: 0, module: "typing", name, .. } => Some(name),
                _ => None,
            },
            Expr::Attribute(attribute) => match &*attribute.value {
                Expr::Name(module) => match self.bindings.find(module.id.as_str())? {
                    Binding::Module { path: "typing", .. } => Some(attribute.attr.as_str()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }
}

impl Scalar {
    /// Its name in Python.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, scalar)| *scalar == self).map_or("None", |(name, _)| name)
    }

    /// The type of this name, other than `None`.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, scalar)| *scalar)
    }
}

const NAMES: [(&str, Scalar); 5] = [
    ("bool", Scalar::Bool),
    ("bytes", Scalar::Bytes),
    ("float", Scalar::Float),
    ("int", Scalar::Int),
    ("str", Scalar::Str),
];

#[cfg(test)]
mod tests {
    use indoc::indoc;

    use super::super::module::{Lines, Module};
    use super::super::version::Target;
    use super::*;

    fn read(before: &str, annotation: &str) -> Option<String> {
        let text = format!("{before}def f(a: {annotation}): pass\n");
        let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
        let bindings = module.bindings();
        let Some(Binding::Function(function)) = bindings.find("f") else { panic!("no f") };
        let annotation = function.parameters.args[0].parameter.annotation();
        let found = Annotations::of(&bindings).read(annotation)?;
        Some(found.into_iter().map(Scalar::name).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn plain_scalars_are_read() {
        let typing = indoc! {"
            from typing import Optional, Union as U
            import typing as t
        "};
        for (annotation, expected) in [
            ("int", "int"),
            ("None", "None"),
            ("float | None", "None float"),
            ("int | str | bytes", "int str bytes"),
            ("Optional[bool]", "None bool"),
            ("U[int, None]", "None int"),
            ("U[int]", "int"),
            ("t.Optional[str]", "None str"),
        ] {
            assert_eq!(read(typing, annotation).as_deref(), Some(expected), "{annotation}");
        }
    }

    #[test]
    fn what_is_not_plain_is_nothing() {
        for (before, annotation) in [
            ("", "list[int]"),
            ("", "int | Model"),
            ("", "'int'"),
            ("", "np.float32"),
            ("", "Optional[int]"),
            ("from mine import Optional\n", "Optional[int]"),
            ("from numpy import *\n", "float"),
            ("from numpy import float32 as float\n", "float"),
            (
                indoc! {"
                    import mine
                    mine.Optional
                "},
                "mine.Optional[int]",
            ),
            ("class str: pass\n", "str"),
            ("def g(int): pass\n", "int"),
        ] {
            assert_eq!(read(before, annotation), None, "{before}{annotation}");
        }
    }
}
