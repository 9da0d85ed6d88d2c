//! The paths, names and types in a file, as its syntax says.

use std::collections::{BTreeMap, BTreeSet};

use syn::buffer::{Cursor, TokenBuffer};
use syn::visit::{self, Visit};
use syn::{Item, UseTree};

/// The paths that a file names, each with how many modules the place lies below the file's own.
#[derive(Debug, Default)]
pub(super) struct Paths {
    depth: usize,
    pub(super) found: Vec<Named>,
    /// Names that the file imports, with the paths that they stand for.
    names: BTreeMap<String, Vec<Named>>,
    /// Modules of which the file imports all names.
    globs: Vec<Named>,
    /// Names that the file hands on, each with whether all get it or only the parts of the file,
    /// and with its path.
    pub(super) exports: BTreeMap<String, (bool, Vec<String>)>,
    /// Types and traits that the file defines.
    pub(super) types: BTreeSet<String>,
    /// Whether the place is within a function.
    in_block: bool,
}

/// A path as it is written, and how many modules its place lies below the file's own.
pub(super) type Named = (usize, Vec<String>);

impl Paths {
    pub(super) fn of(file: &syn::File) -> Self {
        let mut paths = Self::default();
        paths.visit_file(file);
        paths
    }

    /// What a path may mean that begins with an imported name, as paths that begin with `crate`,
    /// `self` or `super`.
    pub(super) fn meanings(&self, depth: usize, path: &[String], steps: usize) -> Vec<Named> {
        if is_rooted(path) {
            return vec![(depth, path.to_vec())];
        }
        let (Some(name), Some(steps)) = (path.first(), steps.checked_sub(1)) else { return Vec::new() };
        let named = self.names.get(name).into_iter().flatten();
        let named = named.flat_map(|(depth, of)| self.meanings(*depth, &[of.as_slice(), &path[1..]].concat(), steps));
        let globs = self.globs.iter().map(|(depth, of)| (*depth, [of.as_slice(), path].concat()));
        named.chain(globs.filter(|(_, path)| is_rooted(path))).collect()
    }

    /// Whether the file imports this name.
    pub(super) fn imports(&self, name: &str) -> bool {
        self.names.contains_key(name)
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
        let defined = match item {
            Item::Struct(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            _ => None,
        };
        self.types.extend(defined.map(ToString::to_string));
        match item {
            Item::Mod(module) => {
                self.depth += 1;
                visit::visit_item_mod(self, module);
                self.depth -= 1;
            }
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

/// Whether a path begins with `crate`, `self` or `super`.
pub(super) fn is_rooted(path: &[String]) -> bool {
    path.first().is_some_and(|name| matches!(name.as_str(), "crate" | "self" | "super"))
}
