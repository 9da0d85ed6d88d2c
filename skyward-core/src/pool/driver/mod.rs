//! The driver: the one loop that brings a pool up, reacts to events, and ends the pool.

mod directives;
mod end;
mod growth;
pub(crate) mod jobs;
mod late;
pub(crate) mod places;
pub(crate) mod pulse;
pub(crate) mod resize;
pub(crate) mod run;
pub(crate) mod serving;
pub(crate) mod start;
pub(crate) mod succession;
pub(crate) mod supervisor;
mod timing;
