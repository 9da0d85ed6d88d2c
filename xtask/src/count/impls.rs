//! The files over which the `impl` blocks of a type are spread.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Item, ItemImpl, Type};

use super::{Crate, Found};
use crate::sources::Source;
use crate::sources::names::Names;

/// A type, and the files with its `impl` blocks.
#[derive(Debug)]
pub(super) struct Spread {
    /// Its path, which begins with the crate.
    pub(super) path: String,
    /// The first inherent block in each file that has one.
    pub(super) inherent: Vec<Found>,
    /// The files in which it implements traits.
    pub(super) traits: BTreeSet<PathBuf>,
}

impl Spread {
    /// Whether it has inherent blocks in so many files that it is listed.
    pub(super) fn is_wide(&self) -> bool {
        self.inherent.len() >= WIDE
    }
}

/// The types of a crate that have inherent `impl` blocks, in the order of their paths.
pub(super) fn spread(one: &Crate) -> Vec<Spread> {
    let mut types: BTreeMap<String, Spread> = BTreeMap::new();
    for source in &one.sources {
        let mut blocks = Blocks { source, names: &one.names, depth: 0, found: Vec::new() };
        blocks.visit_file(&source.syntax);
        for block in blocks.found {
            let path = format!("{}::{}", one.name, block.path);
            let spread = types.entry(path.clone());
            let spread = spread.or_insert_with(|| Spread { path, inherent: Vec::new(), traits: BTreeSet::new() });
            if block.is_of_trait {
                spread.traits.insert(source.path.clone());
            } else if !spread.inherent.iter().any(|found| found.file == source.path) {
                spread.inherent.push(Found::new(&spread.path, "impl", source, block.at));
            }
        }
    }
    types.into_values().filter(|spread| !spread.inherent.is_empty()).collect()
}

/// The `impl` blocks of a file.
struct Blocks<'s> {
    source: &'s Source,
    names: &'s Names,
    depth: usize,
    found: Vec<Block>,
}

struct Block {
    /// The path of the type in the crate.
    path: String,
    is_of_trait: bool,
    at: proc_macro2::Span,
}

impl Blocks<'_> {
    fn add(&mut self, block: &ItemImpl) {
        let Some(path) = path_of(&block.self_ty) else { return };
        let is_of_trait = block.trait_.is_some();
        let place = match self.names.type_of(&self.source.module, self.depth, &path) {
            Some((module, name)) => [module, name],
            // A type that a macro defines: an inherent block is in the crate of its type.
            None if !is_of_trait => [self.source.module.clone(), path.join("::")],
            None => return,
        };
        let path = place.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("::");
        self.found.push(Block { path, is_of_trait, at: block.impl_token.span() });
    }
}

impl<'s> Visit<'s> for Blocks<'_> {
    fn visit_item(&mut self, item: &'s Item) {
        match item {
            Item::Mod(module) => {
                self.depth += 1;
                visit::visit_item_mod(self, module);
                self.depth -= 1;
            }
            Item::Impl(block) => {
                self.add(block);
                visit::visit_item_impl(self, block);
            }
            other => visit::visit_item(self, other),
        }
    }
}

/// The path of the type that a block is for, without its generic arguments.
fn path_of(of: &Type) -> Option<Vec<String>> {
    match of {
        Type::Path(of) => Some(of.path.segments.iter().map(|segment| segment.ident.to_string()).collect()),
        Type::Reference(of) => path_of(&of.elem),
        Type::Paren(of) => path_of(&of.elem),
        Type::Group(of) => path_of(&of.elem),
        _ => None,
    }
}

/// A type with inherent blocks in so many files is listed.
pub(super) const WIDE: usize = 3;

#[cfg(test)]
mod tests {
    use super::super::parsed;
    use super::*;

    fn counted(files: &[(&str, &str)]) -> Vec<(String, usize, usize)> {
        let all = spread(&Crate::of("k", parsed(files)));
        all.into_iter().map(|spread| (spread.path, spread.inherent.len(), spread.traits.len())).collect()
    }

    #[test]
    fn files_with_inherent_blocks_of_a_type_are_counted_apart_from_traits() {
        let files = [
            ("", "mod a; pub use a::A;"),
            ("a", "pub struct A<T>(T); impl<T> A<T> { fn a() {} } impl A<u8> { fn b() {} } impl Clone for A<u8> {}"),
            (
                "a::b",
                "use super::A; impl<'a, T: Clone> A<&'a T> { fn c() {} } #[cfg(test)] mod tests { impl A<u8> {} }",
            ),
            ("c", "impl crate::A<u16> {} impl<T> Drop for &mut crate::A<T> {} impl Clone for Vec<u8> {}"),
            ("d", "use super::a; mod inner { impl super::super::A<u32> {} fn f() { impl From<u8> for a::A<u8> {} } }"),
            ("e", "#[cfg(test)] impl crate::A<u64> {} struct A; impl A {} struct Other;"),
        ];
        assert_eq!(counted(&files), [("k::a::A".to_owned(), 4, 3), ("k::e::A".to_owned(), 1, 0)]);
    }

    #[test]
    fn types_in_three_files_are_wide() {
        let files = [("a", "pub struct A; impl A {}"), ("b", "impl super::a::A {}"), ("c", "impl crate::a::A {}")];
        let is_wide = |count: usize| spread(&Crate::of("k", parsed(&files[..count])))[0].is_wide();
        assert!(is_wide(3) && !is_wide(2));
    }
}
