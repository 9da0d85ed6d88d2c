//! The core of Skyward: specifications of pools, machines that become ready workers, tasks and
//! their results.
//!
//! Depend on the facade crate `skyward`, which re-exports the public items of this crate at the
//! same paths: `skyward_core::pool` is `skyward::pool`. The examples in this documentation use the
//! names of the facade.

#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules are in the order of `ARCHITECTURE.md`: each imports only those above it.
pub mod error;
pub mod ids;
mod layout;

pub mod spec;

pub mod payload;

pub mod event;

pub mod files;

pub mod storage;

pub mod checkpoint;

pub mod data;

pub mod compute;

pub mod plugin;

pub mod remote;

pub mod provider;

#[doc(hidden)]
pub mod bootstrap;

#[doc(hidden)]
pub mod worker;

#[doc(hidden)]
pub mod scheduler;

#[cfg(feature = "terminal")]
pub mod terminal;

pub mod pool;

#[cfg(feature = "testkit")]
pub mod testkit;

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;

pub use error::{Error, ErrorKind, Result};
pub use pool::{Reaped, interrupted, reap, reap_expired};
#[cfg(feature = "terminal")]
pub use terminal::Terminal;
