//! The checkpoints of a pool's payloads: which saves of which ranks make one, when it is committed,
//! and what a try begins with.
//!
//! News of movers arrive at the [`Desk`](desk::Desk), which passes them to the task of the name that
//! they concern. Each name has one task: `name` decides, over the pure tables of `attempt`;
//! `upload` and `restore` move bytes.

mod ask;
mod attempt;
pub(crate) mod desk;
mod lazily;
mod messages;
mod name;
mod post;
mod restore;
mod room;
mod timing;
mod upload;
