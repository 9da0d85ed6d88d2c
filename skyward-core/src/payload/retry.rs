//! What is tried again, and how often.

use crate::error::Cause;

/// How often a task is tried again, for each [`Cause`] on its own.
///
/// | cause | further tries by default |
/// |---|---|
/// | [`Crash`](Cause::Crash) | 0 |
/// | [`OutOfMemory`](Cause::OutOfMemory) | 0 |
/// | [`NodeLost`](Cause::NodeLost) | 2 |
/// | [`Preempted`](Cause::Preempted) | 5 |
/// | [`PeerLost`](Cause::PeerLost) | 5 |
/// | [`Stall`](Cause::Stall) | 0 |
/// | [`Raised`](Cause::Raised) | 0 |
///
/// What the task may be to blame for is not tried again unless it is said; what it cannot help is. A task that ends its worker again and again is not tried again
/// whatever stands here: see [`Limits::poison`](crate::spec::Limits::poison).
///
/// ```
/// use skyward_core::{error::Cause, payload::RetryPolicy};
///
/// let policy = RetryPolicy::default().crash(1).preempted(20);
/// assert_eq!((policy.limit(Cause::Crash), policy.limit(Cause::Preempted), policy.limit(Cause::Raised)), (1, 20, 0));
/// assert_eq!(policy.limit(Cause::NodeLost), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a policy is given to a call, `.retry(policy)`, or to a pool's tasks"]
pub struct RetryPolicy([u32; Cause::ALL.len()]);

impl RetryPolicy {
    /// Never tries again, whatever the cause.
    pub fn never() -> Self {
        Self::times(0)
    }

    /// Tries again up to `count` times after each cause, also when the payload raised.
    pub fn times(count: u32) -> Self {
        Self([count; Cause::ALL.len()])
    }

    /// What a call that a payload makes gets by default: one further try after its worker ended or the
    /// machine was out of memory, as its caller waits, and otherwise what tasks get.
    ///
    /// ```
    /// use skyward_core::{error::Cause, payload::RetryPolicy};
    ///
    /// let policy = RetryPolicy::for_calls();
    /// assert_eq!((policy.limit(Cause::Crash), policy.limit(Cause::OutOfMemory)), (1, 1));
    /// assert_eq!((policy.limit(Cause::NodeLost), policy.limit(Cause::Preempted)), (2, 5));
    /// ```
    pub fn for_calls() -> Self {
        Self::default().crash(1).out_of_memory(1)
    }

    /// Further tries after this cause.
    pub fn on(mut self, cause: Cause, count: u32) -> Self {
        self.0[cause.index()] = count;
        self
    }

    /// Further tries after the worker's process ended while it ran the task.
    pub fn crash(self, count: u32) -> Self {
        self.on(Cause::Crash, count)
    }

    /// Further tries after the worker was ended because the machine was out of memory.
    pub fn out_of_memory(self, count: u32) -> Self {
        self.on(Cause::OutOfMemory, count)
    }

    /// Further tries after the node was lost.
    pub fn node_lost(self, count: u32) -> Self {
        self.on(Cause::NodeLost, count)
    }

    /// Further tries after the provider took the machine back.
    pub fn preempted(self, count: u32) -> Self {
        self.on(Cause::Preempted, count)
    }

    /// Further tries after the world ended because another of its workers was lost.
    pub fn peer_lost(self, count: u32) -> Self {
        self.on(Cause::PeerLost, count)
    }

    /// Further tries after the gang made no progress.
    pub fn stall(self, count: u32) -> Self {
        self.on(Cause::Stall, count)
    }

    /// Further tries after the payload raised.
    pub fn raised(self, count: u32) -> Self {
        self.on(Cause::Raised, count)
    }

    /// How many further tries this cause gets.
    pub fn limit(&self, cause: Cause) -> u32 {
        self.0[cause.index()]
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::never().node_lost(2).preempted(5).peer_lost(5)
    }
}
