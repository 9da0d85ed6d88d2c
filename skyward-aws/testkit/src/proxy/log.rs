//! The log of clients' calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::proxy::Call;

/// The calls of clients since the start, or since they were last forgotten.
#[derive(Debug, Clone, Default)]
pub struct Calls(Arc<Mutex<Vec<Call>>>);

impl Calls {
    pub(crate) fn add(&self, call: Call) {
        self.lock().push(call);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Call> {
        self.lock().clone()
    }

    /// The calls of an action.
    pub fn of(&self, action: &str) -> Vec<Call> {
        self.lock().iter().filter(|call| call.action == action).cloned().collect()
    }

    /// The number of calls of an action.
    pub fn count(&self, action: &str) -> usize {
        self.lock().iter().filter(|call| call.action == action).count()
    }

    /// The names of the actions in their order.
    pub fn actions(&self) -> Vec<String> {
        self.lock().iter().map(|call| call.action.clone()).collect()
    }

    /// Empties the log.
    pub fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
