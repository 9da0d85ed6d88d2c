//! The phase of a pool, why it failed and how it ended: one value, which does not depend on the
//! driver.

use crate::compute::PoolPhase;
use crate::error::{Error, ErrorKind, Result};

/// The life of a pool. `status`, `events`, `shutdown` and refused submissions read it; the driver
/// and its supervisor write it.
#[derive(Debug)]
pub(crate) struct Life {
    stage: Stage,
    /// Why the pool ends, or has ended, although nobody has shut it down.
    failure: Option<Error>,
}

#[derive(Debug)]
enum Stage {
    /// A driver runs the pool.
    Driven(PoolPhase),
    /// The driver was lost, and what it started is being ended.
    Adrift,
    /// The pool has ended: whether everything that was started is confirmed gone.
    Ended(Result<()>),
}

impl Life {
    pub(crate) fn phase(&self) -> PoolPhase {
        match self.stage {
            Stage::Driven(phase) => phase,
            Stage::Adrift => PoolPhase::Failed,
            Stage::Ended(_) => PoolPhase::Closed,
        }
    }

    pub(crate) fn is_driven(&self) -> bool {
        matches!(self.stage, Stage::Driven(_))
    }

    /// Why the pool ends, or has ended, although nobody has shut it down.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Why a pool that is not ready takes no tasks.
    pub(crate) fn refusal(&self) -> Error {
        self.failure.clone().unwrap_or_else(closed)
    }

    /// How the pool ended, if it has ended.
    pub(super) fn end(&self) -> Option<Result<()>> {
        match &self.stage {
            Stage::Ended(gone) => Some(gone.clone()),
            Stage::Driven(_) | Stage::Adrift => None,
        }
    }

    /// The pool ends for this reason. Later failures are consequences of the first.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.failure.get_or_insert_with(|| error.clone());
    }

    /// The driver begins a phase.
    pub(super) fn enter(&mut self, phase: PoolPhase) {
        self.stage = Stage::Driven(phase);
    }

    /// The driver is lost for this reason.
    pub(super) fn lose_driver(&mut self, error: &Error) {
        self.fail(error);
        self.stage = Stage::Adrift;
    }

    /// The pool has ended with this result.
    pub(super) fn conclude(&mut self, gone: Result<()>) {
        self.stage = Stage::Ended(gone);
    }
}

impl Default for Life {
    fn default() -> Self {
        Self { stage: Stage::Driven(PoolPhase::Starting), failure: None }
    }
}

/// The error of a pool that takes no tasks any more.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the pool is shutting down and takes no tasks")
        .with_hint("dispatch inside the pool's scope, before `shutdown`")
}
