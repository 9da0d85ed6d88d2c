//! Names that nothing defines.

use std::collections::BTreeSet;

use ruff_python_ast::PythonVersion;
use ruff_python_stdlib::builtins::{is_python_builtin, python_builtins, python_magic_globals};

use super::conventions::MODULES;
use super::names::{list, nearest};
use super::scopes::{Chance, Scopes, Use};

/// The first use of each name that neither the module nor Python defines. Nothing where names may
/// be defined in ways that are not written down: what is not sure is not an error.
pub(super) fn undefined_names(scopes: &Scopes, version: PythonVersion) -> Vec<&Use> {
    if scopes.dynamic {
        return Vec::new();
    }
    let are_deferred = version.defers_annotations() || scopes.defers_annotations;
    let certain = if are_deferred { Chance::Read } else { Chance::Annotation };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for used in &scopes.uses {
        let name = used.name.as_str();
        if scopes.is_bound(used.scope, name) && name != "global_enum" {
            continue;
        }
        if TRICKS.contains(&name) {
            return Vec::new();
        }
        // `_` is what gettext installs; the others belong to Python.
        let is_known = is_built_in(name) || name == "_" || name.starts_with("__");
        if !is_known && used.chance <= certain && seen.insert(name) {
            found.push(used);
        }
    }
    found
}

/// What is wrong with the use of an undefined name. A module that is made of a body has one function,
/// with these parameters.
pub(super) fn undefined(used: &Use, scopes: &Scopes, parameters: Option<&[&str]>) -> String {
    let name = used.name.as_str();
    let meant = |close: &str| format!("`{name}` is not defined; did you mean `{close}`?");
    let import = MODULES.iter().find(|(known, _)| *known == name);
    // Of a few letters, one makes another name: `np` is hardly a misspelt `n`.
    let is_long = name.len() > 2 && (name.len() > 3 || import.is_none());
    if let Some(close) = nearest(name, scopes.visible(used.scope)).filter(|_| is_long) {
        return meant(close);
    }
    if let Some((_, import)) = import {
        return format!("`{name}` is not defined: write `{import}` above it");
    }
    if let Some(close) = nearest(name, built_in()).filter(|_| is_long) {
        return meant(close);
    }
    let arguments = match parameters {
        None => return format!("`{name}` is not defined: neither the file nor Python defines it"),
        Some([]) => "which has no arguments here".to_owned(),
        Some(names) => format!("here {}", list(names.iter().copied())),
    };
    format!("`{name}` is not defined: a body sees what it binds, and the arguments of its function, {arguments}")
}

/// Whether any version of Python has the name everywhere.
fn is_built_in(name: &str) -> bool {
    let newest = PythonVersion::latest_preview().minor;
    is_python_builtin(name, newest, false) || python_magic_globals(newest).any(|known| known == name)
}

/// What a name may be a misspelling of, without the names that nobody writes.
fn built_in() -> impl Iterator<Item = &'static str> {
    let names = python_builtins(PythonVersion::latest_preview().minor, false).chain(["False", "None", "True"]);
    names.filter(|name| !name.starts_with("__") && !TRICKS.contains(name))
}

/// Through any of these, names may come to be that are not written down.
const TRICKS: [&str; 7] = ["dir", "eval", "exec", "global_enum", "globals", "locals", "vars"];

#[cfg(test)]
mod tests;
