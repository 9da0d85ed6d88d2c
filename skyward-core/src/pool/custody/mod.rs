//! Keeps track of machines, from the intent to launch a machine until it is confirmed gone: the
//! ledger, and what ends the machines.

pub(crate) mod cleanup;
pub(crate) mod ledger;
pub(crate) mod reap;
mod timing;
