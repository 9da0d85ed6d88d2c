//! Why a try at a task failed. The cause decides whether the task is retried.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Error, ErrorKind, WorkerExit};
use crate::ids::Attempt;

/// Why a try at a task failed. Each cause has its own count and its own limit in a
/// [`RetryPolicy`](crate::payload::RetryPolicy).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// The worker's process ended while it ran the task: an exit code, or a signal.
    Crash,
    /// The kernel ended the worker while it ran the task, because the machine was out of memory.
    OutOfMemory,
    /// The node was lost: its agent or its machine is gone, its lease was not renewed, or the
    /// client could not reach the worker any more.
    NodeLost,
    /// The provider took the machine back, or the machine's walltime was over.
    Preempted,
    /// Another worker of the world was lost, which ended the world.
    PeerLost,
    /// The gang made no progress for [`Limits::stall`](crate::spec::Limits::stall).
    #[serde(rename = "stall")]
    Stalled,
    /// The payload raised an exception.
    Raised,
}

/// How one try at a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Try {
    /// The number of the try.
    pub attempt: Attempt,
    /// Why the try failed. `None` if no [`Cause`] fits, as after a deadline.
    pub cause: Option<Cause>,
    /// The message of the error that ended the try, of at most 300 characters.
    pub ended: String,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 7] =
        [Self::Crash, Self::OutOfMemory, Self::NodeLost, Self::Preempted, Self::PeerLost, Self::Stalled, Self::Raised];

    /// The cause of an error. `None` for an error after which no task is retried: a cancelled task,
    /// a deadline, an argument that does not fit, a pool that ends.
    pub fn of(error: &Error) -> Option<Self> {
        match (error.kind(), error.exit()) {
            (_, Some(WorkerExit::OutOfMemory)) => Some(Self::OutOfMemory),
            (_, Some(WorkerExit::Preempted | WorkerExit::Expired)) => Some(Self::Preempted),
            (_, Some(WorkerExit::WorldEnded)) => Some(Self::PeerLost),
            (
                _,
                Some(
                    WorkerExit::Unreachable
                    | WorkerExit::AgentGone
                    | WorkerExit::LeaseEnded
                    | WorkerExit::MachineFailed
                    | WorkerExit::Left,
                ),
            ) => Some(Self::NodeLost),
            (_, Some(_)) => Some(Self::Crash),
            (ErrorKind::NodeLost, None) => Some(Self::NodeLost),
            (ErrorKind::Stalled, None) => Some(Self::Stalled),
            (ErrorKind::Raised, None) => Some(Self::Raised),
            _ => None,
        }
    }

    /// Whether the task itself may have ended its worker.
    pub(crate) fn ended_worker(self) -> bool {
        matches!(self, Self::Crash | Self::OutOfMemory)
    }

    /// The position in [`ALL`](Self::ALL).
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl Try {
    /// A try that failed with this error.
    pub(crate) fn new(attempt: Attempt, error: &Error) -> Self {
        let message = error.message();
        let ended = match message.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message.to_owned(),
        };
        Self { attempt, cause: Cause::of(error), ended }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crash => "crash",
            Self::OutOfMemory => "out of memory",
            Self::NodeLost => "node lost",
            Self::Preempted => "preempted",
            Self::PeerLost => "peer lost",
            Self::Stalled => "stall",
            Self::Raised => "raised",
        })
    }
}

impl fmt::Display for Try {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "try {}: {}", self.attempt, self.ended)
    }
}

/// The most characters of a message that a try keeps.
const LONGEST: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Rank;

    #[test]
    fn each_exit_has_its_cause() {
        for (exit, cause) in [
            (WorkerExit::Code(1), Cause::Crash),
            (WorkerExit::Signal(11), Cause::Crash),
            (WorkerExit::OutOfMemory, Cause::OutOfMemory),
            (WorkerExit::WorldEnded, Cause::PeerLost),
            (WorkerExit::AgentGone, Cause::NodeLost),
            (WorkerExit::LeaseEnded, Cause::NodeLost),
            (WorkerExit::Unreachable, Cause::NodeLost),
            (WorkerExit::Preempted, Cause::Preempted),
            (WorkerExit::Expired, Cause::Preempted),
            (WorkerExit::MachineFailed, Cause::NodeLost),
        ] {
            assert_eq!(Cause::of(&Error::worker_exited(Rank(0), exit.clone())), Some(cause), "{exit}");
        }
        assert_eq!(Cause::of(&Error::new(ErrorKind::Timeout, "late")), None);
        assert_eq!(Cause::of(&Error::new(ErrorKind::Cancelled, "cancelled")), None);
    }

    #[test]
    fn indices_follow_the_list() {
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause.index(), index);
        }
    }

    #[test]
    fn a_try_keeps_a_bounded_message() {
        let error = Error::new(ErrorKind::Raised, "ä".repeat(10_000));
        assert_eq!(Try::new(Attempt(1), &error).ended.chars().count(), LONGEST + 1);
    }
}
