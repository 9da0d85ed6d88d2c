//! The life of a pool: from a specification to ready workers, and on to machines that are confirmed
//! gone.

mod blueprint;
mod builder;
mod checkpoints;
mod command;
mod custody;
mod data;
mod driver;
mod environment;
mod fleet;
pub(crate) mod foreign;
mod handle;
mod metrics;
mod mover;
mod node;
mod node_handle;
mod plan;
mod rehearsal;
mod spawn;
pub(crate) mod tasks;

pub use builder::{PoolBuilder, interrupted};
#[cfg(any(test, fuzzing))]
pub(crate) use custody::ledger::Page as LedgerPage;
pub use custody::reap::{Elsewhere, Ended, Reaped, Unconfirmed, reap, reap_expired};
pub use handle::Pool;
pub use node_handle::PoolNode;
pub use plan::{Candidate, PoolPlan};
pub use rehearsal::{Finding, FindingKind, Rehearsal, RehearsalLimits};
