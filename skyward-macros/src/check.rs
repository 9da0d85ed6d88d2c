//! Whether a Rust signature and a Python function fit each other.

use crate::diagnostic::{Diagnostic, Place, list, nearest};
use crate::python::function::{Function, Parameter};
use crate::signature::{ResultShape, Signature};

/// How an argument is passed to Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    Always,
    /// None is left to the parameter's default.
    UnlessNone,
}

/// Everything in which they do not fit.
pub(crate) fn check(signature: &Signature, function: &Function) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut meant = Vec::new();
    for (index, argument) in signature.arguments.iter().enumerate() {
        match function.parameter(&argument.name) {
            Some(parameter) if parameter.positional_only => {
                let message = format!(
                    "`{}` stands before the `/` of `{}` ({}), where Python takes arguments by position only\n\
                     arguments travel by name: move it behind the `/`, or remove the `/`",
                    argument.name, function.name, function.location
                );
                found.push(Diagnostic::new(Place::Argument(index), message));
            }
            None if !function.takes_any => {
                let free = || {
                    let passed = |name: &str| signature.arguments.iter().any(|argument| argument.name == name);
                    function
                        .parameters
                        .iter()
                        .map(|parameter| parameter.name.as_str())
                        .filter(move |name| !passed(name))
                };
                let close = nearest(&argument.name, free());
                meant.extend(close);
                found.push(Diagnostic::new(Place::Argument(index), unknown(function, &argument.name, close)));
            }
            _ => {}
        }
    }
    for parameter in &function.parameters {
        let passed = signature.arguments.iter().any(|argument| argument.name == parameter.name);
        // Where an argument is most likely a misspelling of it, once is enough.
        if !passed && !parameter.has_default && !meant.contains(&parameter.name.as_str()) {
            found.push(Diagnostic::new(Place::Name, missing(function, parameter)));
        }
    }
    match (&function.first_yield, signature.result) {
        (Some(at), result) if result != ResultShape::Streaming => found.push(Diagnostic::new(
            Place::Output,
            format!(
                "`{}` is a generator, for it has a `yield` ({at})\n\
                 write `-> Streaming<T>`, where `T` is the type of an item",
                function.name
            ),
        )),
        (None, ResultShape::Streaming) => found.push(Diagnostic::new(
            Place::Output,
            format!(
                "`{}` ({}) is no generator: it has no `yield` of its own\n\
                 write `-> T` for what it returns, or let it yield the items",
                function.name, function.location
            ),
        )),
        _ => {}
    }
    found
}

/// How each argument is passed.
pub(crate) fn passing(signature: &Signature, function: &Function) -> Vec<Passing> {
    signature
        .arguments
        .iter()
        .map(|argument| match function.parameter(&argument.name) {
            // What `**kwargs` takes goes on to where a default may wait for it.
            Some(Parameter { has_default: true, .. }) | None if argument.shape.optional => Passing::UnlessNone,
            _ => Passing::Always,
        })
        .collect()
}

fn unknown(function: &Function, name: &str, close: Option<&str>) -> String {
    let known: Vec<&str> = function.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    let rest = match close {
        Some(close) => format!("did you mean `{close}`?"),
        None if known.is_empty() => "it takes no arguments: remove it".to_owned(),
        None => format!("it takes {}: rename the argument, or remove it", list(known)),
    };
    format!("`{}` ({}) has no parameter `{name}`\n{rest}", function.name, function.location)
}

fn missing(function: &Function, parameter: &Parameter) -> String {
    let Parameter { name, annotation, positional_only, .. } = parameter;
    let written = annotation.as_ref().map_or_else(|| name.clone(), |annotation| format!("{name}: {annotation}"));
    let required = format!("`{}` ({}) requires `{written}`, which is not passed", function.name, function.location);
    if *positional_only {
        return format!("{required}\nit stands before the `/`, and arguments travel by name: remove the `/`");
    }
    let ty = match annotation.as_deref() {
        Some("int") => "i64",
        Some("float") => "f64",
        Some("bool") => "bool",
        Some("str") => "String",
        Some("bytes") => "Vec<u8>",
        _ => "…",
    };
    format!("{required}\nadd the argument `{name}: {ty}`, or give the parameter a default")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::module::{Binding, Lines, Module};
    use crate::signature::Declaration;

    fn both(rust: &str, python: &str) -> (Signature, Function) {
        let signature = syn::parse_str::<Declaration>(rust).unwrap().check().unwrap();
        let module = Module::parse("a.py", python, Lines::Own);
        match module.find("f") {
            Some(Binding::Function(function)) => (signature, Function::read(&module, function)),
            _ => panic!("no f"),
        }
    }

    fn messages(rust: &str, python: &str) -> Vec<(Place, String)> {
        let (signature, function) = both(rust, python);
        check(&signature, &function).into_iter().map(|found| (found.place, found.message)).collect()
    }

    #[test]
    fn what_fits_is_accepted() {
        for (rust, python) in [
            ("fn f(a: u8, b: u8);", "def f(b, a): pass"),
            ("fn f(a: u8);", "def f(a, *args, b=1, **kw): pass"),
            ("fn f(a: u8, z: u8);", "def f(a, **kw): pass"),
            ("fn f();", "def f(a=1, /): pass"),
            ("fn f() -> Streaming<u8>;", "def f(): yield 1"),
        ] {
            assert_eq!(messages(rust, python), [], "{rust} {python}");
        }
    }

    #[test]
    fn unknown_and_missing_arguments_are_found() {
        let found = messages("fn f(epoch: u32, other: u8);", "def f(epochs: int, rate: float): pass");
        assert_eq!(found[0].0, Place::Argument(0));
        assert!(found[0].1.contains("a.py:1:5") && found[0].1.ends_with("did you mean `epochs`?"), "{found:#?}");
        assert_eq!(found[1].0, Place::Argument(1));
        assert!(found[1].1.contains("`epochs` and `rate`"), "{found:#?}");
        assert_eq!(found[2].0, Place::Name);
        assert!(found[2].1.contains("`rate: float`") && found[2].1.contains("`rate: f64`"), "{found:#?}");
        assert_eq!(found.len(), 3, "`epochs` is not told twice");
    }

    #[test]
    fn positional_only_parameters_are_refused() {
        assert_eq!(messages("fn f(a: u8);", "def f(a, /): pass")[0].0, Place::Argument(0));
        assert!(messages("fn f();", "def f(a, /): pass")[0].1.contains("remove the `/`"));
    }

    #[test]
    fn generators_stream_and_others_do_not() {
        assert!(messages("fn f() -> u8;", "def f(): yield 1")[0].1.contains("-> Streaming<T>"));
        assert!(messages("fn f();", "def f(): yield 1")[0].1.contains("-> Streaming<T>"));
        assert!(messages("fn f() -> Streaming<u8>;", "def f(): return [1]")[0].1.contains("no generator"));
    }

    #[test]
    fn none_is_left_out_where_python_has_a_default() {
        let (signature, function) =
            both("fn f(a: Option<u8>, b: Option<u8>, c: u8, d: Option<u8>);", "def f(a, b=1, c=2, **kw): pass");
        use Passing::{Always, UnlessNone};
        assert_eq!(passing(&signature, &function), [Always, UnlessNone, Always, UnlessNone]);
    }
}
