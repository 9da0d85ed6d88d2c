//! What stands around a declaration in its file.

use std::fs;

use proc_macro2::{Delimiter, LineColumn, Span, TokenStream, TokenTree};

/// Whether the place of a span is directly in an `impl` or a `trait`, where only functions,
/// constants and types of these can stand. False where the file cannot be read: the compiler then
/// reports the mistake in its own words.
pub(crate) fn is_associated(span: Span) -> bool {
    let Some(text) = span.local_file().and_then(|file| fs::read_to_string(file).ok()) else { return false };
    let at = span.start();
    // The tokens of the compiler have no places in a text that it does not compile.
    proc_macro2::fallback::force();
    let found = text.parse::<TokenStream>().is_ok_and(|tokens| within_associated(tokens, at));
    proc_macro2::fallback::unforce();
    found
}

/// Whether the innermost braces around a place are those of an `impl` or a `trait`.
fn within_associated(tokens: TokenStream, at: LineColumn) -> bool {
    let mut is_associated = false;
    let mut next = tokens;
    loop {
        let mut opens = None;
        let mut inner = None;
        let mut in_generics = false;
        for token in next {
            let is_argument = std::mem::take(&mut in_generics);
            match &token {
                TokenTree::Group(group) => {
                    let span = group.span();
                    if span.start() <= at && at < span.end() {
                        inner = Some((group.delimiter(), group.stream()));
                        break;
                    }
                    // Not of `T<{ N }>`.
                    if group.delimiter() == Delimiter::Brace && !is_argument {
                        opens = None;
                    }
                }
                TokenTree::Punct(punct) if punct.as_char() == ';' => opens = None,
                TokenTree::Punct(punct) => in_generics = matches!(punct.as_char(), '<' | ','),
                TokenTree::Ident(ident) if opens.is_none() => {
                    let word = ident.to_string();
                    // `unsafe impl`, `pub(crate) trait`
                    if !["default", "pub", "unsafe", "const", "auto"].contains(&word.as_str()) {
                        opens = Some(word);
                    }
                }
                _ => {}
            }
        }
        let Some((delimiter, stream)) = inner else { return is_associated };
        if delimiter == Delimiter::Brace {
            is_associated = opens.is_some_and(|word| word == "impl" || word == "trait");
        }
        next = stream;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the place of `HERE` is in an `impl` or a `trait`.
    fn is_within(text: &str) -> bool {
        let before = &text[..text.find("HERE").unwrap()];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap().chars().count();
        within_associated(text.parse().unwrap(), LineColumn { line, column })
    }

    #[test]
    fn the_innermost_braces_count() {
        for text in [
            "impl Trainer {\n    #[compute(payload = HERE)]\n    fn f();\n}",
            "struct T {}\nunsafe impl<const N: usize> Train for T<{ N }> where T: Sized { #[compute(HERE)] fn f(); }",
            "pub(crate) trait Train { #[compute(HERE)] fn f(); }",
            "mod a { use b::c; impl T { fn g() {} #[compute(HERE)] fn f(); } }",
            "macro_rules! m { () => { impl T { #[compute(HERE)] fn f(); } } }",
        ] {
            assert!(is_within(text), "{text}");
        }
        for text in [
            "#[compute(HERE)] fn f();",
            "impl T {}\n#[compute(HERE)] fn f();",
            "impl T { fn g() { #[compute(HERE)] fn f(); } }",
            "mod a { #[compute(HERE)] fn f(); }",
            "fn g() -> impl T { #[compute(HERE)] fn f(); }",
        ] {
            assert!(!is_within(text), "{text}");
        }
    }
}
