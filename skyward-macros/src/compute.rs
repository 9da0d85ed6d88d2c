//! The attribute, from tokens to tokens.

use std::path::PathBuf;

use proc_macro2::{Span, TokenStream};
use skyward_python::names::is_keyword;
use skyward_python::{Body as PythonBody, BodyEnd, Entry, File, Finding, Function, Kind, Literal, Payload};
use syn::{Ident, LitStr};

use crate::args::Options;
use crate::check::{check, generator, left_out, no_generator, passing};
use crate::diagnostic::{Anchor, Diagnostic, Errors, is_reported_by};
use crate::expand::{self, Expected, Made, Source, Text, Unreturned};
use crate::signature::{Body, Declaration, ResultForm, Signature};
use crate::surroundings::is_associated;

/// Expands a declaration. The output contains errors for all mistakes in it.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let options = Options::parse(options).map_err(|error| errors.push(error)).ok();
    let facade = options.as_ref().map_or_else(|| syn::parse_quote!(::skyward), |options| options.facade.clone());
    let declaration = syn::parse2::<Declaration>(item).map_err(|error| errors.push(error)).ok();
    let signature =
        declaration.as_ref().and_then(|declaration| declaration.check().map_err(|error| errors.push(error)).ok());
    let mut expanded = TokenStream::new();
    if let (Some(declaration), Some(signature)) = (&declaration, &signature) {
        let made = options.as_ref().map(|options| make(options, declaration, signature, &mut errors));
        expanded = match made {
            Some(Ok(made)) => made,
            Some(Err(expected)) => expand::without_source(declaration, signature, &facade, expected.as_ref()),
            None => expand::without_source(declaration, signature, &facade, None),
        };
    }
    if let Err(errors) = errors.finish(()) {
        expanded.extend(errors.into_compile_error());
    }
    expanded
}

/// What the compiler checks even if there are errors.
type Wrong = Option<Expected>;

fn make(
    options: &Options,
    declaration: &Declaration,
    signature: &Signature,
    errors: &mut Errors,
) -> Result<TokenStream, Wrong> {
    let made = match (&options.python, &declaration.body) {
        (Some(python), Body::None) => from_files(options, python, signature, errors)?,
        (None, Body::Python(body)) => from_body(options, body, signature, errors)?,
        (None, Body::Rust(block)) => {
            if let Some(payload) = &options.payload {
                let message = "a Rust body puts its source together when it is called, so the attribute cannot name a type for it: \
                               remove `payload`, and give the builder a call, `.payload_of(&…)`";
                errors.at(payload.span(), message);
                return Err(None);
            }
            if let Some(unchecked) = &options.unchecked {
                let message = "nothing in a Rust body is checked, so `unchecked` has no effect: remove it";
                errors.at(unchecked.span(), message);
                return Err(None);
            }
            return Ok(expand::with_rust(declaration, signature, &options.facade, block));
        }
        (None, Body::None) => {
            let message = "this declares no source: add `#[compute(python = \"payloads/….py\")]`, \
                           or a body that is a string literal of Python";
            errors.at(signature.name.span(), message);
            return Err(None);
        }
        (Some(python), Body::Python(_) | Body::Rust(_)) => {
            let message = "the source is given twice, by `python` and by a body: \
                           end the declaration with `;`, or remove `python`";
            errors.at(python.span(), message);
            return Err(None);
        }
    };
    if let Some(payload) = options.payload.as_ref().filter(|payload| is_associated(payload.span())) {
        errors.at(payload.span(), in_impl(payload, &signature.name));
        return Err(made.expected);
    }
    Ok(expand::with_source(declaration, signature, options, &made))
}

/// The message for a type that cannot stand where its function does.
fn in_impl(payload: &Ident, name: &Ident) -> String {
    format!(
        "`payload = {payload}` declares a type beside the function, and an `impl` block or a trait holds no such type\n\
         declare the payload outside of it, or remove `payload`, and give the builder a call: `.payload_of(&Self::{name}(…))`"
    )
}

fn from_files(options: &Options, python: &LitStr, signature: &Signature, errors: &mut Errors) -> Result<Made, Wrong> {
    let error = |found: &Diagnostic| signature.error(found, python, options.entry.as_ref(), options.main.as_ref());
    let mut report = |found: Vec<Diagnostic>| found.iter().for_each(|found| errors.push(error(found)));
    // Cargo passes the manifest folder of the compiled crate in this variable.
    let Some(root) = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) else {
        report(vec![Diagnostic::new(
            Anchor::Source,
            "files are found from `CARGO_MANIFEST_DIR`, which is not set: build with Cargo",
        )]);
        return Err(None);
    };
    let main = options.main.as_ref().map(LitStr::value);
    let declaration = format!("{} {}", python.span().file(), signature.name);
    let payload = Payload::read(&root, &python.value(), main.as_deref()).map_err(|found| {
        if found.kind() != Kind::Encoding || is_reported_by(&declaration, &found) {
            report(vec![found.into()]);
        }
        None
    })?;
    let broken = payload.findings();
    let is_broken = !broken.is_empty();
    let broken = broken.into_iter().filter(|found| is_reported_by(&declaration, found));
    report(broken.map(Diagnostic::from).collect());
    let entry = options.entry.as_ref().map_or_else(|| python_name(signature), LitStr::value);
    let unchecked = options.unchecked.is_some();
    let (function, joins) = match payload.entry(&entry, unchecked) {
        Ok(Entry::Function { function, joins, .. }) => (Some(function), joins),
        Ok(_) => (None, None),
        Err(found) => {
            // In a file that does not parse, the entry may only seem to be missing.
            if !is_broken {
                report(vec![found.into()]);
            }
            return Err(None);
        }
    };
    let function = function.as_deref();
    let compared = function.filter(|_| !unchecked);
    let misfits = compared.map(|function| check(signature, function)).unwrap_or_default();
    let fits = misfits.is_empty();
    report(misfits);
    // A partial syntax tree would produce misleading messages.
    let expected = compared.filter(|_| !is_broken).and_then(|function| expected(signature, function));
    if is_broken || !fits {
        return Err(expected);
    }
    let text = |file: &File| {
        let source = file.source_path().to_owned();
        let text = if file.is_verbatim() { Text::File(source) } else { Text::Decoded(file.text().to_owned(), source) };
        (file.path().to_owned(), text)
    };
    let source = Source {
        entry,
        joins,
        returned: compared.and_then(|function| payload.returned(function)),
        neighbours: payload.neighbours(),
        main: payload.main().path().to_owned(),
        first_line: 1,
        files: payload.files().iter().map(text).collect(),
    };
    let required = compared.map(|function| required(signature, function)).unwrap_or_default();
    Ok(Made { source, passing: passing(signature, function), expected, unreturned: None, required })
}

fn from_body(options: &Options, body: &LitStr, signature: &Signature, errors: &mut Errors) -> Result<Made, Wrong> {
    let mut report = |found: Diagnostic| errors.push(signature.error(&found, body, None, None));
    let name = python_name(signature);
    let names = signature.arguments.iter().map(|argument| argument.name.as_str());
    let mut reserved = false;
    for (name, anchor) in std::iter::once((name.as_str(), Anchor::Name))
        .chain(names.clone().enumerate().map(|(index, name)| (name, Anchor::Argument(index))))
        .filter(|(name, _)| is_keyword(name))
    {
        reserved = true;
        report(Diagnostic::new(anchor, format!("`{name}` is a word of Python's own: choose another name")));
    }
    if reserved {
        return Err(None);
    }
    let names: Vec<&str> = names.collect();
    let python = PythonBody::new(&name, &names, &body.value(), literal(body));
    let broken = body_errors(&python, options.unchecked.is_some());
    let is_broken = !broken.is_empty();
    broken.into_iter().for_each(|message| report(Diagnostic::new(Anchor::Source, message)));
    let Some(function) = python.function() else { return Err(None) };
    let mut misfits = check(signature, &function);
    let unreturned = check_end(python.end(), signature, &function).filter(|_| !is_broken);
    let is_open = signature.result == ResultForm::Unknown;
    if let Some(unreturned) = unreturned.as_ref().filter(|_| !is_open) {
        let Unreturned { message, advice, .. } = unreturned;
        misfits.push(Diagnostic::new(Anchor::Source, format!("{message}: {advice}")));
    }
    let fits = misfits.is_empty();
    misfits.into_iter().for_each(report);
    if is_broken {
        return Err(None);
    }
    let expected = expected(signature, &function);
    if !fits {
        return Err(expected);
    }
    let path = python.path().to_owned();
    let source = Source {
        entry: name,
        // A body has no decorators.
        joins: None,
        returned: None,
        neighbours: None,
        main: path.clone(),
        first_line: python.first_line(),
        files: vec![(path, Text::Inline(python.text().to_owned()))],
    };
    let passing = passing(signature, Some(&function));
    // A result that may be an alias of `()` is the compiler's to judge.
    Ok(Made { source, passing, expected, unreturned: unreturned.filter(|_| is_open), required: Vec::new() })
}

/// What the compiler compares for a result type that may be an alias.
fn expected(signature: &Signature, function: &Function) -> Option<Expected> {
    let streams = function.first_yield.is_some();
    let (message, advice) = if streams { generator(function) } else { no_generator(function) };
    let is_known = streams || !function.may_return_iterator;
    let is_open = signature.result == ResultForm::Unknown && is_known && !(streams && function.is_async);
    is_open.then_some(Expected { streams, message, advice })
}

/// Errors for builds whose `cfg` leaves out an argument that Python requires.
fn required(signature: &Signature, function: &Function) -> Vec<TokenStream> {
    let conditional = signature.arguments.iter().filter(|argument| !argument.conditions.is_empty());
    let required = conditional.filter_map(|argument| {
        let parameter = function.parameter(&argument.name).filter(|parameter| !parameter.has_default)?;
        Some(expand::required(argument, &left_out(function, parameter)))
    });
    required.collect()
}

fn body_errors(body: &PythonBody, unchecked: bool) -> Vec<String> {
    let is_undefined = |found: &Finding| found.kind() == Kind::Undefined;
    let refused = body.findings().into_iter().filter(|found| !(unchecked && is_undefined(found)));
    let shown = |found: Finding| match found.kind() {
        Kind::Undefined => format!("{found}\n{AT_RUN_TIME}"),
        _ => found.to_string(),
    };
    refused.map(shown).collect()
}

/// Finds a body without a `return`, which is valid Python and returns None.
fn check_end(end: BodyEnd, signature: &Signature, function: &Function) -> Option<Unreturned> {
    if function.returns_value || function.first_yield.is_some() {
        return None;
    }
    match (end, signature.result) {
        (BodyEnd::UnusedValue, ResultForm::Value | ResultForm::Option | ResultForm::Unknown) => Some(Unreturned {
            message: "the Python body ends with a value that goes nowhere",
            advice: "write `return` before it",
            allows_option: false,
        }),
        (BodyEnd::Nothing, ResultForm::Value | ResultForm::Unknown) => Some(Unreturned {
            message: "the Python body returns nothing",
            advice: "write `return …`, or leave the result type out",
            allows_option: true,
        }),
        _ => None,
    }
}

/// The position of the body.
fn literal(body: &LitStr) -> Literal {
    let span: Span = body.span();
    let (start, end) = (span.start(), span.end());
    // What is before the text: `"`, `r"`, `r##"`.
    let opening = body.token().to_string().find('"').map_or(1, |quote| quote + 1);
    Literal {
        path: relative(&span.file()),
        line: u32::try_from(start.line).unwrap_or(1).max(1),
        column: u32::try_from(start.column + opening + 1).unwrap_or(1),
        height: end.line.saturating_sub(start.line) + 1,
    }
}

/// The file's path without the parts of this machine, which are private and would change the
/// payload's digest.
fn relative(file: &str) -> String {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let inside = file.strip_prefix(&root).filter(|_| !root.is_empty()).map(|file| file.trim_start_matches(['/', '\\']));
    let file = inside.unwrap_or(file).replace('\\', "/");
    if file.starts_with('/') { file.rsplit('/').next().unwrap_or_default().to_owned() } else { file }
}

fn python_name(signature: &Signature) -> String {
    signature.name.to_string().trim_start_matches("r#").to_owned()
}

/// The advice below the error of an undefined name.
const AT_RUN_TIME: &str = "where something defines the name at run time, write `#[compute(unchecked)]`";
