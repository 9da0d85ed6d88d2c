//! The world that a function joins by its decorators.

mod names;

use ruff_python_ast::{Arguments, Expr, Stmt, StmtFunctionDef};

use self::names::{Names, Value};

/// The files of a payload, of which each may have its decorators from another.
pub(super) trait Modules {
    /// The statements of the file with this index.
    fn statements(&self, file: usize) -> &[Stmt];

    /// The file that an import in another one means, if it is one of the payload's own.
    fn imported(&self, importer: usize, level: u32, module: &str) -> Option<usize>;
}

/// The framework into whose world `@sky.integrations.…` joins the workers: `jax`, `torch`, or
/// `unknown` where that is decided at run time; none without such a decorator. Names are followed
/// through imports, the payload's own files among them, and through assignments. What a function or
/// a condition gives is not.
pub(super) fn joins(modules: &impl Modules, file: usize, function: &StmtFunctionDef) -> Option<&'static str> {
    if function.decorator_list.is_empty() {
        return None;
    }
    let names = Names::of(modules.statements(file), Some(function));
    let mut decorators = function.decorator_list.iter();
    decorators.find_map(|decorator| meant(modules, file, &names, &decorator.expression).flatten())
}

/// The world that an expression joins as a decorator; none where it is another one.
fn meant(modules: &impl Modules, file: usize, names: &Names, expression: &Expr) -> Option<Option<&'static str>> {
    let (decorator, given) = match expression {
        Expr::Call(call) => (&*call.func, Some(Backend::of(&call.arguments))),
        name => (name, None),
    };
    names.values(decorator).into_iter().find_map(|value| {
        let value = resolve(modules, file, value, HOPS)?;
        match (value.made, &given) {
            (Some(made), None) => world_of(&value.path, &made),
            (None, given) => world_of(&value.path, given.as_ref().unwrap_or(&Backend::Default)),
            // What is made is given the function, and no arguments of its own.
            (Some(_), Some(_)) => None,
        }
    })
}

/// A value by its path in the package `skyward`, however many of the payload's own files it comes
/// through; none of anything else.
fn resolve(modules: &impl Modules, file: usize, value: Value, hops: usize) -> Option<Value> {
    let Value { level, path, made } = &value;
    if *level == 0 && path.split('.').next() == Some(PACKAGE) {
        return Some(value);
    }
    let parts: Vec<&str> = path.split('.').collect();
    // The longest part of the path that is a file.
    let (home, rest) = (0..parts.len()).rev().find_map(|split| {
        let (module, rest) = parts.split_at(split);
        Some((modules.imported(file, *level, &module.join("."))?, rest))
    })?;
    let (first, attributes) = rest.split_first()?;
    let hops = hops.checked_sub(1)?;
    let values = Names::of(modules.statements(home), None).get(first);
    values.into_iter().find_map(|value| {
        let value = attributes.iter().try_fold(value, |value, name| value.attribute(name))?;
        let value = match made {
            Some(made) => value.called(made.clone())?,
            None => value,
        };
        resolve(modules, home, value, hops)
    })
}

/// The world that the decorator of this path joins, if it joins one; none where it is no such
/// decorator.
fn world_of(path: &str, backend: &Backend) -> Option<Option<&'static str>> {
    let world = match (path.strip_prefix(INTEGRATIONS)?, backend) {
        ("jax", _) => Some("jax"),
        ("torch" | "transformers", _) => Some("torch"),
        ("keras", Backend::Unknown) => Some("unknown"),
        ("keras", Backend::Named(name)) if name == "torch" => Some("torch"),
        ("keras", Backend::Named(name)) if name == "tensorflow" => None,
        ("keras", _) => Some("jax"),
        _ => return None,
    };
    Some(world)
}

/// The argument `backend` of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Backend {
    Default,
    Named(String),
    /// It is decided at run time.
    Unknown,
}

impl Backend {
    fn of(arguments: &Arguments) -> Self {
        match arguments.find_keyword("backend").map(|keyword| &keyword.value) {
            Some(Expr::StringLiteral(text)) => Self::Named(text.value.to_str().to_owned()),
            Some(_) => Self::Unknown,
            // It may be in what is unpacked.
            None if arguments.keywords.iter().any(|keyword| keyword.arg.is_none()) => Self::Unknown,
            None => Self::Default,
        }
    }
}

const PACKAGE: &str = "skyward";
const INTEGRATIONS: &str = "skyward.integrations.";
/// More imports than lead from one file to the next without a circle.
const HOPS: usize = 16;

#[cfg(test)]
mod tests;
