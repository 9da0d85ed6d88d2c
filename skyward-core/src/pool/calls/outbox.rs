//! The queue of reports, in the order of what happened. One thread at a time delivers them.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::told::Told;

/// Reports that wait to be delivered.
#[derive(Default)]
pub(crate) struct Outbox {
    waiting: Mutex<VecDeque<Told>>,
    /// Held by the thread that delivers reports.
    teller: Mutex<()>,
}

impl Outbox {
    /// Takes over reports. Called while the state is locked, so that their order is the order in
    /// which things happened.
    pub(crate) fn put(&self, told: &mut Vec<Told>) {
        if !told.is_empty() {
            self.waiting().extend(told.drain(..));
        }
    }

    /// Takes over one report.
    pub(super) fn push(&self, told: Told) {
        self.waiting().push_back(told);
    }

    /// Delivers the waiting reports, unless another thread is delivering: that thread delivers
    /// these too.
    pub(super) fn empty(&self, mut tell: impl FnMut(Told)) {
        loop {
            let teller = match self.teller.try_lock() {
                Ok(teller) => teller,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            loop {
                let waiting = std::mem::take(&mut *self.waiting());
                if waiting.is_empty() {
                    break;
                }
                waiting.into_iter().for_each(&mut tell);
            }
            drop(teller);
            // A thread that put reports here after the last look found this thread delivering, and
            // relies on it.
            if self.waiting().is_empty() {
                return;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Told>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
