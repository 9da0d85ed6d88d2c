//! How a worker process ended.

use std::fmt;

/// How a worker process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerExit {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
    /// The kernel ended it because the machine was out of memory.
    OutOfMemory,
    /// It was killed because it did not end a task within the grace after that was cancelled or had run out of its time.
    Killed,
    /// It was killed because the client could not reach it any more.
    Unreachable,
    /// It was ended because another worker of its world was lost.
    WorldEnded,
    /// Its agent is gone.
    AgentGone,
    /// Its node's lease was not renewed in time, so the node ended itself.
    LeaseEnded,
    /// Its node's machine was taken back by the provider.
    Preempted,
    /// The time was over for which its node's machine was bought.
    Expired,
    /// The provider reports that its node's machine failed.
    MachineFailed,
    /// Its node left the pool, whose size has changed.
    Left,
}

impl WorkerExit {
    /// Whether it was lost with its node, and not by itself.
    pub fn is_node_loss(&self) -> bool {
        matches!(
            self,
            Self::AgentGone | Self::LeaseEnded | Self::Preempted | Self::Expired | Self::MachineFailed | Self::Left
        )
    }

    /// What to do about it, where the end says so much.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Code(CLOSED_DESCRIPTORS) => Some(
                "a worker ends so when the payload has closed the descriptors of its connection or its output, which its output says then: \
                 close those that the payload has opened, and not all",
            ),
            Self::OutOfMemory => {
                Some("let the payload take less at a time, or give it a node with more memory or fewer workers")
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
            Self::OutOfMemory => f.write_str("was ended by the kernel, out of memory,"),
            Self::Killed => f.write_str("was killed because it did not end a task that it was told to end"),
            Self::Unreachable => f.write_str("was ended because the client could not reach it any more"),
            Self::WorldEnded => f.write_str("was ended because another worker of its world was lost"),
            Self::AgentGone => f.write_str("was lost with its agent"),
            Self::LeaseEnded => f.write_str("was ended because the lease of its node was not renewed"),
            Self::Preempted => f.write_str("was lost because the provider took its machine back"),
            Self::Expired => f.write_str("was lost because the time of its machine was over"),
            Self::MachineFailed => f.write_str("was lost because its machine failed"),
            Self::Left => f.write_str("ended because its node left the pool"),
        }
    }
}

/// With which a worker exits that has lost its descriptors (`docs/protocol.md`).
const CLOSED_DESCRIPTORS: i32 = 4;

/// Linux numbers (signal(7)).
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
    fn an_exit_says_code_signal_or_cause() {
        assert_eq!(WorkerExit::Code(7).to_string(), "exited with code 7");
        assert_eq!(WorkerExit::Signal(31).to_string(), "was ended by SIGSYS (signal 31)");
        assert_eq!(WorkerExit::Signal(40).to_string(), "was ended by signal 40");
        assert!(WorkerExit::LeaseEnded.to_string().contains("lease"));
        assert!(WorkerExit::Code(4).hint().unwrap().contains("descriptors"));
        assert_eq!(WorkerExit::Code(1).hint(), None);
    }
}
