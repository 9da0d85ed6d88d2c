//! Connections to hosts by SSH, against real OpenSSH servers on this machine.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

#[path = "../support/sshd.rs"]
mod sshd;

mod commands;
mod conformance;
mod crowd;
mod cut;
#[path = "../../../tests/common/disk.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod disk;
mod files;
#[path = "../support/hostile.rs"]
mod hostile;
mod login;
mod logins;
mod loss;
mod phases;
mod site;
mod streams;
mod trust;
