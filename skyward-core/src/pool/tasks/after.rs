//! Work that is left to do after the state has been unlocked.

use crate::worker::link::Sender;

/// Work to do after the lock is released.
#[derive(Default)]
pub(crate) struct After {
    pub(crate) flush: Vec<Sender>,
}
