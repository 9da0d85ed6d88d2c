//! Whether a Rust signature and a Python function fit each other.

use quote::ToTokens as _;
use skyward_python::names::{list, nearest};
use skyward_python::{Function, Parameter, Scalar};

use crate::diagnostic::{Anchor, Diagnostic};
use crate::fit::{Plain, Rust, rust_type, written};
use crate::signature::{ResultForm, Signature};

/// How an argument is passed to Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    Always,
    /// `None` leaves the argument to the parameter's default.
    UnlessNone,
}

/// All differences between the two.
pub(crate) fn check(signature: &Signature, function: &Function) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut meant = Vec::new();
    for (index, argument) in signature.arguments.iter().enumerate() {
        match function.parameter(&argument.name) {
            Some(parameter) if parameter.positional_only => {
                let message = format!(
                    "`{}` of `{}` ({}) is positional-only (before `/`), but Skyward passes arguments by name\n\
                     move it after the `/`, or remove the `/`",
                    argument.name,
                    function.name,
                    function.location()
                );
                found.push(Diagnostic::new(Anchor::Argument(index), message));
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
                found.push(Diagnostic::new(Anchor::Argument(index), unknown(function, &argument.name, close)));
            }
            Some(parameter) => found.extend(
                misfit(function, parameter, &argument.ty)
                    .map(|message| Diagnostic::new(Anchor::ArgumentType(index), message)),
            ),
            None => {}
        }
    }
    for parameter in &function.parameters {
        let passed = signature.arguments.iter().any(|argument| argument.name == parameter.name);
        // One error is enough for a parameter and an argument that is most likely its misspelling.
        if !passed && !parameter.has_default && !meant.contains(&parameter.name.as_str()) {
            found.push(Diagnostic::new(Anchor::Name, missing(function, parameter)));
        }
    }
    found.extend(check_result(signature, function));
    found
}

fn check_result(signature: &Signature, function: &Function) -> Option<Diagnostic> {
    if let Some(found) = function.asynchronous_generator() {
        return Some(found.into());
    }
    // The compiler checks other types, which may be aliases of a stream.
    if function.first_yield.is_some() && signature.result != ResultForm::Unknown {
        let (message, advice) = generator(function);
        return Some(Diagnostic::new(Anchor::Output, format!("{message}\n{advice}")));
    }
    let scalars = function.returns.scalars.as_ref().filter(|_| function.first_yield.is_none())?;
    let plain = Plain::of(&signature.output)?;
    if plain.can_be_read(scalars) {
        return None;
    }
    let written = function.returns.text.as_deref().unwrap_or_default();
    let clash = match plain.rust {
        Rust::Unit => "and the declaration has no result".to_owned(),
        _ => format!("which is never read as {}", shown(&signature.output)),
    };
    let advice = match rust_type(scalars) {
        Some(ty) if ty == "()" => "leave the result type out, or ".to_owned(),
        Some(ty) => format!("write `-> {ty}`, or "),
        None => String::new(),
    };
    let message = format!(
        "`{}` ({}) returns `{written}`, {clash}\n{advice}change the annotation if it is wrong",
        function.name,
        function.location()
    );
    Some(Diagnostic::new(Anchor::Output, message))
}

/// The message and the advice for a generator that is not declared as a stream.
pub(crate) fn generator(function: &Function) -> (String, &'static str) {
    let at = function.first_yield.clone().unwrap_or_else(|| function.location());
    let message = format!("`{}` is a generator, because it has a `yield` ({at})", function.name);
    (message, "write `-> Streaming<T>`, where `T` is the type of an item")
}

/// The message and the advice for a stream whose function is not a generator.
pub(crate) fn no_generator(function: &Function) -> (String, &'static str) {
    let message =
        format!("`{}` ({}) is no generator: it has no `yield` of its own", function.name, function.location());
    (message, "write `-> T` for what it returns, or let it yield the items")
}

/// An argument that the annotation of its parameter rules out.
fn misfit(function: &Function, parameter: &Parameter, ty: &syn::Type) -> Option<String> {
    let scalars = parameter.annotation.scalars.as_ref()?;
    let plain = Plain::of(ty)?;
    if plain.can_be_passed(scalars) {
        return None;
    }
    let written = parameter.annotation.text.as_deref().unwrap_or_default();
    let advice = rust_type(scalars).map_or_else(String::new, |ty| format!("write `{}: {ty}`, or ", parameter.name));
    Some(format!(
        "`{}` ({}) takes `{}: {written}`, and {} arrives as `{}`\n\
         {advice}change the annotation if it is wrong",
        function.name,
        function.location(),
        parameter.name,
        shown(ty),
        plain.rust.scalar().name()
    ))
}

/// A Rust type in a message.
fn shown(ty: &syn::Type) -> String {
    let written = ty.to_token_stream().to_string();
    let close = [" <", "< ", " >", "& "].iter().fold(written, |text, spaced| text.replace(spaced, spaced.trim()));
    format!("`{close}`")
}

/// How each argument is passed.
pub(crate) fn passing(signature: &Signature, function: Option<&Function>) -> Vec<Passing> {
    signature
        .arguments
        .iter()
        .map(|argument| match function.and_then(|function| function.parameter(&argument.name)) {
            // What `**kwargs` takes goes on to where a default may wait for it; so it may where the
            // function is not known.
            Some(Parameter { has_default: true, .. }) | None if argument.form.optional => Passing::UnlessNone,
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
    format!("`{}` ({}) has no parameter `{name}`\n{rest}", function.name, function.location())
}

/// The message for a required parameter whose argument some builds leave out.
pub(crate) fn left_out(function: &Function, parameter: &Parameter) -> String {
    format!(
        "{}, and this build leaves the argument out\ngive the parameter a default, or remove the `#[cfg]`",
        required(function, parameter)
    )
}

fn required(function: &Function, parameter: &Parameter) -> String {
    let Parameter { name, annotation, .. } = parameter;
    let written = annotation.text.as_ref().map_or_else(|| name.clone(), |annotation| format!("{name}: {annotation}"));
    format!("`{}` ({}) requires `{written}`", function.name, function.location())
}

fn missing(function: &Function, parameter: &Parameter) -> String {
    let Parameter { name, annotation, positional_only, .. } = parameter;
    let required = format!("{}, which is not passed", required(function, parameter));
    if *positional_only {
        return format!(
            "{required}\nit is positional-only (before `/`), but Skyward passes arguments by name: remove the `/`"
        );
    }
    let named = || annotation.text.as_deref().and_then(Scalar::named).and_then(written).map(str::to_owned);
    let ty = annotation.scalars.as_ref().and_then(rust_type).or_else(named).unwrap_or_else(|| "…".to_owned());
    format!("{required}\nadd the argument `{name}: {ty}`, or give the parameter a default")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::Declaration;
    use skyward_python::{Entry, Payload};

    fn both(rust: &str, python: &str) -> (Signature, Function) {
        let signature = syn::parse_str::<Declaration>(rust).unwrap().check().unwrap();
        match Payload::from_text("a.py", python).entry("f", false) {
            Ok(Entry::Function { function, .. }) => (signature, *function),
            other => panic!("no f: {other:?}"),
        }
    }

    fn messages(rust: &str, python: &str) -> Vec<(Anchor, String)> {
        let (signature, function) = both(rust, python);
        check(&signature, &function).into_iter().map(|found| (found.anchor, found.message)).collect()
    }

    #[test]
    fn what_fits_is_accepted() {
        for (rust, python) in [
            ("fn f(a: u8, b: u8);", "def f(b, a): pass"),
            ("fn f(a: u8);", "def f(a, *args, b=1, **kw): pass"),
            ("fn f(a: u8, z: u8);", "def f(a, **kw): pass"),
            ("fn f();", "def f(a=1, /): pass"),
            ("fn f() -> Streaming<u8>;", "def f(): yield 1"),
            ("fn f() -> Items;", "def f(): yield 1"),
            ("fn f() -> u8;", "async def f(): return 1"),
            ("fn f(a: Report, b: &str) -> Vec<f64>;", "def f(a: str, b: str | None) -> bool: pass"),
            ("fn f(a: u8, b: Option<f32>) -> f32;", "def f(a: float, b: float = 1) -> int: pass"),
            ("fn f(a: Option<u8>) -> Option<u8>;", "def f(a: int) -> None: pass"),
        ] {
            assert_eq!(messages(rust, python), [], "{rust} {python}");
        }
    }

    #[test]
    fn unknown_and_missing_arguments_are_found() {
        let found = messages("fn f(epoch: u32, other: u8);", "def f(epochs: int, rate: float): pass");
        assert_eq!(found[0].0, Anchor::Argument(0));
        assert!(found[0].1.contains("a.py:1:5") && found[0].1.ends_with("did you mean `epochs`?"), "{found:#?}");
        assert_eq!(found[1].0, Anchor::Argument(1));
        assert!(found[1].1.contains("`epochs` and `rate`"), "{found:#?}");
        assert_eq!(found[2].0, Anchor::Name);
        assert!(found[2].1.contains("`rate: float`") && found[2].1.contains("`rate: f64`"), "{found:#?}");
        assert_eq!(found.len(), 3, "`epochs` is not told twice");
    }

    #[test]
    fn positional_only_parameters_are_refused() {
        assert_eq!(messages("fn f(a: u8);", "def f(a, /): pass")[0].0, Anchor::Argument(0));
        assert!(messages("fn f();", "def f(a, /): pass")[0].1.contains("remove the `/`"));
    }

    #[test]
    fn generators_stream() {
        assert!(messages("fn f() -> u8;", "def f(): yield 1")[0].1.contains("-> Streaming<T>"));
        assert!(messages("fn f();", "def f(): yield 1")[0].1.contains("-> Streaming<T>"));
        assert!(messages("fn f() -> Vec<Report>;", "def f(): yield 1")[0].1.contains("-> Streaming<T>"));
        let found = messages("fn f() -> Streaming<u8>;", "async def f(): yield 1");
        assert_eq!(found[0].0, Anchor::Entry);
        assert!(found[0].1.contains("asynchronous generator"), "{found:#?}");
    }

    #[test]
    fn plain_annotations_that_never_fit_are_found() {
        let found = messages("fn f(x: f64, y: Option<&str>) -> f64;", "def f(x: str, y: bytes | None) -> str: pass");
        assert_eq!(found.len(), 2, "`None` fits the second: {found:#?}");
        assert_eq!(found[0].0, Anchor::ArgumentType(0));
        assert_eq!(
            found[0].1,
            "`f` (a.py:1:5) takes `x: str`, and `f64` arrives as `float`\n\
             write `x: String`, or change the annotation if it is wrong"
        );
        assert_eq!(found[1].0, Anchor::Output);
        assert_eq!(
            found[1].1,
            "`f` (a.py:1:5) returns `str`, which is never read as `f64`\n\
             write `-> String`, or change the annotation if it is wrong"
        );
        for (rust, python) in [
            ("fn f(x: f64);", "def f(x: int): pass"),
            ("fn f(x: Option<u8>);", "def f(x: str): pass"),
            ("fn f(x: u8);", "def f(x: bool): pass"),
            ("fn f(x: &[u8]);", "def f(x: str): pass"),
            ("fn f();", "def f() -> int: pass"),
            ("fn f() -> u8;", "def f() -> bool: pass"),
            ("fn f() -> u8;", "async def f() -> None: pass"),
            ("fn f() -> Option<String>;", "def f() -> bytes: pass"),
        ] {
            assert_eq!(messages(rust, python).len(), 1, "{rust} {python}");
        }
    }

    #[test]
    fn none_is_left_out_where_python_has_a_default() {
        let (signature, function) =
            both("fn f(a: Option<u8>, b: Option<u8>, c: u8, d: Option<u8>);", "def f(a, b=1, c=2, **kw): pass");
        use Passing::{Always, UnlessNone};
        assert_eq!(passing(&signature, Some(&function)), [Always, UnlessNone, Always, UnlessNone]);
    }
}
