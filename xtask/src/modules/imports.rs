//! What the files of a crate import, as their syntax says.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::Source;
use crate::sources::names::Names;

/// Which file of a crate imports which; files are named by their modules, and the crate's root by
/// nothing.
#[derive(Debug, Default)]
pub(super) struct Imports {
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Imports {
    pub(super) fn of(sources: &[Source]) -> Self {
        let names = Names::of(sources);
        Self { edges: names.modules().map(|module| (module.to_owned(), names.imported(module))).collect() }
    }

    /// How many files there are.
    pub(super) fn files(&self) -> usize {
        self.edges.len()
    }

    /// From the importing module to the imported one.
    pub(super) fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (from.as_str(), to.as_str())))
    }

    /// The modules right below one.
    pub(super) fn children(&self, module: &str) -> Vec<String> {
        let prefix = below(module);
        let below = self.edges.keys().filter_map(|other| other.strip_prefix(&prefix));
        let names: BTreeSet<&str> = below.filter_map(|rest| rest.split("::").next()).collect();
        names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Files below a module that import each other in a circle; the empty name is the root, which
    /// counts too.
    pub(super) fn circles<'i>(&'i self, module: &str) -> Vec<Vec<&'i str>> {
        let prefix = below(module);
        let reached = |from: &str| {
            let mut seen: BTreeSet<&'i str> = BTreeSet::new();
            let mut left: Vec<&str> = self.edges[from].iter().map(String::as_str).collect();
            while let Some(next) = left.pop() {
                if next.starts_with(&prefix) && seen.insert(next) {
                    left.extend(self.edges[next].iter().map(String::as_str));
                }
            }
            seen
        };
        let files: Vec<&str> = self.edges.keys().map(String::as_str).filter(|file| file.starts_with(&prefix)).collect();
        let reach: BTreeMap<&str, BTreeSet<&str>> = files.iter().map(|file| (*file, reached(file))).collect();
        let circle = |file: &&str| {
            let others = files.iter().copied();
            others.filter(|other| reach[file].contains(other) && reach[other].contains(file)).collect()
        };
        let circles: BTreeSet<Vec<&str>> = files.iter().map(circle).collect();
        circles.into_iter().filter(|circle| !circle.is_empty()).collect()
    }
}

impl FromIterator<(String, BTreeSet<String>)> for Imports {
    /// Each file, with those that it imports.
    fn from_iter<I: IntoIterator<Item = (String, BTreeSet<String>)>>(files: I) -> Self {
        Self { edges: files.into_iter().collect() }
    }
}

/// How the names of the modules below one begin.
fn below(module: &str) -> String {
    if module.is_empty() { String::new() } else { format!("{module}::") }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn imports(files: &[(&str, &str)]) -> Imports {
        let parse = |(module, text): &(&str, &str)| Source::parse(module, Path::new("x.rs"), text).unwrap();
        Imports::of(&files.iter().map(parse).collect::<Vec<_>>())
    }

    fn edges(files: &[(&str, &str)]) -> Vec<(String, String)> {
        imports(files).edges().map(|(from, to)| (from.to_owned(), to.to_owned())).collect()
    }

    #[test]
    fn imports_are_found_in_uses_and_paths_and_followed_through_names_handed_on() {
        let files = [
            ("a", "pub use b::Thing; mod b;"),
            ("a::b", "pub struct Thing;"),
            ("c", "use crate::a::{self, Thing}; fn f() { let _ = super::d::g(); }"),
            ("d", "mod inner { use super::super::c::f; use super::h; }"),
        ];
        let expected = [("c", "a"), ("c", "a::b"), ("c", "d"), ("d", "c")];
        assert_eq!(edges(&files), expected.map(|(from, to)| (from.to_owned(), to.to_owned())));
    }

    #[test]
    fn paths_are_found_behind_imported_modules_and_in_macros() {
        for text in [
            "use crate::p; fn f() { p::b::g(); }",
            "use crate::p::{self}; fn f() { p::b::g(); }",
            "use crate::p as q; use q::b; fn f() { b::g(); }",
            "use super::*; fn f() { b::g(); }",
            "fn f() { use crate::p::b as c; c::g(); }",
            "fn f() { assert!(x == crate::p::b::g()); }",
            "macro_rules! m { ($x:expr) => { $crate::p::b::g($x) } }",
            "use crate::Thing;",
            "use super::Other;",
        ] {
            let files =
                [("", "pub use p::b::Thing;"), ("p", "use b::Other;"), ("p::a", text), ("p::b", "pub struct Thing;")];
            assert!(edges(&files).contains(&("p::a".to_owned(), "p::b".to_owned())), "{text}");
        }
    }

    #[test]
    fn code_that_is_compiled_without_tests_too_counts() {
        for condition in ["not(test)", "any(test, unix)", "feature = \"test\"", "any(test, feature = \"testkit\")"] {
            let text = format!("#[cfg({condition})] use crate::b::f;");
            assert_eq!(edges(&[("a", &text), ("b", "")]).len(), 1, "{condition}");
        }
    }

    #[test]
    fn code_for_tests_imports_nothing() {
        let files = [
            ("a", "#[cfg(test)] mod tests { use crate::b::f; } #[cfg(all(test, unix))] use crate::b::g;"),
            ("b", "pub fn f() {} pub fn g() {}"),
        ];
        assert_eq!(edges(&files), []);
    }

    #[test]
    fn a_circle_is_found_and_a_chain_is_none() {
        let files = [
            ("p::a", "use super::b::f;"),
            ("p::b", "use super::c::f;"),
            ("p::c", "use super::a::f;"),
            ("p::d", "use super::a::f;"),
        ];
        assert_eq!(imports(&files).circles("p"), [["p::a", "p::b", "p::c"]]);
        assert_eq!(imports(&files).circles("").len(), 1);
        assert!(imports(&files).circles("p::a").is_empty());
    }
}
