//! Pools on an EC2 on loopback: the real SDK, real SSH servers, real keepers and real Python.
//!
//! What is the emulator's and what is EC2's is said in the crate `skyward-aws-testkit`. After each
//! test nothing that the provider made is left there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

#[path = "../../../skyward-core/tests/support/sshd.rs"]
mod sshd;

mod address_service;
mod addressing;
mod client;
mod contract;
mod launch;
mod life;
mod loss;
mod moved;
mod offers;
mod once;
mod owner;
mod parameters;
mod parking;
mod placement;
mod policy;
mod preflight;
mod profile;
mod reboot;
mod refusals;
mod reserved;
mod scene;
mod signal;
mod teardown;
mod trust;
