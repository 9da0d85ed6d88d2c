//! The messages of the protocol and between the parts of a pool: enums whose variants are what one
//! side sends and the other handles.
//!
//! A variant with a field of one of these enums wraps that enum, directly or within another type
//! (`Box<Step>`). Any other variant is a leaf. So messages that move into a wrapped enum do not
//! change the number of leaves.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use syn::visit::{self, Visit};
use syn::{Item, ItemEnum};

use super::{Crate, Found};
use crate::sources::Source;
use crate::sources::names::Names;

/// The enums of a crate that are messages.
pub(super) struct Enums<'e> {
    /// The crate.
    pub(super) of: &'e str,
    /// Paths of enums, and of modules in which every enum is one.
    pub(super) paths: &'e [&'e str],
}

/// An enum of messages.
#[derive(Debug)]
pub(super) struct Message {
    /// Its path in the crate.
    pub(super) path: String,
    pub(super) variants: Vec<Variant>,
}

#[derive(Debug)]
pub(super) struct Variant {
    pub(super) found: Found,
    /// The paths of the enums that it wraps.
    pub(super) wraps: BTreeSet<String>,
}

/// The enums of messages in a crate, in the order of their paths.
///
/// # Errors
///
/// One of the paths names no enum and no module with one.
pub(super) fn read(one: &Crate, enums: &Enums<'_>) -> Result<Vec<Message>> {
    let all: Vec<Defined<'_>> = one.sources.iter().flat_map(Defined::all).collect();
    for path in enums.paths {
        if !all.iter().any(|defined| is_at(&defined.path, path)) {
            bail!(
                "`{path}` of the crate `{}` is neither an enum nor a module with enums in production code; \
                 write its new place, or remove it, in MESSAGES of xtask/src/count/messages.rs",
                enums.of
            );
        }
    }
    let is_listed = |path: &str| enums.paths.iter().any(|listed| is_at(path, listed));
    let messages = all.iter().filter(|defined| is_listed(&defined.path));
    let messages: BTreeMap<&str, &Defined<'_>> = messages.map(|defined| (defined.path.as_str(), defined)).collect();
    let is_message = |path: &str| messages.contains_key(path);
    Ok(messages.values().map(|defined| defined.message(&one.names, is_message)).collect())
}

/// Whether something with this path is what the list names, or in a module that the list names.
fn is_at(path: &str, listed: &str) -> bool {
    path.strip_prefix(listed).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

impl Message {
    /// How many of its variants wrap no other enum.
    pub(super) fn leaves(&self) -> usize {
        self.variants.iter().filter(|variant| variant.wraps.is_empty()).count()
    }

    /// How many leaves it has, if each variant that wraps an enum has all leaves of that enum.
    pub(super) fn expanded(&self, all: &[Self]) -> usize {
        self.expanded_below(all, &mut Vec::new())
    }

    fn expanded_below<'m>(&'m self, all: &'m [Self], above: &mut Vec<&'m str>) -> usize {
        // An enum that holds itself would have no end.
        if above.contains(&self.path.as_str()) {
            return 1;
        }
        above.push(&self.path);
        let leaves = |variant: &'m Variant, above: &mut Vec<&'m str>| {
            let wrapped = all.iter().filter(|other| variant.wraps.contains(&other.path));
            wrapped.map(|other| other.expanded_below(all, above)).reduce(|sum, more| sum + more).unwrap_or(1)
        };
        let sum = self.variants.iter().map(|variant| leaves(variant, above)).sum();
        above.pop();
        sum
    }

    /// Whether a variant of another enum wraps it.
    pub(super) fn is_wrapped(&self, all: &[Self]) -> bool {
        let mut others = all.iter().filter(|other| other.path != self.path);
        others.any(|other| other.variants.iter().any(|variant| variant.wraps.contains(&self.path)))
    }
}

/// An enum that a file defines.
struct Defined<'s> {
    path: String,
    item: &'s ItemEnum,
    source: &'s Source,
    depth: usize,
}

impl<'s> Defined<'s> {
    fn all(source: &'s Source) -> Vec<Self> {
        let mut visitor = DefinedEnums { source, depth: 0, found: Vec::new() };
        visitor.visit_file(&source.syntax);
        visitor.found
    }

    fn message(&self, names: &Names, is_message: impl Fn(&str) -> bool) -> Message {
        let variants = self.item.variants.iter().map(|variant| {
            let mut paths = Paths::default();
            paths.visit_fields(&variant.fields);
            let types = paths.0.iter().filter_map(|path| names.type_of(&self.source.module, self.depth, path));
            let wraps = types.map(|(module, name)| format!("{module}::{name}")).filter(|path| is_message(path));
            let wraps: BTreeSet<String> = wraps.collect();
            let what = match wraps.is_empty() {
                true => "leaf".to_owned(),
                false => format!("wraps {}", wraps.iter().map(String::as_str).collect::<Vec<_>>().join(", ")),
            };
            let name = format!("{}::{}", self.path, variant.ident);
            Variant { found: Found::new(name, what, self.source, variant.ident.span()), wraps }
        });
        Message { path: self.path.clone(), variants: variants.collect() }
    }
}

struct DefinedEnums<'s> {
    source: &'s Source,
    depth: usize,
    found: Vec<Defined<'s>>,
}

impl<'s> Visit<'s> for DefinedEnums<'s> {
    fn visit_item(&mut self, item: &'s Item) {
        match item {
            Item::Mod(module) => {
                self.depth += 1;
                visit::visit_item_mod(self, module);
                self.depth -= 1;
            }
            Item::Enum(item) => {
                let path = format!("{}::{}", self.source.module, item.ident);
                self.found.push(Defined { path, item, source: self.source, depth: self.depth });
            }
            other => visit::visit_item(self, other),
        }
    }
}

/// The paths of the types in a field, also of those within other types.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl<'f> Visit<'f> for Paths {
    fn visit_type_path(&mut self, of: &'f syn::TypePath) {
        self.0.push(of.path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_type_path(self, of);
    }
}

/// The messages of the project: the enums that cross a connection, a channel, or the border between
/// a part without I/O and its owner. They are listed because no syntax marks a message.
pub(super) const MESSAGES: Enums<'static> = Enums {
    of: "skyward_core",
    paths: &[
        // Between client and node.
        "worker::message",
        "worker::calls",
        // From the bootstrap of a machine to the pool.
        "bootstrap::run::StepEvent",
        // From the scheduler to its owner, and from the fleet to the driver.
        "scheduler::action",
        "pool::fleet::directive",
        // To the driver, from other parts.
        "pool::command",
        // From the state behind the lock to what is outside of it, and to the readers of events.
        "pool::tasks::effect",
        "event::PoolEvent",
    ],
};

#[cfg(test)]
mod tests {
    use super::super::parsed;
    use super::*;

    fn counted(files: &[(&str, &str)], paths: &[&str]) -> Result<Vec<(String, usize, usize, bool)>> {
        let all = read(&Crate::of("a", parsed(files)), &Enums { of: "a", paths })?;
        let count = |one: &Message| (one.path.clone(), one.leaves(), one.expanded(&all), one.is_wrapped(&all));
        Ok(all.iter().map(count).collect())
    }

    #[test]
    fn enums_that_others_wrap_are_expanded() {
        let files = [
            ("", "pub mod command; pub mod step;"),
            (
                "command",
                "use crate::step; pub enum Command { A, B { n: step::Taken }, #[cfg(test)] Gone, Step(Box<step::Step>), \
                 Two(Vec<step::Job>, u8) }",
            ),
            (
                "step",
                "pub enum Step { Begin(Job), End(Job), Hold, Other(Kind) } pub enum Job { X, Y, Z } pub struct Taken;",
            ),
            ("kind", "pub enum Kind { K }"),
        ];
        let expected = [
            ("command::Command".to_owned(), 2, 2 + 8 + 3, false),
            ("step::Job".to_owned(), 3, 3, true),
            ("step::Step".to_owned(), 2, 3 + 3 + 2, true),
        ];
        assert_eq!(counted(&files, &["command::Command", "step"]).unwrap(), expected);
    }

    #[test]
    fn enums_of_the_same_name_are_told_apart() {
        let files = [("a", "pub enum End { A, B(super::b::End) }"), ("b", "pub enum End { C, D, E(Box<End>) }")];
        let expected = [("a::End".to_owned(), 1, 1 + 3, false), ("b::End".to_owned(), 2, 3, true)];
        assert_eq!(counted(&files, &["a", "b::End"]).unwrap(), expected);
    }

    #[test]
    fn a_listed_enum_that_does_not_exist_is_an_error() {
        let files = [("a", "pub enum A { B } #[cfg(test)] enum C { D }"), ("ab", "pub enum E { F }")];
        for path in ["a::B", "b", "a::C"] {
            let error = counted(&files, &["a::A", path]).unwrap_err().to_string();
            assert!(error.contains(&format!("`{path}`")) && error.contains("MESSAGES"), "{error}");
        }
        assert_eq!(counted(&files, &["a"]).unwrap().len(), 1);
    }
}
