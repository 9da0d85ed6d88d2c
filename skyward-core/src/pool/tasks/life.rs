//! The phase of a pool and how the pool ended: one value, which does not depend on the driver.

use crate::compute::PoolPhase;
use crate::error::{Error, ErrorKind, Result};

/// The phase of a pool. `status`, `events`, `shutdown` and refused submissions read it; the driver
/// and its supervisor write it.
#[derive(Debug)]
pub(crate) enum Life {
    /// A driver runs the pool.
    Driven(PoolPhase),
    /// The driver was lost for this reason, and what it started is being ended.
    Adrift(Error),
    /// The pool has ended.
    Ended {
        /// Whether everything that was started is confirmed gone.
        gone: Result<()>,
        /// Why the driver was lost, if it was.
        lost: Option<Error>,
    },
}

impl Life {
    pub(crate) fn phase(&self) -> PoolPhase {
        match self {
            Self::Driven(phase) => *phase,
            Self::Adrift(_) => PoolPhase::Failed,
            Self::Ended { .. } => PoolPhase::Closed,
        }
    }

    /// Why a pool that is not ready takes no tasks.
    pub(crate) fn refusal(&self) -> Error {
        self.loss().cloned().unwrap_or_else(closed)
    }

    /// Why the driver was lost, if it was.
    pub(super) fn loss(&self) -> Option<&Error> {
        match self {
            Self::Adrift(error) | Self::Ended { lost: Some(error), .. } => Some(error),
            Self::Driven(_) | Self::Ended { lost: None, .. } => None,
        }
    }

    /// How the pool ended, if it has ended.
    pub(super) fn end(&self) -> Option<Result<()>> {
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

/// The error of a pool that takes no tasks any more.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the pool is shutting down and takes no tasks")
        .with_hint("dispatch inside the pool's scope, before `shutdown`")
}
