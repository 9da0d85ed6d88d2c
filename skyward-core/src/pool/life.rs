//! Where a pool is in its life, and how it ended: one value, which does not depend on the driver.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::shared::{Shared, closed};
use super::status::PoolPhase;
use crate::error::{Error, Result};
use crate::event::PoolEvent;

/// Where a pool is in its life. `status`, `events`, `shutdown` and whoever is refused a task read it; the driver and its supervisor write it.
#[derive(Debug)]
pub(super) enum Life {
    /// Somebody drives it.
    Driven(PoolPhase),
    /// Its driver is lost, for this reason, and what it started is being ended.
    Adrift(Error),
    /// Nothing happens any more.
    Ended {
        /// Whether everything that was started is confirmed gone.
        gone: Result<()>,
        /// Why its driver was lost, if it was.
        lost: Option<Error>,
    },
}

impl Life {
    pub(super) fn phase(&self) -> PoolPhase {
        match self {
            Self::Driven(phase) => *phase,
            Self::Adrift(_) => PoolPhase::Draining,
            Self::Ended { .. } => PoolPhase::Closed,
        }
    }

    /// Why a pool that is not ready takes no tasks.
    pub(super) fn refusal(&self) -> Error {
        match self {
            Self::Adrift(error) | Self::Ended { lost: Some(error), .. } => error.clone(),
            Self::Driven(_) | Self::Ended { lost: None, .. } => closed(),
        }
    }

    /// How it ended, when it has.
    fn end(&self) -> Option<Result<()>> {
        match self {
            Self::Ended { gone, .. } => Some(gone.clone()),
            Self::Driven(_) | Self::Adrift(_) => None,
        }
    }
}

impl Default for Life {
    fn default() -> Self {
        Self::Driven(PoolPhase::Starting)
    }
}

impl Shared {
    /// The driver begins a phase.
    pub(crate) fn enter(&self, phase: PoolPhase) {
        self.live(Life::Driven(phase));
    }

    /// The driver is lost. Whoever waits for a task is told; what was started is still to be ended.
    pub(super) fn on_driver_lost(&self, error: Error) {
        tracing::error!(pool = %self.pool, %error, "the pool is lost, and what it started is being ended");
        self.live(Life::Adrift(error.clone()));
        self.close_queue();
        // The panic may have left tables that are not whole.
        let failed = catch_unwind(AssertUnwindSafe(|| {
            self.act(|state, _| {
                state.held.release_all();
                state.scheduler.fail(error);
            });
        }));
        if failed.is_err() {
            // A handle whose other end is gone says that the pool is.
            let mut state = self.lock();
            let left = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.held));
            drop(state);
            drop(left);
        }
    }

    /// Nothing happens any more, and this came of it. Whoever waits for the end, or for anything that will not come, goes on.
    pub(super) fn conclude(&self, gone: Result<()>) {
        self.close_queue();
        let lost = match &self.lock().life {
            Life::Adrift(error) => Some(error.clone()),
            Life::Driven(_) | Life::Ended { .. } => None,
        };
        self.live(Life::Ended { gone, lost });
    }

    /// Waits for the pool's end.
    pub(super) async fn end(&self) -> Result<()> {
        self.until(|state| state.life.end()).await
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().life.end().is_some()
    }

    /// Why the pool takes no tasks any more.
    pub(super) fn refusal(&self) -> Error {
        self.lock().refusal()
    }

    /// The pool's life goes on with this; each phase is told once.
    fn live(&self, life: Life) {
        let after = life.phase();
        let before = {
            let mut state = self.lock();
            if after == PoolPhase::Closed {
                state.nodes.clear();
                state.agents.clear();
            }
            std::mem::replace(&mut state.life, life).phase()
        };
        self.ended.notify_waiters();
        match after {
            PoolPhase::Draining if before != after => self.emit(PoolEvent::Draining),
            PoolPhase::Closed if before != after => self.emit(PoolEvent::Closed),
            _ => {}
        }
    }
}
