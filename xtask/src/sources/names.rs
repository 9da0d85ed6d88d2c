//! What the names in the files of a crate mean: which module a path leads to.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;
use super::paths::Paths;

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
            let target = self.target(module, &absolute(module, depth, &path)?)?;
            // A module and its parts are one: parts import the module that they are parts of.
            let is_part = target == *module || target.starts_with(&format!("{module}::"));
            (!is_part && !target.is_empty()).then_some(target)
        });
        named.collect()
    }

    /// The module that a path in another module leads to, through the names that modules hand on.
    fn target(&self, from: &str, path: &[String]) -> Option<String> {
        let mut path = path.to_vec();
        for _ in 0..MOST_STEPS {
            let known = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length].join("::")))?;
            let module = path[..known].join("::");
            let handed = path.get(known).and_then(|name| self.files[&module].exports.get(name));
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
