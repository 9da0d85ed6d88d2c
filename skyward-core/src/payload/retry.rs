//! After which causes a task is retried, and how often.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::Cause;

/// How often a task is retried, for each [`Cause`] separately.
///
/// | cause | retries by default |
/// |---|---|
/// | [`Crash`](Cause::Crash) | 0 |
/// | [`OutOfMemory`](Cause::OutOfMemory) | 0 |
/// | [`NodeLost`](Cause::NodeLost) | 2 |
/// | [`Preempted`](Cause::Preempted) | 5 |
/// | [`PeerLost`](Cause::PeerLost) | 5 |
/// | [`Stalled`](Cause::Stalled) | 0 |
/// | [`Raised`](Cause::Raised) | 0 |
///
/// By default, a task is retried after a cause that is outside of it, and not after one that it may
/// have caused itself. A task that ends its worker repeatedly is not retried, whatever the policy:
/// see [`Limits::poison`](crate::spec::Limits::poison).
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::error::Cause;
/// use skyward::payload::RetryPolicy;
///
/// let policy = RetryPolicy::default().crash(1).preempted(20);
/// assert_eq!(policy.limit(Cause::Crash), 1);
/// assert_eq!(policy.limit(Cause::Preempted), 20);
/// assert_eq!(policy.limit(Cause::Raised), 0);
/// assert_eq!(policy.limit(Cause::NodeLost), 2);
/// ```
///
/// With serde, a policy is a map from causes to numbers, such as `{"crash": 1, "preempted": 20}`; a
/// cause that is missing has its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a policy has no effect until you set it: `.retry(policy)` on a call, or `PoolBuilder::tasks`"]
pub struct RetryPolicy([u32; Cause::ALL.len()]);

impl RetryPolicy {
    /// No retries, whatever the cause.
    pub fn never() -> Self {
        Self::times(0)
    }

    /// Up to `count` retries after each cause, even if the payload raised an exception.
    pub fn times(count: u32) -> Self {
        Self([count; Cause::ALL.len()])
    }

    /// The default policy of calls that payloads make: as for tasks, and one retry after the worker
    /// crashed or the machine was out of memory, because a caller waits for the call.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::error::Cause;
    /// use skyward::payload::RetryPolicy;
    ///
    /// let policy = RetryPolicy::for_calls();
    /// assert_eq!(policy.limit(Cause::Crash), 1);
    /// assert_eq!(policy.limit(Cause::OutOfMemory), 1);
    /// assert_eq!(policy.limit(Cause::NodeLost), 2);
    /// assert_eq!(policy.limit(Cause::Preempted), 5);
    /// ```
    pub fn for_calls() -> Self {
        Self::default().crash(1).out_of_memory(1)
    }

    /// Sets the number of retries after this cause.
    pub fn on(mut self, cause: Cause, count: u32) -> Self {
        self.0[cause.index()] = count;
        self
    }

    /// Sets the number of retries after the worker's process ended while it ran the task.
    pub fn crash(self, count: u32) -> Self {
        self.on(Cause::Crash, count)
    }

    /// Sets the number of retries after the kernel ended the worker because the machine was out of
    /// memory.
    pub fn out_of_memory(self, count: u32) -> Self {
        self.on(Cause::OutOfMemory, count)
    }

    /// Sets the number of retries after the node was lost.
    pub fn node_lost(self, count: u32) -> Self {
        self.on(Cause::NodeLost, count)
    }

    /// Sets the number of retries after the provider took the machine back, or its walltime was
    /// over.
    pub fn preempted(self, count: u32) -> Self {
        self.on(Cause::Preempted, count)
    }

    /// Sets the number of retries after the world ended because another of its workers was lost.
    pub fn peer_lost(self, count: u32) -> Self {
        self.on(Cause::PeerLost, count)
    }

    /// Sets the number of retries after the gang made no progress.
    pub fn stall(self, count: u32) -> Self {
        self.on(Cause::Stalled, count)
    }

    /// Sets the number of retries after the payload raised an exception.
    pub fn raised(self, count: u32) -> Self {
        self.on(Cause::Raised, count)
    }

    /// The number of retries after this cause.
    pub fn limit(&self, cause: Cause) -> u32 {
        self.0[cause.index()]
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::never().node_lost(2).preempted(5).peer_lost(5)
    }
}

impl Serialize for RetryPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Cause::ALL.map(|cause| (cause, self.limit(cause))))
    }
}

impl<'de> Deserialize<'de> for RetryPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let limits = BTreeMap::<Cause, u32>::deserialize(deserializer)?;
        Ok(limits.into_iter().fold(Self::default(), |policy, (cause, count)| policy.on(cause, count)))
    }
}

/// The causes after which a task is retried: `node lost: 2, preempted: 5`; `never` if there is none.
impl fmt::Display for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retried = Cause::ALL.into_iter().filter(|cause| self.limit(*cause) > 0);
        let parts: Vec<String> = retried.map(|cause| format!("{cause}: {}", self.limit(cause))).collect();
        f.write_str(&if parts.is_empty() { "never".to_owned() } else { parts.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_a_map_of_causes() {
        let policy = RetryPolicy::default().crash(1);
        let json = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<RetryPolicy>(&json).unwrap(), policy, "{json}");
        assert_eq!(serde_json::from_str::<RetryPolicy>(r#"{"crash": 1}"#).unwrap(), policy);
        let error = serde_json::from_str::<RetryPolicy>(r#"{"crush": 1}"#).unwrap_err().to_string();
        assert!(error.contains("unknown variant `crush`") && error.contains("`crash`"), "{error}");
        assert_eq!(policy.to_string(), "crash: 1, node lost: 2, preempted: 5, peer lost: 5");
        assert_eq!(RetryPolicy::never().to_string(), "never");
    }
}
