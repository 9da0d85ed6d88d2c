//! Callers that wait for a change of the pool, such as its end.

use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::pool::foreign::answer;

/// The callers that wait. Their wakers are code of whatever runs them: a panic in one of them costs
/// neither the others nor the change.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<Vec<oneshot::Sender<()>>>);

impl Waiters {
    /// Ends at the next change from now on.
    pub(super) fn wait(&self) -> oneshot::Receiver<()> {
        let (waiting, changed) = oneshot::channel();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == all.capacity() {
            all.retain(|waiting| !waiting.is_closed());
        }
        all.push(waiting);
        changed
    }

    /// Wakes all callers that wait.
    pub(super) fn wake(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        all.into_iter().for_each(|waiting| answer(waiting, ()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_that_do_not_wait_any_more_are_forgotten() {
        let waiters = Waiters::default();
        (0..10_000).for_each(|_| drop(waiters.wait()));
        assert!(waiters.0.lock().unwrap().len() < 100);
    }
}
