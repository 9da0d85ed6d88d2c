//! What the macro knows of Python: its grammar, the functions of a module, and metadata in comments.

mod exports;
pub(crate) mod function;
pub(crate) mod inline;
pub(crate) mod metadata;
pub(crate) mod module;
mod semantics;
mod uses;
