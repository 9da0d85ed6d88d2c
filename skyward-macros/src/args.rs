//! What stands in the parentheses of `#[compute(…)]`.

use proc_macro2::TokenStream;
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Ident, LitStr, Path, Token};

use crate::diagnostic::{Errors, list, nearest};

/// The options of the attribute.
pub(crate) struct Options {
    /// A Python file, or a folder of them, relative to the crate's manifest.
    pub(crate) python: Option<LitStr>,
    /// The Python function.
    pub(crate) entry: Option<LitStr>,
    /// The file of the folder that has the entry.
    pub(crate) main: Option<LitStr>,
    /// Where the facade is.
    pub(crate) facade: Path,
}

impl Options {
    /// Reads all options; an error has whatever is wrong with any of them.
    pub(crate) fn parse(tokens: TokenStream) -> syn::Result<Self> {
        Self::read.parse2(tokens)
    }

    fn read(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut options = Self { python: None, entry: None, main: None, facade: syn::parse_quote!(::skyward) };
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
            for (key, value) in [("entry", &options.entry), ("main", &options.main)] {
                if let Some(value) = value {
                    let message = format!("`{key}` is for Python files: give one with `python = \"payloads/….py\"`");
                    errors.at(value.span(), message);
                }
            }
        }
        errors.finish(options)
    }
}

/// The text behind `key`; a value of another kind is an error and nothing.
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

const KEYS: [&str; 4] = ["python", "entry", "main", "crate"];

#[cfg(test)]
mod tests {
    use super::*;
    use quote::{ToTokens as _, quote};

    fn messages(tokens: TokenStream) -> Vec<String> {
        Options::parse(tokens).map_or_else(
            |error| error.into_iter().map(|error| error.to_string()).collect(),
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
