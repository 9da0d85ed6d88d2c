//! What the macro knows of Python: its grammar, the functions of a module and the fields of its
//! classes, and metadata in comments.

pub(crate) mod annotation;
mod branches;
mod builtins;
#[cfg(test)]
mod corpus;
pub(crate) mod decorators;
mod exports;
pub(crate) mod fields;
pub(crate) mod function;
pub(crate) mod inline;
pub(crate) mod metadata;
pub(crate) mod module;
mod scopes;
mod semantics;
mod undefined;
mod uses;
pub(crate) mod version;
