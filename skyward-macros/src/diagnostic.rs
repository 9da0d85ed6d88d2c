//! What is wrong with a declaration, and at which part of it.

use proc_macro2::Span;
use strsim::osa_distance;

/// The part of a Rust declaration that a message points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where the Python source is named or written.
    Source,
    /// `entry = "…"`, or else the function's name.
    Entry,
    /// `main = "…"`, or else where the source is named.
    Main,
    /// The function's name.
    Name,
    /// The argument of this index.
    Argument(usize),
    /// Its type.
    ArgumentType(usize),
    /// The result type.
    Output,
}

/// A message about a part of a declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    pub(crate) place: Place,
    pub(crate) message: String,
}

/// Errors so far, all of which the compiler shows.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Diagnostic {
    pub(crate) fn new(place: Place, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }
}

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    pub(crate) fn at(&mut self, span: Span, message: impl std::fmt::Display) {
        self.push(syn::Error::new(span, message));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The value unless something is wrong.
    pub(crate) fn finish<T>(self, value: T) -> syn::Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

/// The name among `names` that was most likely meant by `name`.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|candidate| (osa_distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `a`, `b` and `c`, each in backquotes; at most a dozen.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    if names.len() > MOST_NAMES {
        return format!("{} and {} more", names[..MOST_NAMES].join(", "), names.len() - MOST_NAMES);
    }
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => String::new(),
    }
}

const MOST_NAMES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_a_likely_one() {
        let names = ["epochs", "batch_size", "rate"];
        assert_eq!(nearest("epoch", names), Some("epochs"));
        assert_eq!(nearest("batchsize", names), Some("batch_size"));
        assert_eq!(nearest("EPOCSH", names), Some("epochs"));
        assert_eq!(nearest("momentum", names), None);
        assert_eq!(nearest("x", ["abc", "de"]), None);
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` and `c`");
        let many: Vec<String> = (0..20).map(|index| index.to_string()).collect();
        assert!(list(many.iter().map(String::as_str)).ends_with("`11` and 8 more"));
    }
}
