//! Shared parts of the benches: the command line, the table of rows, and the measurements of more
//! than one bench.

pub(crate) mod bytes;
pub(crate) mod calls;
pub(crate) mod idle;
pub(crate) mod processor;
pub(crate) mod start;
mod table;

pub(crate) use table::{Options, Table, median, timed};
