//! The lock of a pool's state, and for benches the time for which it is held.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::state::State;

/// The locked state; dropping it releases the lock.
pub(crate) struct Locked<'a> {
    #[cfg(feature = "testkit")]
    _hold: holds::Hold,
    state: MutexGuard<'a, State>,
}

impl<'a> Locked<'a> {
    /// Locks the state. After a panic with the lock held, the tables are still consistent enough to
    /// end everything.
    pub(crate) fn of(state: &'a Mutex<State>) -> Self {
        Self {
            state: state.lock().unwrap_or_else(PoisonError::into_inner),
            #[cfg(feature = "testkit")]
            _hold: holds::Hold::begin(),
        }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// How long the locks of the pools of this process are held; for benches.
#[cfg(feature = "testkit")]
pub mod holds {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    /// Begins to measure how long the lock of each pool is held.
    pub fn watch() {
        WATCHED.store(true, Ordering::Relaxed);
    }

    /// The longest time for which a lock was held since the last call of this function.
    pub fn longest() -> Duration {
        Duration::from_nanos(LONGEST.swap(0, Ordering::Relaxed))
    }

    /// Measures how long a lock is held, from its creation to its drop.
    pub(crate) struct Hold(Option<Instant>);

    impl Hold {
        pub(crate) fn begin() -> Self {
            Self(WATCHED.load(Ordering::Relaxed).then(Instant::now))
        }
    }

    impl Drop for Hold {
        fn drop(&mut self) {
            if let Some(since) = self.0 {
                LONGEST.fetch_max(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
            }
        }
    }

    static WATCHED: AtomicBool = AtomicBool::new(false);
    static LONGEST: AtomicU64 = AtomicU64::new(0);
}
