//! The times of containers and their engine, by what they bound.

use std::time::Duration;

/// The lease of a builder that cannot see the lease of its node.
pub(crate) const BUILDER_LEASE: Duration = Duration::from_secs(3600);
/// How long an engine may take to answer one request; callers retry.
pub(crate) const ENGINE_ANSWER: Duration = Duration::from_secs(20);
/// The time between two log lines about the progress of a pull.
pub(crate) const PULL_LOG_PAUSE: Duration = Duration::from_secs(2);
