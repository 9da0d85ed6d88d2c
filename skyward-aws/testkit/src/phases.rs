//! The phases of an instance: what EC2 says of it after its launch and after its end.

use std::time::Duration;

/// How long an instance stays in each phase, by the clock of the cloud. By default, these are short
/// times, so that every test meets every phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// How long after its launch EC2 neither lists the instance nor finds it by its id.
    pub hidden: Duration,
    /// How long after its launch it is pending: it has no public address, and its system does not
    /// boot yet.
    pub pending: Duration,
    /// How long after its end it is shutting down. Until it is terminated, it has its network
    /// interface, and so uses its security groups, its placement group and its zone's capacity.
    pub ending: Duration,
}

impl Phases {
    /// An instance runs when the launch returns, and is terminated when the call that ends it
    /// returns. EC2 is never as fast.
    pub const NONE: Self = Self { hidden: Duration::ZERO, pending: Duration::ZERO, ending: Duration::ZERO };
}

impl Default for Phases {
    /// EC2 takes seconds for each, and sometimes minutes to end an instance.
    fn default() -> Self {
        Self { hidden: Duration::from_millis(100), pending: Duration::from_millis(400), ending: Duration::from_secs(2) }
    }
}

/// Where an instance is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    /// It runs, or was stopped.
    Up,
    ShuttingDown,
    Terminated,
}
