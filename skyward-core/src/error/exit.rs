//! How a worker process ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a worker process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerExit {
    /// The process exited with this code.
    Code(i32),
    /// This signal ended the process.
    Signal(i32),
    /// The kernel ended the process because the machine was out of memory.
    OutOfMemory,
    /// The worker was killed because a task that was cancelled or had passed its deadline did not
    /// end within the grace.
    Killed,
    /// The worker was killed because the client could not reach it any more.
    Unreachable,
    /// The worker was ended because another worker of its world was lost.
    WorldEnded,
    /// The node's agent is gone.
    AgentGone,
    /// The node's lease was not renewed in time, so the node ended itself.
    LeaseEnded,
    /// The provider took the node's machine back.
    Preempted,
    /// The walltime of the node's machine was over.
    Expired,
    /// The provider reports that the node's machine failed.
    MachineFailed,
    /// The node left the pool, because the pool changed its size.
    Left,
}

impl WorkerExit {
    /// Whether the worker was lost together with its node.
    pub fn is_node_loss(&self) -> bool {
        matches!(
            self,
            Self::AgentGone | Self::LeaseEnded | Self::Preempted | Self::Expired | Self::MachineFailed | Self::Left
        )
    }

    /// Advice for this exit, if there is any.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Code(CLOSED_DESCRIPTORS) => Some(
                "a worker exits with this code when the payload has closed the descriptors of its connection or output \
                 (its output then says so); close only the descriptors that the payload has opened",
            ),
            Self::OutOfMemory => {
                Some("process less data at a time in the payload, or use nodes with more memory or fewer workers")
            }
            _ => None,
        }
    }
}

impl fmt::Display for WorkerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was ended by {name} (signal {signal})"),
                None => write!(f, "was ended by signal {signal}"),
            },
            Self::OutOfMemory => f.write_str("ran out of memory and was ended by the kernel"),
            Self::Killed => f.write_str("was killed because it did not end a cancelled or overdue task"),
            Self::Unreachable => f.write_str("was ended because the client could not reach it any more"),
            Self::WorldEnded => f.write_str("was ended because another worker of its world was lost"),
            Self::AgentGone => f.write_str("was lost with its agent"),
            Self::LeaseEnded => f.write_str("was ended because the lease of its node was not renewed"),
            Self::Preempted => f.write_str("was lost because the provider took its machine back"),
            Self::Expired => f.write_str("was lost because the walltime of its machine was over"),
            Self::MachineFailed => f.write_str("was lost because its machine failed"),
            Self::Left => f.write_str("ended because its node left the pool"),
        }
    }
}

/// The exit code of a worker that has lost its descriptors (`docs/protocol.md`).
const CLOSED_DESCRIPTORS: i32 = 4;

/// The names of signals by their numbers on Linux (signal(7)).
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        16 => "SIGSTKFLT",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        26 => "SIGVTALRM",
        27 => "SIGPROF",
        29 => "SIGIO",
        30 => "SIGPWR",
        31 => "SIGSYS",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_displays_its_code_its_signal_or_its_cause() {
        assert_eq!(WorkerExit::Code(7).to_string(), "exited with code 7");
        assert_eq!(WorkerExit::Signal(31).to_string(), "was ended by SIGSYS (signal 31)");
        assert_eq!(WorkerExit::Signal(40).to_string(), "was ended by signal 40");
        assert!(WorkerExit::LeaseEnded.to_string().contains("lease"));
        assert!(WorkerExit::Code(4).hint().unwrap().contains("descriptors"));
        assert_eq!(WorkerExit::Code(1).hint(), None);
    }
}
