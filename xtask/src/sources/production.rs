//! Which parts of a file are production code: those that are not compiled only for tests or for the
//! fuzzer.

use std::mem;

use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, Fields, ImplItem, Item, Meta, Stmt, Token, TraitItem};

/// Removes the items, statements, fields, variants and arms that are only for tests or the fuzzer.
pub(super) fn keep(file: &mut syn::File) {
    if is_for_tests(&file.attrs) {
        file.items.clear();
        file.attrs.clear();
    }
    Keep.visit_file_mut(file);
}

struct Keep;

impl VisitMut for Keep {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| !is_for_tests(of_item(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !is_for_tests(of_item(item)));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        block.items.retain(|item| !is_for_tests(of_impl_item(item)));
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_item_trait_mut(&mut self, item: &mut syn::ItemTrait) {
        item.items.retain(|item| !is_for_tests(of_trait_item(item)));
        visit_mut::visit_item_trait_mut(self, item);
    }

    fn visit_item_enum_mut(&mut self, item: &mut syn::ItemEnum) {
        retain(&mut item.variants, |variant| !is_for_tests(&variant.attrs));
        visit_mut::visit_item_enum_mut(self, item);
    }

    fn visit_fields_mut(&mut self, fields: &mut Fields) {
        match fields {
            Fields::Named(fields) => retain(&mut fields.named, |field| !is_for_tests(&field.attrs)),
            Fields::Unnamed(fields) => retain(&mut fields.unnamed, |field| !is_for_tests(&field.attrs)),
            Fields::Unit => {}
        }
        visit_mut::visit_fields_mut(self, fields);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|statement| !is_for_tests(of_statement(statement)));
        visit_mut::visit_block_mut(self, block);
    }

    fn visit_expr_match_mut(&mut self, expression: &mut syn::ExprMatch) {
        expression.arms.retain(|arm| !is_for_tests(&arm.attrs));
        visit_mut::visit_expr_match_mut(self, expression);
    }

    fn visit_expr_struct_mut(&mut self, expression: &mut syn::ExprStruct) {
        retain(&mut expression.fields, |field| !is_for_tests(&field.attrs));
        visit_mut::visit_expr_struct_mut(self, expression);
    }

    fn visit_pat_struct_mut(&mut self, pattern: &mut syn::PatStruct) {
        retain(&mut pattern.fields, |field| !is_for_tests(&field.attrs));
        visit_mut::visit_pat_struct_mut(self, pattern);
    }
}

/// Keeps some elements of a list, each with the comma behind it.
fn retain<T>(list: &mut Punctuated<T, Token![,]>, keep: impl Fn(&T) -> bool) {
    *list = mem::take(list).into_pairs().filter(|pair| keep(pair.value())).collect();
}

/// Whether something is compiled only for tests or for the fuzzer.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("cfg") {
            return attribute.parse_args().is_ok_and(|condition| holds(&condition) == Some(false));
        }
        // `#[test]`, `#[tokio::test]`.
        path.segments.last().is_some_and(|name| name.ident == "test")
    })
}

/// Whether a condition holds in a build without tests and without the fuzzer; `None` if that
/// depends on the features and the target.
fn holds(condition: &Meta) -> Option<bool> {
    match condition {
        Meta::Path(path) if path.is_ident("test") || path.is_ident("fuzzing") => Some(false),
        Meta::Path(_) | Meta::NameValue(_) => None,
        Meta::List(list) => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
            let parts: Vec<Option<bool>> = parts.iter().map(holds).collect();
            let (decides, otherwise) = match list.path.get_ident()?.to_string().as_str() {
                "any" => (true, false),
                "all" => (false, true),
                "not" => return parts.first()?.map(|held| !held),
                _ => return None,
            };
            if parts.contains(&Some(decides)) {
                return Some(decides);
            }
            parts.iter().all(Option::is_some).then_some(otherwise)
        }
    }
}

fn of_item(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn of_impl_item(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

fn of_trait_item(item: &TraitItem) -> &[Attribute] {
    match item {
        TraitItem::Const(item) => &item.attrs,
        TraitItem::Fn(item) => &item.attrs,
        TraitItem::Type(item) => &item.attrs,
        TraitItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

fn of_statement(statement: &Stmt) -> &[Attribute] {
    match statement {
        Stmt::Local(local) => &local.attrs,
        Stmt::Item(item) => of_item(item),
        Stmt::Expr(expression, _) => of_expression(expression),
        Stmt::Macro(called) => &called.attrs,
    }
}

/// The attributes of an expression that is a statement. Where it begins with another expression,
/// that one has them.
fn of_expression(expression: &Expr) -> &[Attribute] {
    match expression {
        Expr::Assign(inner) => of_expression(&inner.left),
        Expr::Binary(inner) => of_expression(&inner.left),
        Expr::Cast(inner) => of_expression(&inner.expr),
        Expr::Async(inner) => &inner.attrs,
        Expr::Await(inner) => &inner.attrs,
        Expr::Block(inner) => &inner.attrs,
        Expr::Break(inner) => &inner.attrs,
        Expr::Call(inner) => &inner.attrs,
        Expr::Continue(inner) => &inner.attrs,
        Expr::Field(inner) => &inner.attrs,
        Expr::ForLoop(inner) => &inner.attrs,
        Expr::If(inner) => &inner.attrs,
        Expr::Index(inner) => &inner.attrs,
        Expr::Loop(inner) => &inner.attrs,
        Expr::Macro(inner) => &inner.attrs,
        Expr::Match(inner) => &inner.attrs,
        Expr::MethodCall(inner) => &inner.attrs,
        Expr::Path(inner) => &inner.attrs,
        Expr::Return(inner) => &inner.attrs,
        Expr::Try(inner) => &inner.attrs,
        Expr::Unary(inner) => &inner.attrs,
        Expr::While(inner) => &inner.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens as _;

    use super::*;

    fn kept(text: &str) -> String {
        let mut file = syn::parse_file(text).unwrap();
        keep(&mut file);
        file.to_token_stream().to_string()
    }

    fn same(text: &str, production: &str) {
        assert_eq!(kept(text), syn::parse_file(production).unwrap().to_token_stream().to_string());
    }

    #[test]
    fn what_is_only_for_tests_or_the_fuzzer_is_removed() {
        same("fn a() {} #[cfg(test)] mod tests { fn b() {} }", "fn a() {}");
        same("mod a { #[cfg(all(test, unix))] mod tests; fn b() {} }", "mod a { fn b() {} }");
        same("#[test] fn a() {} #[tokio::test(start_paused = true)] async fn b() {}", "");
        same("#[cfg(any(test, fuzzing))] pub mod fuzzing; use a::b;", "use a::b;");
        same("impl A { #[cfg(test)] fn a() {} fn b() {} }", "impl A { fn b() {} }");
        same("trait A { #[cfg(test)] fn a(); fn b(); }", "trait A { fn b(); }");
        same("struct A { #[cfg(test)] a: u8, b: u8 }", "struct A { b: u8 }");
        same("enum A { #[cfg(test)] A { a: u8 }, B }", "enum A { B }");
        same("fn a() { #[cfg(test)] b(); #[cfg(test)] x.y += 1; #[cfg(test)] let c = 1; d() }", "fn a() { d() }");
        same("fn a() { match b { #[cfg(test)] B => 1, C => 2 } }", "fn a() { match b { C => 2 } }");
        same("fn a() { A { #[cfg(test)] a: 1, b } }", "fn a() { A { b } }");
        same("fn a() { let A { #[cfg(test)] a, b } = c; }", "fn a() { let A { b } = c; }");
        same("#![cfg(test)] fn a() {}", "");
    }

    #[test]
    fn what_is_compiled_without_tests_too_is_kept() {
        for condition in [
            "not(test)",
            "any(test, unix)",
            "any(test, debug_assertions)",
            "feature = \"test\"",
            "any(test, feature = \"testkit\")",
            "not(all(test, unix))",
        ] {
            let text = format!("#[cfg({condition})] fn a() {{}}");
            same(&text, &text);
        }
        same("#[cfg_attr(test, derive(Debug))] struct A;", "#[cfg_attr(test, derive(Debug))] struct A;");
    }
}
