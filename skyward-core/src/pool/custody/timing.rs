//! The times of what a pool owns, by what they bound.

use std::time::Duration;

/// The age from which an unfinished file counts as abandoned.
pub(crate) const ABANDONED: Duration = Duration::from_secs(3600);
/// Allows for clocks that differ, and for a keeper that checks a little later.
pub(crate) const CLOCK_MARGIN: Duration = Duration::from_secs(60);
/// How long to wait for a disk that does not answer.
pub(crate) const DISK_ANSWER: Duration = Duration::from_secs(10);
/// The pause after the first round that ends machines; each later pause is twice as long.
pub(crate) const END_PAUSE: Duration = Duration::from_millis(2);
/// The least time for ending the machines, even if the deadline has passed already.
pub(crate) const LEAST_END: Duration = Duration::from_secs(2);
/// The longest pause between two rounds that end machines.
pub(crate) const LONGEST_END_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two looks for a machine that was requested and is not listed.
pub(crate) const LONGEST_LISTING_PAUSE: Duration = Duration::from_millis(500);
/// How long a part may take to report its identity. A part that has just failed to answer reports
/// that at once.
pub(crate) const PART_ANSWER: Duration = Duration::from_secs(30);
/// How long the machines of one pool may take to be gone.
pub(crate) const POOL_GONE: Duration = Duration::from_secs(120);
/// How long released machines may hold what the machines of their pool shared.
pub(crate) const SHARED_FREE: Duration = Duration::from_secs(900);
/// How long the end of a pool waits for released machines to free what the machines of the pool
/// shared, before it goes on without its caller.
pub(crate) const SHARED_FREE_SOON: Duration = Duration::from_secs(15);
