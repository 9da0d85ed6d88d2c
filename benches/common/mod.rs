//! What the benches share: the command line, the table of rows, and what is measured in more than one of them.

pub(crate) mod bytes;
pub(crate) mod calls;
pub(crate) mod idle;
pub(crate) mod processor;
pub(crate) mod start;
mod table;

pub(crate) use table::{Options, Table, median, timed};
