//! Calls of the loopback EC2: what the shims add to moto, and the faults of the rules.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod answers;
mod groups;
mod launches;
mod life;
mod policy;
#[path = "../support/mod.rs"]
mod support;
