//! The attribute, from tokens to tokens.

use std::path::PathBuf;

use proc_macro2::{Span, TokenStream};
use syn::LitStr;

use crate::args::Options;
use crate::check::{check, passing};
use crate::diagnostic::{Diagnostic, Errors, Place};
use crate::expand::{self, Source, Text};
use crate::python::function::Function;
use crate::python::inline::{Ending, Inline, Literal};
use crate::python::metadata;
use crate::python::module::Binding;
use crate::signature::{Body, Declaration, ResultShape, Signature};
use crate::source::Files;

/// The declaration's Rust; whatever is wrong with it comes as errors beside it.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let options = Options::parse(options).map_err(|error| errors.push(error)).ok();
    let facade = options.as_ref().map_or_else(|| syn::parse_quote!(::skyward), |options| options.facade.clone());
    let declaration = syn::parse2::<Declaration>(item).map_err(|error| errors.push(error)).ok();
    let signature =
        declaration.as_ref().and_then(|declaration| declaration.check().map_err(|error| errors.push(error)).ok());
    let mut expanded = TokenStream::new();
    if let (Some(declaration), Some(signature)) = (&declaration, &signature) {
        let made = options.and_then(|options| make(&options, declaration, signature, &mut errors));
        expanded = made.unwrap_or_else(|| expand::without_source(declaration, signature, &facade));
    }
    if let Err(errors) = errors.finish(()) {
        expanded.extend(errors.into_compile_error());
    }
    expanded
}

/// Nothing when there are errors.
fn make(
    options: &Options,
    declaration: &Declaration,
    signature: &Signature,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let facade = &options.facade;
    let (source, passing) = match (&options.python, &declaration.body) {
        (Some(python), Body::None) => from_files(options, python, signature, errors)?,
        (None, Body::Python(body)) => from_body(body, signature, errors)?,
        (None, Body::Rust(block)) => return Some(expand::with_rust(declaration, signature, facade, block)),
        (None, Body::None) => {
            let message = "this declares no source: add `#[compute(python = \"payloads/….py\")]`, \
                           or a body that is a string literal of Python";
            errors.at(signature.name.span(), message);
            return None;
        }
        (Some(python), Body::Python(_) | Body::Rust(_)) => {
            let message = "the source is given twice, by `python` and by a body: \
                           end the declaration with `;`, or remove `python`";
            errors.at(python.span(), message);
            return None;
        }
    };
    Some(expand::with_source(declaration, signature, facade, &source, &passing))
}

type Made = (Source, Vec<crate::check::Passing>);

fn from_files(options: &Options, python: &LitStr, signature: &Signature, errors: &mut Errors) -> Option<Made> {
    let error = |found: &Diagnostic| signature.error(found, python, options.entry.as_ref(), options.main.as_ref());
    let mut report = |found: &[Diagnostic]| found.iter().for_each(|found| errors.push(error(found)));
    // The folder of the manifest of the crate that is compiled: Cargo says it to every compiler.
    let Some(root) = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) else {
        report(&[Diagnostic::new(
            Place::Source,
            "files are found from `CARGO_MANIFEST_DIR`, which is not set: build with Cargo",
        )]);
        return None;
    };
    let main = options.main.as_ref().map(LitStr::value);
    let files = Files::read(&root, &python.value(), main.as_deref()).map_err(|found| report(&[found])).ok()?;
    let broken = files.errors();
    report(&broken);
    let entry = options.entry.as_ref().map_or_else(|| python_name(signature), LitStr::value);
    // The entry of a file that does not parse may only seem to be missing.
    let function = files
        .entry(&entry)
        .map_err(|found| {
            if broken.is_empty() {
                report(&[found])
            }
        })
        .ok()?;
    let misfits = check(signature, &function);
    report(&misfits);
    if !broken.is_empty() || !misfits.is_empty() {
        return None;
    }
    let source = Source {
        entry,
        main: files.main().path.clone(),
        first_line: 1,
        files: files.files.into_iter().map(|file| (file.module.path, Text::File(file.include))).collect(),
    };
    Some((source, passing(signature, &function)))
}

fn from_body(body: &LitStr, signature: &Signature, errors: &mut Errors) -> Option<Made> {
    let mut report = |found: Diagnostic| errors.push(signature.error(&found, body, None, None));
    let name = python_name(signature);
    let names = signature.arguments.iter().map(|argument| argument.name.as_str());
    let mut reserved = false;
    for (name, place) in std::iter::once((name.as_str(), Place::Name))
        .chain(names.clone().enumerate().map(|(index, name)| (name, Place::Argument(index))))
        .filter(|(name, _)| KEYWORDS.contains(name))
    {
        reserved = true;
        report(Diagnostic::new(place, format!("`{name}` is a word of Python's own: choose another name")));
    }
    if reserved {
        return None;
    }
    let names: Vec<&str> = names.collect();
    let inline = Inline::new(&name, &names, &body.value(), literal(body));
    let broken = inline_errors(&inline);
    let is_broken = !broken.is_empty();
    broken.into_iter().for_each(|message| report(Diagnostic::new(Place::Source, message)));
    let Some(Binding::Function(function)) = inline.module.find(&name) else { return None };
    let function = Function::read(&inline.module, function);
    let mut misfits = check(signature, &function);
    if !is_broken {
        misfits.extend(check_ending(&inline, signature, &function));
    }
    let fits = misfits.is_empty();
    misfits.into_iter().for_each(report);
    if is_broken || !fits {
        return None;
    }
    let Inline { module, first_line } = inline;
    let source = Source {
        entry: name,
        main: module.path.clone(),
        first_line,
        files: vec![(module.path, Text::Inline(module.text))],
    };
    Some((source, passing(signature, &function)))
}

fn inline_errors(inline: &Inline) -> Vec<String> {
    let mut errors = inline.module.syntax_errors();
    errors.extend(inline.module.unknown_names());
    errors.extend(metadata::check(&inline.module.text).into_iter().map(|(line, message)| {
        let text = inline.module.text.lines().nth(line - 1).unwrap_or("");
        let number = inline.first_line as usize + line - 1;
        format!("{}:{number}: {message}\n{number} | {text}", inline.module.path)
    }));
    errors
}

/// A body that forgets `return` compiles in Python, and gives None.
fn check_ending(inline: &Inline, signature: &Signature, function: &Function) -> Option<Diagnostic> {
    if function.returns_value || function.first_yield.is_some() {
        return None;
    }
    let message = match (inline.ending(), signature.result) {
        (Ending::UnusedValue, ResultShape::Value | ResultShape::Option) => {
            "the Python body ends with a value that goes nowhere: write `return` before it"
        }
        (Ending::Nothing, ResultShape::Value) => {
            "the Python body returns nothing: write `return …`, or leave the result type out"
        }
        _ => return None,
    };
    Some(Diagnostic::new(Place::Source, message))
}

/// Where the body stands.
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

/// A path of this machine says more than it should, and changes the payload's digest.
fn relative(file: &str) -> String {
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let inside = file.strip_prefix(&root).filter(|_| !root.is_empty()).map(|file| file.trim_start_matches(['/', '\\']));
    let file = inside.unwrap_or(file).replace('\\', "/");
    if file.starts_with('/') { file.rsplit('/').next().unwrap_or_default().to_owned() } else { file }
}

fn python_name(signature: &Signature) -> String {
    signature.name.to_string().trim_start_matches("r#").to_owned()
}

/// What cannot be a name in Python.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];
