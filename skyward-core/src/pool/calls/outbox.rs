//! The queue of reports, in the order of what happened. One thread at a time delivers them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::effect::Effect;

/// Reports that wait to be delivered.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<VecDeque<Effect>>,
    /// Held by the thread that delivers reports.
    delivering: Mutex<()>,
}

impl Outbox {
    /// Takes over reports. Called while the state is locked, so that their order is the order in
    /// which things happened.
    pub(crate) fn put(&self, effects: &mut Vec<Effect>) {
        if !effects.is_empty() {
            self.waiting().extend(effects.drain(..));
        }
    }

    /// Takes over one report.
    pub(super) fn push(&self, effect: Effect) {
        self.waiting().push_back(effect);
    }

    /// Delivers the waiting reports, unless another thread is delivering: that thread delivers
    /// these too.
    pub(super) fn empty(&self, mut deliver: impl FnMut(Effect)) {
        loop {
            let delivering = match self.delivering.try_lock() {
                Ok(delivering) => delivering,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            loop {
                let waiting = std::mem::take(&mut *self.waiting());
                if waiting.is_empty() {
                    break;
                }
                waiting.into_iter().for_each(&mut deliver);
            }
            drop(delivering);
            // A thread that put reports here after the last look found this thread delivering, and
            // relies on it.
            if self.waiting().is_empty() {
                return;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Effect>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
