//! What the files of a crate import, as their syntax says. Code for tests alone is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use syn::buffer::{Cursor, TokenBuffer};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

use crate::files;

/// Which file of a crate imports which; files are named by their modules, and the crate's root by
/// nothing.
#[derive(Debug, Default)]
pub(super) struct Imports {
    edges: BTreeMap<String, BTreeSet<String>>,
}

/// The paths that a file names, each with how many modules the place lies below the file's own.
#[derive(Default)]
struct Paths {
    depth: usize,
    found: Vec<Named>,
    /// Names that the file imports, with the paths that they stand for.
    names: BTreeMap<String, Vec<Named>>,
    /// Modules of which the file imports all names.
    globs: Vec<Named>,
    /// Names that the file hands on, each with whether all get it or only the parts of the file,
    /// and with its path.
    exports: BTreeMap<String, (bool, Vec<String>)>,
    /// Whether the place is within a function.
    in_block: bool,
}

/// A path as it is written, and how many modules its place lies below the file's own.
type Named = (usize, Vec<String>);

impl Imports {
    /// Those of the files below a folder, but for those that hold tests or are for the fuzzer.
    pub(super) fn read(source: &Path) -> Result<Self> {
        let code = files::below(source)?.into_iter().filter(|path| {
            let for_tests = path.iter().any(|part| FOR_TESTS.iter().any(|name| part == *name));
            files::has_extension(path, "rs") && !for_tests
        });
        let code = code.map(|path| Ok((module_of(&path), fs::read_to_string(source.join(path))?)));
        Self::of(code.collect::<Result<Vec<_>>>()?)
    }

    /// Those of files, given by module and text.
    pub(super) fn of(files: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let mut paths: BTreeMap<String, Paths> = BTreeMap::new();
        for (module, text) in files {
            let file = syn::parse_file(&text).with_context(|| format!("cannot parse the module `{module}`"))?;
            let mut found = Paths::default();
            found.visit_file(&file);
            paths.insert(module, found);
        }
        let mut imports = Self::default();
        for (module, found) in &paths {
            let meant = found.found.iter().flat_map(|(depth, path)| found.meanings(*depth, path, MOST_STEPS));
            let named = meant.filter_map(|(depth, path)| {
                let target = target(&paths, module, &absolute(module, depth, &path)?)?;
                // A module and its parts are one: parts import the module that they are parts of.
                let is_part = target == *module || target.starts_with(&format!("{module}::"));
                (!is_part && !target.is_empty()).then_some(target)
            });
            imports.edges.insert(module.clone(), named.collect());
        }
        Ok(imports)
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
        let prefix = if module.is_empty() { String::new() } else { format!("{module}::") };
        let below = self.edges.keys().filter_map(|other| other.strip_prefix(&prefix));
        let names: BTreeSet<&str> = below.filter_map(|rest| rest.split("::").next()).collect();
        names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Files below a module that import each other in a circle.
    pub(super) fn circles<'i>(&'i self, module: &str) -> Vec<Vec<&'i str>> {
        let prefix = format!("{module}::");
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

/// The module of a file: `pool::calls` of `pool/calls/mod.rs`, and nothing of `lib.rs`.
fn module_of(file: &Path) -> String {
    let inside = file.with_extension("");
    let parts = inside.iter().filter_map(|part| part.to_str()).filter(|part| !matches!(*part, "mod" | "lib"));
    parts.collect::<Vec<_>>().join("::")
}

/// A path from the crate's root; none, where it leads out of the crate.
fn absolute(module: &str, depth: usize, path: &[String]) -> Option<Vec<String>> {
    let mut base: Vec<String> = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let rest = match path.first()?.as_str() {
        "crate" => return Some(path[1..].to_vec()),
        "self" => &path[1..],
        "super" => {
            let supers = path.iter().take_while(|part| *part == "super").count();
            // Those that lead out of modules within the file stay in the file.
            let out = supers.saturating_sub(depth);
            base.truncate(base.len().checked_sub(out)?);
            &path[supers..]
        }
        _ => return None,
    };
    base.extend_from_slice(rest);
    Some(base)
}

/// The module that a path in another module leads to, through the names that modules hand on.
fn target(files: &BTreeMap<String, Paths>, from: &str, path: &[String]) -> Option<String> {
    let mut path = path.to_vec();
    for _ in 0..MOST_STEPS {
        let known = (0..=path.len()).rev().find(|length| files.contains_key(&path[..*length].join("::")))?;
        let module = path[..known].join("::");
        let handed = path.get(known).and_then(|name| files[&module].exports.get(name));
        let is_part = module.is_empty() || from.starts_with(&format!("{module}::"));
        let handed = handed.filter(|(to_all, _)| *to_all || is_part);
        let Some((_, handed)) = handed else { return Some(module) };
        let relative = match handed.first().map(String::as_str) {
            Some("crate" | "self" | "super") => absolute(&module, 0, handed)?,
            // `pub use part::Name`: a module below this one.
            _ => path[..known].iter().chain(handed).cloned().collect(),
        };
        if relative == path {
            return Some(module);
        }
        path = relative;
    }
    None
}

impl Paths {
    /// What a path may mean that begins with an imported name, as paths that begin with `crate`,
    /// `self` or `super`.
    fn meanings(&self, depth: usize, path: &[String], steps: usize) -> Vec<Named> {
        if is_rooted(path) {
            return vec![(depth, path.to_vec())];
        }
        let (Some(name), Some(steps)) = (path.first(), steps.checked_sub(1)) else { return Vec::new() };
        let named = self.names.get(name).into_iter().flatten();
        let named = named.flat_map(|(depth, of)| self.meanings(*depth, &[of.as_slice(), &path[1..]].concat(), steps));
        let globs = self.globs.iter().map(|(depth, of)| (*depth, [of.as_slice(), path].concat()));
        named.chain(globs.filter(|(_, path)| is_rooted(path))).collect()
    }

    fn add_tree(&mut self, tree: &UseTree, prefix: &[String], is_public: bool) {
        let with = |name: &syn::Ident| {
            let name = Some(name.to_string()).filter(|name| prefix.is_empty() || name != "self");
            prefix.iter().cloned().chain(name).collect::<Vec<_>>()
        };
        match tree {
            UseTree::Path(path) => self.add_tree(&path.tree, &with(&path.ident), is_public),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, prefix, is_public)),
            UseTree::Name(name) => self.add_name(None, with(&name.ident), is_public),
            UseTree::Rename(renamed) => self.add_name(Some(&renamed.rename), with(&renamed.ident), is_public),
            UseTree::Glob(_) => {
                self.globs.push((self.depth, prefix.to_vec()));
                self.found.push((self.depth, prefix.to_vec()));
            }
        }
    }

    /// Adds an imported name: the last one of the path, unless it is renamed.
    fn add_name(&mut self, renamed: Option<&syn::Ident>, path: Vec<String>, is_public: bool) {
        let Some(name) = renamed.map(ToString::to_string).or_else(|| path.last().cloned()) else { return };
        if self.depth == 0 && !self.in_block {
            self.exports.insert(name.clone(), (is_public, path.clone()));
        }
        self.names.entry(name).or_default().push((self.depth, path.clone()));
        self.found.push((self.depth, path));
    }

    fn add_path(&mut self, path: Vec<String>) {
        if path.len() > 1 {
            self.found.push((self.depth, path));
        }
    }

    /// Adds the paths in the input of a macro, of which only the macro knows the syntax.
    fn add_tokens(&mut self, mut rest: Cursor<'_>) {
        let (mut path, mut colons) = (Vec::new(), 0);
        while !rest.eof() {
            rest = if let Some((name, rest)) = rest.ident() {
                if colons != 2 {
                    self.add_path(std::mem::take(&mut path));
                }
                path.push(name.to_string());
                colons = 0;
                rest
            } else if let Some((sign, rest)) = rest.punct() {
                colons = if sign.as_char() == ':' { colons + 1 } else { 0 };
                rest
            } else if let Some((inside, _, _, rest)) = rest.any_group() {
                self.add_tokens(inside);
                colons = 0;
                rest
            } else if let Some((_, rest)) = rest.token_tree() {
                colons = 0;
                rest
            } else {
                break;
            };
        }
        self.add_path(path);
    }
}

impl<'f> Visit<'f> for Paths {
    fn visit_item(&mut self, item: &'f Item) {
        match item {
            Item::Mod(module) if is_for_tests(&module.attrs) => {}
            Item::Mod(module) => {
                self.depth += 1;
                visit::visit_item_mod(self, module);
                self.depth -= 1;
            }
            Item::Use(used) if is_for_tests(&used.attrs) => {}
            Item::Use(used) => {
                self.add_tree(&used.tree, &[], !matches!(used.vis, syn::Visibility::Inherited));
            }
            other => visit::visit_item(self, other),
        }
    }

    fn visit_block(&mut self, block: &'f syn::Block) {
        let outside = std::mem::replace(&mut self.in_block, true);
        visit::visit_block(self, block);
        self.in_block = outside;
    }

    fn visit_path(&mut self, path: &'f syn::Path) {
        self.add_path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'f syn::Macro) {
        self.add_tokens(TokenBuffer::new2(called.tokens.clone()).begin());
        visit::visit_macro(self, called);
    }
}

fn is_rooted(path: &[String]) -> bool {
    path.first().is_some_and(|name| matches!(name.as_str(), "crate" | "self" | "super"))
}

/// Whether something is compiled only for tests, or for the fuzzer.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let text = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        let words: Vec<&str> =
            text.split(|sign: char| " (),=".contains(sign)).filter(|word| !word.is_empty()).collect();
        let is_alone = words.iter().all(|word| matches!(*word, "any" | "test" | "fuzzing"));
        words.contains(&"test") && !words.contains(&"not") && (is_alone || !words.contains(&"any"))
    })
}

/// Files and folders of tests, or for the fuzzer.
const FOR_TESTS: [&str; 3] = ["tests", "tests.rs", "fuzzing.rs"];
/// How often a name may be handed on.
const MOST_STEPS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let imports = Imports::of(files.iter().map(|(module, text)| ((*module).to_owned(), (*text).to_owned())));
        imports.unwrap().edges().map(|(from, to)| (from.to_owned(), to.to_owned())).collect()
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
        let imports = Imports::of(files.map(|(module, text)| (module.to_owned(), text.to_owned()))).unwrap();
        assert_eq!(imports.circles("p"), [["p::a", "p::b", "p::c"]]);
    }
}
