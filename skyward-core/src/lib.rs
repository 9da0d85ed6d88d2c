//! The core of Skyward: what a pool is asked for, how machines become ready workers, how tasks reach them and results come back.
//!
//! Modules in the order in which data flows; each uses only those above it.

pub mod error;
pub mod ids;

pub mod event;

pub mod spec;

pub mod payload;

pub mod plugin;

pub mod remote;

pub mod provider;

pub mod bootstrap;

pub mod worker;

pub mod scheduler;

pub mod pool;

#[cfg(feature = "testkit")]
pub mod testkit;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;

#[cfg(feature = "terminal")]
pub mod terminal;

pub use error::{Error, ErrorKind, Result};
pub use pool::{Reaped, reap, reap_expired};
#[cfg(feature = "terminal")]
pub use terminal::Terminal;
