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
    pub(crate) fn put(&self, effects: impl ExactSizeIterator<Item = Effect>) {
        if effects.len() > 0 {
            self.waiting().extend(effects);
        }
    }

    /// Takes over one report.
    pub(super) fn push(&self, effect: Effect) {
        self.waiting().push_back(effect);
    }

    /// Delivers a slice of the waiting reports, unless another thread is delivering: then these are
    /// that thread's concern too. Returns whether reports are left that are the caller's concern.
    pub(super) fn deliver(&self, mut deliver: impl FnMut(Effect)) -> bool {
        let mut left = SLICE;
        loop {
            let delivering = match self.delivering.try_lock() {
                Ok(delivering) => delivering,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return false,
            };
            while left > 0 {
                let Some(effect) = self.next() else { break };
                deliver(effect);
                left -= 1;
            }
            drop(delivering);
            // A thread that put reports here after the last look found this thread delivering, and
            // relies on it.
            if self.waiting().is_empty() {
                return false;
            }
            if left == 0 {
                return true;
            }
        }
    }

    /// The next report. The queue is not locked while the report is delivered.
    fn next(&self) -> Option<Effect> {
        self.waiting().pop_front()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Effect>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most reports that a thread delivers at a time: it may be a thread of the program, and the
/// reports may be those of other threads.
const SLICE: usize = 256;
