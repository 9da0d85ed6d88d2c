//! What the names in the files of a crate mean: which module a path leads to, and where a type is
//! defined.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;
use super::paths::{Paths, is_rooted};

/// The names in the files of a crate. A file is named by its module, and the crate's root by
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Names {
    files: BTreeMap<String, Paths>,
}

impl Names {
    pub(crate) fn of<'s>(sources: impl IntoIterator<Item = &'s Source>) -> Self {
        let files = sources.into_iter().map(|source| (source.module.clone(), Paths::of(&source.syntax)));
        Self { files: files.collect() }
    }

    /// The modules that have files.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The other modules that the paths in a file lead to.
    pub(crate) fn imported(&self, module: &str) -> BTreeSet<String> {
        let Some(file) = self.files.get(module) else { return BTreeSet::new() };
        let meant = file.found.iter().flat_map(|(depth, path)| file.meanings(*depth, path, MOST_STEPS));
        let named = meant.filter_map(|(depth, path)| {
            let (target, _) = self.target(module, &absolute(module, depth, &path)?)?;
            // A module and its parts are one: parts import the module that they are parts of.
            let is_part = target == *module || target.starts_with(&format!("{module}::"));
            (!is_part && !target.is_empty()).then_some(target)
        });
        named.collect()
    }

    /// The module and the name of the type of the crate that a path means, which stands in a file,
    /// this many modules below the file's own.
    pub(crate) fn type_of(&self, module: &str, depth: usize, path: &[String]) -> Option<(String, String)> {
        let file = self.files.get(module)?;
        // Without an import, a name is one of the file, or of a module below it.
        let is_local = path.first().is_some_and(|name| !file.imports(name)) && !is_rooted(path);
        let local = is_local.then(|| (0, [&["self".to_owned()], path].concat()));
        let meant = local.into_iter().chain(file.meanings(depth, path, MOST_STEPS));
        meant.into_iter().find_map(|(depth, path)| {
            let (target, rest) = self.target(module, &absolute(module, depth, &path)?)?;
            match rest.as_slice() {
                [name] if self.files[&target].types.contains(name) => Some((target, name.clone())),
                _ => None,
            }
        })
    }

    /// The module that a path in another module leads to, through the names that modules hand on,
    /// and the rest of the path.
    fn target(&self, from: &str, path: &[String]) -> Option<(String, Vec<String>)> {
        let mut path = path.to_vec();
        for _ in 0..MOST_STEPS {
            let known = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length].join("::")))?;
            let module = path[..known].join("::");
            let handed = path.get(known).and_then(|name| self.files[&module].exports.get(name));
            let is_part = module.is_empty() || from.starts_with(&format!("{module}::"));
            let handed = handed.filter(|(to_all, _)| *to_all || is_part);
            let Some((_, handed)) = handed else { return Some((module, path[known..].to_vec())) };
            let relative = match handed.first().map(String::as_str) {
                Some("crate" | "self" | "super") => absolute(&module, 0, handed)?,
                // `pub use part::Name`: a module below this one.
                _ => path[..known].iter().chain(handed).cloned().collect(),
            };
            if relative == path {
                return Some((module, path[known..].to_vec()));
            }
            path = relative;
        }
        None
    }
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

/// How often a name may be handed on.
const MOST_STEPS: usize = 8;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn type_of(files: &[(&str, &str)], path: &str) -> Option<String> {
        let parse = |(module, text): &(&str, &str)| Source::parse(module, Path::new("x.rs"), text).unwrap();
        let sources: Vec<Source> = files.iter().map(parse).collect();
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        Names::of(&sources).type_of("a", 0, &path).map(|(module, name)| format!("{module}::{name}"))
    }

    #[test]
    fn types_are_found_where_they_are_defined() {
        let (b, root) =
            (("b", "pub use self::c::T as U; pub mod c; pub struct S;"), ("", "pub use b::S; mod a; mod b;"));
        let c = ("b::c", "pub struct T; pub enum S { A }");
        for (text, path, expected) in [
            ("struct S;", "S", Some("a::S")),
            ("struct S;", "self::S", Some("a::S")),
            ("use crate::b::S;", "S", Some("b::S")),
            ("use crate::S;", "S", Some("b::S")),
            ("use super::b::c::S;", "S", Some("b::c::S")),
            ("use crate::b::U;", "U", Some("b::c::T")),
            ("use crate::b::c::T as V;", "V", Some("b::c::T")),
            ("use crate::b;", "b::c::S", Some("b::c::S")),
            ("use crate::b::*;", "S", Some("b::S")),
            ("", "crate::b::S", Some("b::S")),
            ("", "S", None),
            ("struct S; use crate::b;", "b::S", Some("b::S")),
            ("use std::io::S;", "S", None),
            ("struct S;", "std::io::S", None),
            ("", "Vec", None),
        ] {
            assert_eq!(type_of(&[root, b, c, ("a", text)], path).as_deref(), expected, "{text} {path}");
        }
    }
}
