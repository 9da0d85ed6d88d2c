//! The times of machines on the client's own host, by what they bound.

use std::time::Duration;

/// How long processes may take to disappear after SIGKILL.
pub(crate) const KILLED_GONE: Duration = Duration::from_secs(10);
/// How long to wait for a lock of another process.
pub(crate) const LOCK: Duration = Duration::from_secs(20);
/// The pause between two tries to lock.
pub(crate) const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// The pause between two looks at the processes of the host.
pub(crate) const PROCESSES_PAUSE: Duration = Duration::from_millis(2);
/// How long looks are repeated because a process replaces its program.
pub(crate) const REPLACING: Duration = Duration::from_secs(2);
/// How long resource trackers may work after the first look.
pub(crate) const TRACKING: Duration = Duration::from_secs(1);
