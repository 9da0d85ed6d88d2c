//! Compares the fields of a result's Rust type with the Python class that the entry's annotation
//! names.
//!
//! `#[skyward::compute]` records the class. To find the fields of the Rust type, the type is
//! deserialised from a stand-in for a value, which records the fields that are requested.
//!
//! If the comparison is not certain, for example because a type rejects every stand-in, the type
//! counts as fitting. The value itself is checked when it arrives.
//!
//! The code of a type may panic when it meets a stand-in. Therefore nothing is compared in a
//! program that is built to abort on panic.

mod access;
mod probe;
mod samples;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;
use strsim::levenshtein;

use self::probe::Missing;
use crate::error::{Error, ErrorKind, Result};

/// The structure of a value by its Python annotation, as far as it is known at compile time.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Structure {
    /// Anything.
    Unknown,
    /// An instance of this class, or a dict with its fields as keys.
    Class(&'static Class),
    /// A list whose items have this structure.
    List(&'static Structure),
    /// A dict whose values have this structure.
    Dict(&'static Structure),
}

/// A Python class with all of its fields.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// The name of the class.
    pub name: &'static str,
    /// The place of its definition: `path:line:column`.
    pub place: &'static str,
    /// The names of its fields, each with its structure.
    pub fields: &'static [(&'static str, Structure)],
}

/// Checks that a value of this structure has each field that the type requires.
///
/// # Errors
///
/// [`ErrorKind::InvalidSpec`] with the missing field, both types, and the line of the Python class.
pub(crate) fn check<T: DeserializeOwned>(function: &str, structure: Structure) -> Result<()> {
    check_where::<T>(PANICS_END, function, structure)
}

fn check_where<T: DeserializeOwned>(panics_end: PanicsEnd, function: &str, structure: Structure) -> Result<()> {
    let missing = match panics_end {
        PanicsEnd::TheTry => probe::missing::<T>(structure),
        PanicsEnd::TheProcess => None,
    };
    missing.map_or(Ok(()), |missing| Err(explain(function, &missing)))
}

/// What a panic ends, by the profile that the program is built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PanicsEnd {
    TheTry,
    TheProcess,
}

fn explain(function: &str, missing: &Missing) -> Error {
    let Missing { class, rust_type, field, path } = missing;
    let message = format!(
        "the result of `{function}` does not fit its Rust type: `{rust_type}` requires the field `{field}`, \
         which the class `{}` ({}) does not have",
        class.name, class.place
    );
    let names = class.fields.iter().map(|(name, _)| *name);
    let hint = match nearest(field, names.clone()) {
        Some(close) => format!(
            "did you mean `{close}`? rename one of the two fields, for example with `#[serde(rename = \"{close}\")]`, \
             or mark the Rust field `#[serde(default)]`"
        ),
        None => format!(
            "the class has {}; add the field in Python, or mark the Rust field `#[serde(default)]`",
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        ),
    };
    let error = Error::new(ErrorKind::InvalidSpec, message).with_hint(hint);
    if path.is_empty() { error } else { error.with_context("path", path) }
}

/// The most similar name, if one is similar enough to be meant.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    names
        .map(|candidate| (levenshtein(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// By the setting `panic` of the profile.
const PANICS_END: PanicsEnd = if cfg!(panic = "unwind") { PanicsEnd::TheTry } else { PanicsEnd::TheProcess };
