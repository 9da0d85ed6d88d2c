//! The times of machines that several providers have, by what they bound.

use std::time::Duration;

/// How long before its calculated end a machine may be gone and still count as expired.
#[cfg(any(feature = "ssh", feature = "docker"))]
pub(crate) const EARLY_END: Duration = Duration::from_secs(2);
/// How long the end of a machine is remembered.
#[cfg(any(feature = "ssh", feature = "docker"))]
pub(crate) const END_REMEMBERED: Duration = Duration::from_secs(366 * 24 * 3600);
/// How long further machines can join a call of the provider.
pub(crate) const GATHER: Duration = Duration::from_millis(10);
/// The longest lease of a record that is taken into account: more than anybody waits, and less than
/// a clock can count.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(366 * 24 * 3600);
/// The shortest lease that a keeper checks several times. With a shorter one, checking costs more
/// than it saves.
pub(crate) const SHORTEST_CHECKED_LEASE: Duration = Duration::from_millis(100);
/// The assumed lease of what an older version created, whose record has none.
pub(crate) const UNRECORDED_LEASE: Duration = Duration::from_secs(3600);
