//! The options in the parentheses of `#[compute(…)]`.

use proc_macro2::TokenStream;
use skyward_python::names::{list, nearest};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Ident, LitStr, Path, Token};

use crate::diagnostic::Errors;

/// The options of the attribute.
pub(crate) struct Options {
    /// A Python file, or a folder of them, relative to the crate's manifest.
    pub(crate) python: Option<LitStr>,
    /// The Python function.
    pub(crate) entry: Option<LitStr>,
    /// The file with the entry, in the folder.
    pub(crate) main: Option<LitStr>,
    /// Whether the Rust signature is not compared with the Python function, and the names in a body
    /// are not checked.
    pub(crate) unchecked: Option<Ident>,
    /// The type that stands for the payload.
    pub(crate) payload: Option<Ident>,
    /// The path of the facade.
    pub(crate) facade: Path,
}

impl Options {
    /// Reads all options. The error contains the mistakes in all of them.
    pub(crate) fn parse(tokens: TokenStream) -> syn::Result<Self> {
        Self::read.parse2(tokens)
    }

    fn read(input: ParseStream<'_>) -> syn::Result<Self> {
        let facade = syn::parse_quote!(::skyward);
        let mut options = Self { python: None, entry: None, main: None, unchecked: None, payload: None, facade };
        let mut errors = Errors::default();
        let mut seen: Vec<String> = Vec::new();
        while !input.is_empty() {
            if let Ok(path) = input.fork().parse::<LitStr>() {
                let message = format!("this value has no name: write `python = {:?}`", path.value());
                return Err(syn::Error::new(path.span(), message));
            }
            let key = Ident::parse_any(input)?;
            let name = key.to_string();
            if seen.contains(&name) {
                errors.at(key.span(), format!("`{name}` is given twice: keep one of them"));
            }
            seen.push(name.clone());
            match name.as_str() {
                "python" => options.python = text(input, &name, &mut errors)?,
                "entry" => options.entry = text(input, &name, &mut errors)?,
                "main" => options.main = text(input, &name, &mut errors)?,
                "unchecked" => {
                    if input.peek(Token![=]) {
                        errors.at(input.span(), "`unchecked` takes no value: write it alone");
                        skip_value(input)?;
                    }
                    options.unchecked = Some(key);
                }
                "payload" => options.payload = type_name(input, &mut errors)?,
                "crate" => {
                    input.parse::<Token![=]>()?;
                    options.facade = input.call(Path::parse_mod_style)?;
                }
                _ => {
                    let meant = nearest(&name, KEYS).map_or_else(String::new, |key| format!("; did you mean `{key}`?"));
                    errors.at(
                        key.span(),
                        format!("`#[compute]` has no option `{name}`{meant}\nthe options are {}", list(KEYS)),
                    );
                    skip_value(input)?;
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if options.python.is_none() && errors.is_empty() {
            for (key, span) in
                [("entry", options.entry.as_ref().map(LitStr::span)), ("main", options.main.as_ref().map(LitStr::span))]
            {
                if let Some(span) = span {
                    let message = format!("`{key}` is for Python files: give one with `python = \"payloads/….py\"`");
                    errors.at(span, message);
                }
            }
        }
        errors.finish(options)
    }
}

/// The text after `key`; none, and an error in `errors`, for a value of another kind.
fn text(input: ParseStream<'_>, key: &str, errors: &mut Errors) -> syn::Result<Option<LitStr>> {
    if !input.peek(Token![=]) {
        return Err(input.error(format!("`{key}` needs a value: write `{key} = \"…\"`")));
    }
    input.parse::<Token![=]>()?;
    if input.peek(LitStr) {
        return input.parse().map(Some);
    }
    let span = input.span();
    skip_tokens(input)?;
    errors.at(span, format!("`{key}` is a text: write `{key} = \"…\"`"));
    Ok(None)
}

/// The name behind `payload`.
fn type_name(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Option<Ident>> {
    if !input.peek(Token![=]) {
        return Err(input.error("`payload` takes the name of a new type: write `payload = Train`"));
    }
    input.parse::<Token![=]>()?;
    if let Ok(name) = input.fork().parse::<Ident>() {
        input.parse::<Ident>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Ok(Some(name));
        }
    }
    errors.at(input.span(), "`payload` takes the name of a new type: write `payload = Train`");
    skip_tokens(input)?;
    Ok(None)
}

fn skip_value(input: ParseStream<'_>) -> syn::Result<()> {
    if input.peek(Token![=]) {
        input.parse::<Token![=]>()?;
    }
    skip_tokens(input)
}

fn skip_tokens(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<proc_macro2::TokenTree>()?;
    }
    Ok(())
}

const KEYS: [&str; 6] = ["python", "entry", "main", "unchecked", "payload", "crate"];

#[cfg(test)]
mod tests {
    use super::*;
    use quote::{ToTokens as _, quote};

    fn messages(tokens: TokenStream) -> Vec<String> {
        Options::parse(tokens).map_or_else(
            |error| error.into_iter().map(|error| format!("{error:#}")).collect(),
            |_| panic!("it was accepted"),
        )
    }

    #[test]
    fn options_are_read() {
        let options =
            Options::parse(quote!(python = "a/b.py", entry = "train", main = "m.py", crate = crate::sky,)).unwrap();
        assert_eq!(options.python.unwrap().value(), "a/b.py");
        assert_eq!(options.entry.unwrap().value(), "train");
        assert_eq!(options.main.unwrap().value(), "m.py");
        assert_eq!(options.facade.to_token_stream().to_string(), "crate :: sky");
        assert_eq!(Options::parse(TokenStream::new()).unwrap().facade.to_token_stream().to_string(), ":: skyward");
    }

    #[test]
    fn a_type_and_a_way_out_of_the_checks_are_read() {
        let options = Options::parse(quote!(unchecked, python = "a.py", payload = Train)).unwrap();
        assert_eq!(options.payload.unwrap().to_string(), "Train");
        assert!(options.unchecked.is_some());
        assert!(Options::parse(quote!(unchecked)).unwrap().unchecked.is_some(), "of an inline body");
        for (tokens, words) in [
            (quote!(python = "a.py", unchecked = true), "write it alone"),
            (quote!(payload = "Train"), "write `payload = Train`"),
            (quote!(payload = crate::Train), "write `payload = Train`"),
            (quote!(payload), "write `payload = Train`"),
        ] {
            let messages = messages(tokens);
            assert!(messages.len() == 1 && messages[0].contains(words), "{messages:#?}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_said() {
        let messages = messages(quote!(pythn = "a.py", entry = 5, main = "x", main = "y"));
        assert_eq!(messages.len(), 3, "{messages:#?}");
        assert!(messages[0].contains("did you mean `python`?") && messages[0].contains("`entry`"), "{}", messages[0]);
        assert_eq!(messages[1], "`entry` is a text: write `entry = \"…\"`");
        assert!(messages[2].contains("`main` is given twice"));
    }

    #[test]
    fn an_entry_without_a_file_is_refused() {
        assert!(messages(quote!(entry = "train"))[0].contains("`entry` is for Python files"));
    }

    #[test]
    fn a_bare_path_is_told_its_name() {
        assert_eq!(messages(quote!("a.py")), ["this value has no name: write `python = \"a.py\"`"]);
    }
}
