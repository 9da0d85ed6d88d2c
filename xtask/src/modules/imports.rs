//! What the files of a crate import, as their syntax says. Code for tests alone is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
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
    found: Vec<(usize, Vec<String>)>,
    /// Names that the file hands on, with their paths.
    exports: BTreeMap<String, Vec<String>>,
}

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
            let named = found.found.iter().filter_map(|(depth, path)| {
                let target = target(&paths, &absolute(module, *depth, path)?)?;
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
        names.into_iter().filter(|name| !name.is_empty() && *name != "lib").map(str::to_owned).collect()
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

/// The module of a file: `pool::calls` of `pool/calls/mod.rs`.
fn module_of(file: &Path) -> String {
    let inside = file.with_extension("");
    let parts = inside.iter().filter_map(|part| part.to_str()).filter(|part| *part != "mod");
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

/// The module that a path leads to, through the names that modules hand on.
fn target(files: &BTreeMap<String, Paths>, path: &[String]) -> Option<String> {
    let mut path = path.to_vec();
    for _ in 0..MOST_STEPS {
        let known = (0..=path.len()).rev().find(|length| files.contains_key(&path[..*length].join("::")))?;
        let module = path[..known].join("::");
        let handed = path.get(known).and_then(|name| files[&module].exports.get(name));
        let Some(handed) = handed else { return Some(module) };
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
    fn add_tree(&mut self, tree: &UseTree, prefix: &[String], is_public: bool) {
        let with = |name: &syn::Ident| prefix.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        match tree {
            UseTree::Path(path) => self.add_tree(&path.tree, &with(&path.ident), is_public),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, prefix, is_public)),
            UseTree::Name(name) if name.ident == "self" => self.found.push((self.depth, prefix.to_vec())),
            UseTree::Name(name) => self.add_name(&name.ident, with(&name.ident), is_public),
            UseTree::Rename(renamed) => self.add_name(&renamed.rename, with(&renamed.ident), is_public),
            UseTree::Glob(_) => self.found.push((self.depth, prefix.to_vec())),
        }
    }

    fn add_name(&mut self, name: &syn::Ident, path: Vec<String>, is_public: bool) {
        if is_public && self.depth == 0 {
            self.exports.insert(name.to_string(), path.clone());
        }
        self.found.push((self.depth, path));
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

    fn visit_path(&mut self, path: &'f syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if matches!(parts[0].as_str(), "crate" | "super" | "self") && parts.len() > 1 {
            self.found.push((self.depth, parts));
        }
        visit::visit_path(self, path);
    }
}

/// Whether something is compiled only for tests, or for the fuzzer.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let text = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        text.split(|sign: char| !sign.is_alphanumeric()).any(|word| word == "test")
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
