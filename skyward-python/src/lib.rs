//! Reads and checks the Python of Skyward's payloads. It needs no Python interpreter: the parser is
//! ruff's.
//!
//! The macro `#[skyward::compute]` calls these checks when a crate compiles, and compares their
//! results with the Rust declaration. Programs that embed Skyward do not need this crate; tools
//! that check Python without Rust do.
//!
//! - [`Payload`] is a file, or a folder of files. It has the [findings](Payload::findings) of the
//!   checks that do not depend on the entry, and the [entry](Payload::entry).
//! - [`Body`] is the body of one function, in a string literal of a Rust file.
//! - [`Finding`] is a problem, with its place and what to do.
//! - [`Function`] describes a function to a caller: its parameters, and whether it yields.
//!
//! ```
//! use skyward_python::{Entry, Payload};
//!
//! let payload = Payload::from_text("train.py", "def train(epochs, rate=0.1): return rate\n");
//! assert!(payload.findings().is_empty());
//!
//! let Ok(Entry::Function { function, .. }) = payload.entry("train", false) else { panic!() };
//! assert_eq!(function.parameters[0].name, "epochs");
//! assert!(function.parameters[1].has_default);
//! ```
//!
//! The checks refuse only what is certain to fail: a payload without findings can still raise an
//! exception when it runs. Their messages are for the authors of payloads, and name the options of
//! `#[skyward::compute]`.
//!
//! The interface follows the releases of Skyward: it changes as that of `skyward` does, and enums may
//! get further variants at any time. The messages and the set of checks are no part of it.

mod annotation;
mod bindings;
mod body;
mod branches;
mod cache;
mod conventions;
#[cfg(test)]
mod corpus;
mod decorators;
mod encoding;
mod excerpt;
mod exports;
mod fields;
mod finding;
mod function;
mod imports;
mod libraries;
mod metadata;
mod module;
pub mod names;
mod obstacles;
mod payload;
mod reading;
mod scopes;
mod semantics;
mod tree;
mod undefined;
mod uses;
mod version;

pub use annotation::{Annotation, Scalar};
pub use body::{Body, BodyEnd, Literal};
pub use fields::{Class, Structure};
pub use finding::{Finding, Kind};
pub use function::{Function, Parameter};
pub use payload::{Entry, File, Neighbours, Payload};
