//! The times of hosts that are reached by SSH, by what they bound.

use std::time::Duration;

/// How long a host may take to answer a claim, or to end a machine: processes may have to end
/// first.
pub(crate) const CLAIMING: Duration = Duration::from_secs(45);
/// How long a claim waits for a host while another one can be tried instead.
pub(crate) const CLAIM_ELSEWHERE: Duration = Duration::from_secs(8);
/// How long a claim of a client that was killed may take to begin.
pub(crate) const CLAIM_SETTLES: Duration = Duration::from_secs(1);
/// How long a host may take to answer, including the connection.
pub(crate) const HOST_ANSWER: Duration = Duration::from_secs(20);
/// How long a host that could not be reached is tried last.
pub(crate) const TRIED_LAST: Duration = Duration::from_secs(10);
