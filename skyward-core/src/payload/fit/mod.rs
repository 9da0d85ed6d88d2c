//! Whether the fields that a result's Rust type asks for are those of the Python class that the entry's annotation names.
//!
//! `#[skyward::compute]` writes down the class; the Rust type's fields are found by having it deserialised from a stand-in, which notes what is asked for. What cannot be told
//! for sure, such as a type that rejects every stand-in, counts as fitting: the value itself is checked when it comes. A type's own code may panic at a stand-in, so nothing is
//! tried in a program in which a panic is its end.

mod access;
mod probe;
mod samples;
#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;

use self::probe::Missing;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::distance;

/// What a Python annotation says of a value, as far as it can be told when the crate is compiled.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// Anything.
    Unknown,
    /// An instance of this class, or a dict of its keys.
    Class(&'static Class),
    /// A list whose items are this.
    List(&'static Shape),
    /// A dict whose values are this.
    Dict(&'static Shape),
}

/// A Python class all of whose fields are known.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// Where it is: `path:line:column`.
    pub place: &'static str,
    /// Its fields with what is known of them.
    pub fields: &'static [(&'static str, Shape)],
}

/// Checks that a value of this shape has each field that the type asks for.
///
/// # Errors
///
/// [`ErrorKind::InvalidSpec`] with the field, both types and the line of the Python class.
pub(crate) fn check<T: DeserializeOwned>(function: &str, shape: Shape) -> Result<()> {
    check_where::<T>(PANICS_END, function, shape)
}

fn check_where<T: DeserializeOwned>(panics_end: PanicsEnd, function: &str, shape: Shape) -> Result<()> {
    let missing = match panics_end {
        PanicsEnd::TheTry => probe::missing::<T>(shape),
        PanicsEnd::TheProcess => None,
    };
    missing.map_or(Ok(()), |missing| Err(explain(function, &missing)))
}

/// What a panic takes with it, as the program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PanicsEnd {
    TheTry,
    TheProcess,
}

fn explain(function: &str, missing: &Missing) -> Error {
    let Missing { class, rust_type, field, path } = missing;
    let message = format!(
        "the result of `{function}` does not fit its Rust type: `{rust_type}` asks for the field `{field}`, which the class `{}` ({}) does not have",
        class.name, class.place
    );
    let names = class.fields.iter().map(|(name, _)| *name);
    let hint = match nearest(field, names.clone()) {
        Some(close) => format!(
            "did you mean `{close}`? rename one of them, also by `#[serde(rename = \"{close}\")]`, or mark the Rust field `#[serde(default)]`"
        ),
        None => format!(
            "it has {}; add the field in Python, or mark the Rust field `#[serde(default)]`",
            names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        ),
    };
    let error = Error::new(ErrorKind::InvalidSpec, message).with_hint(hint);
    if path.is_empty() { error } else { error.with_context("path", path) }
}

/// The name that was most likely meant.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    names
        .map(|candidate| (distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// As the profile's `panic` says.
const PANICS_END: PanicsEnd = if cfg!(panic = "unwind") { PanicsEnd::TheTry } else { PanicsEnd::TheProcess };
