//! Pools on a cloud: refused offers, machines that end after a notice, budgets. The cloud is a
//! fake, and the clock is paused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests are not tests themselves")]

mod budgets;
mod cloud;
mod gangs;
mod notices;
mod offers;
