//! Turns a machine into a node: bought, reached, made ready, with an agent and workers.

pub(crate) mod agent;
pub(crate) mod generation;
pub(crate) mod greeting;
pub(crate) mod lease;
pub(crate) mod make;
pub(crate) mod mover;
pub(crate) mod progress;
pub(crate) mod purchase;
pub(crate) mod renewals;
pub(crate) mod repair;
pub(crate) mod requests;
mod round_trip;
mod seat;
pub(crate) mod timing;
pub(crate) mod together;
