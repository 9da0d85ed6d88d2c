//! Public items: what stands as `pub`, and not `pub(…)`, in production code.
//!
//! The lint `unreachable_pub` refuses `pub` where nothing outside of the crate reaches the item, so
//! the count is close to what a user of the crate sees. Three things do not count: the variants of
//! a public enum and the methods of a public trait, which have no `pub`, and re-exports.

use quote::ToTokens as _;
use syn::visit::Visit;
use syn::{Field, Ident, ImplItem, Item, Visibility};

use super::Found;
use crate::sources::Source;

/// The public items of a file, each with its kind.
pub(super) fn items(source: &Source) -> Vec<Found> {
    let mut items = Items { source, found: Vec::new() };
    items.visit_file(&source.syntax);
    items.found
}

/// In which column of the table a kind counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Items,
    /// Methods, and constants and types that belong to a type.
    Methods,
    Fields,
}

impl Column {
    pub(super) fn of(found: &Found) -> Self {
        match found.what.as_str() {
            FIELD => Self::Fields,
            METHOD | ASSOCIATED => Self::Methods,
            _ => Self::Items,
        }
    }
}

struct Items<'s> {
    source: &'s Source,
    found: Vec<Found>,
}

impl Items<'_> {
    fn add(&mut self, visibility: &Visibility, kind: &str, name: &Ident) {
        if is_public(visibility) {
            self.found.push(Found::new(name.to_string(), kind, self.source, name.span()));
        }
    }

    /// The public fields of a type, if the type itself is public.
    fn add_fields<'f>(&mut self, visibility: &Visibility, of: &Ident, fields: impl IntoIterator<Item = &'f Field>) {
        let public = fields.into_iter().enumerate().filter(|(_, field)| is_public(visibility) && is_public(&field.vis));
        for (index, field) in public {
            let name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
            let at = field.ident.as_ref().unwrap_or(of).span();
            self.found.push(Found::new(format!("{of}::{name}"), FIELD, self.source, at));
        }
    }

    /// The methods, constants and types of a block. Those of a trait have no visibility.
    fn add_block(&mut self, block: &syn::ItemImpl) {
        let of: String = block.self_ty.to_token_stream().to_string().split_whitespace().collect();
        for item in &block.items {
            let (visibility, name, kind) = match item {
                ImplItem::Fn(item) => (&item.vis, &item.sig.ident, METHOD),
                ImplItem::Const(item) => (&item.vis, &item.ident, ASSOCIATED),
                ImplItem::Type(item) => (&item.vis, &item.ident, ASSOCIATED),
                _ => continue,
            };
            if is_public(visibility) {
                self.found.push(Found::new(format!("{of}::{name}"), kind, self.source, name.span()));
            }
        }
    }
}

impl<'s> Visit<'s> for Items<'_> {
    fn visit_item(&mut self, item: &'s Item) {
        match item {
            Item::Const(item) => self.add(&item.vis, "const", &item.ident),
            Item::Enum(item) => self.add(&item.vis, "enum", &item.ident),
            Item::Fn(item) => self.add(&item.vis, "fn", &item.sig.ident),
            Item::Static(item) => self.add(&item.vis, "static", &item.ident),
            Item::Trait(item) => self.add(&item.vis, "trait", &item.ident),
            Item::Type(item) => self.add(&item.vis, "type", &item.ident),
            Item::Struct(item) => {
                self.add(&item.vis, "struct", &item.ident);
                self.add_fields(&item.vis, &item.ident, &item.fields);
            }
            Item::Union(item) => {
                self.add(&item.vis, "union", &item.ident);
                self.add_fields(&item.vis, &item.ident, &item.fields.named);
            }
            Item::Mod(module) => {
                self.add(&module.vis, "mod", &module.ident);
                syn::visit::visit_item_mod(self, module);
            }
            Item::Impl(block) => self.add_block(block),
            Item::Macro(item) => {
                let is_exported = item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"));
                if let Some(name) = item.ident.as_ref().filter(|_| is_exported) {
                    self.found.push(Found::new(name.to_string(), "macro", self.source, name.span()));
                }
            }
            _ => {}
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

const FIELD: &str = "field";
const METHOD: &str = "method";
const ASSOCIATED: &str = "associated";

#[cfg(test)]
mod tests {
    use super::super::parsed;
    use super::*;

    #[test]
    fn public_items_methods_and_fields_are_found() {
        let text = "
            pub fn a() { pub fn inside() {} }
            pub(crate) fn b() {}
            pub struct C { pub d: u8, pub(crate) e: u8, f: u8 }
            pub struct G(pub u8, u8);
            struct H { pub i: u8 }
            impl<T> C<T> { pub fn j(&self) {} pub(super) fn k() {} pub const L: u8 = 1; fn m() {} }
            impl Clone for C { fn clone(&self) -> Self {} }
            pub mod n { pub enum O { P } pub trait Q { fn r(); } pub type S = u8; mod t { pub static U: u8 = 1; } }
            pub use v::W;
            #[macro_export] macro_rules! x { () => { pub fn y() {} } }
            macro_rules! z { () => {} }
            #[cfg(test)] pub fn tested() {}
            #[cfg(test)] pub mod tests { pub fn tested() {} }
        ";
        let sources = parsed(&[("", text)]);
        let found = items(&sources[0]);
        let named: Vec<String> = found.iter().map(|one| format!("{} {}", one.what, one.name)).collect();
        let expected = [
            "fn a",
            "struct C",
            "field C::d",
            "struct G",
            "field G::0",
            "method C<T>::j",
            "associated C<T>::L",
            "mod n",
            "enum O",
            "trait Q",
            "type S",
            "static U",
            "macro x",
        ];
        assert_eq!(named, expected);
        let count = |column| found.iter().filter(|one| Column::of(one) == column).count();
        assert_eq!([Column::Items, Column::Methods, Column::Fields].map(count), [9, 2, 2]);
    }
}
