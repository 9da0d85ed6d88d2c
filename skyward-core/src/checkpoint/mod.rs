//! Checkpoints in a storage: commits that are whole or not there, in one order, by one pool at a
//! time.

mod brief;
mod checkpoints;
mod claim;
mod commit;
mod committing;
mod decide;
mod draft;
mod error;
mod keeping;
mod latest;
mod layout;
mod manifest;
mod owning;
mod saving;
mod store;
mod timing;
mod union;

pub use checkpoints::{Checkpoint, Checkpoints};
pub(crate) use claim::{Claim, Owner};
pub(crate) use commit::Commit;
pub(crate) use draft::{Draft, PartInfo, RankFiles};
pub(crate) use latest::{Latest, Skipped};
pub(crate) use layout::{LARGEST_PART, SaveId};

#[cfg(test)]
mod races;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
