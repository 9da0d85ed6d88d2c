//! Pools on this host, end to end. The tests share one program, because none of them changes
//! process-wide state: variables, signals, a subscriber, a recorder. A test that does so has a
//! program of its own beside this folder.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod backpressure;
mod budget;
mod calls;
mod checkpoints;
mod cleanup;
#[path = "../common/mod.rs"]
mod common;
mod data;
mod elastic;
mod environments;
mod failures;
mod files;
mod imports;
mod joblib;
mod joined_world;
mod nested;
mod nodes;
mod notices;
mod reconnect;
mod recovery;
mod rehearsal;
mod reports;
mod stored;
#[allow(dead_code, reason = "a rehearsal is asked for its pool alone")]
#[path = "../common/traces.rs"]
mod traces;
mod values;
mod worlds;
