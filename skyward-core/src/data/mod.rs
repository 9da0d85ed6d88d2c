//! Data sets: folders that the machines of a pool get, and that payloads read with `sky.data`.
//!
//! [`Data`] names a folder of the client's host. Each machine gets its files once, into a cache that
//! outlives the pool: another pool on the machine sends only what has changed.
//!
//! ```no_run
//! # use skyward_core as skyward;
//! use skyward::data::Data;
//! use skyward::pool::Pool;
//!
//! let builder = Pool::builder().data("digits", Data::folder("data/digits"));
//! ```

mod digests;
mod listing;
mod packs;
#[cfg(test)]
pub(crate) mod scratch;
mod source;
mod tree;

pub(crate) use packs::Pack;
pub use source::Data;
pub(crate) use source::check_name;
pub(crate) use tree::{Tree, blocking};
