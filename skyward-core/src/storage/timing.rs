//! The times of storages, by what they bound.

use std::time::Duration;

/// How long a storage may take to answer: a network file system that hangs never does.
pub(super) const STORAGE_ANSWER: Duration = Duration::from_secs(120);
/// How long the check of a storage may take.
pub(super) const STORAGE_CHECK: Duration = Duration::from_secs(60);
/// The pause before a storage that failed for now is checked again; longer by as much each time.
pub(super) const CHECK_PAUSE: Duration = Duration::from_millis(200);
/// How long what a failed check has left is tried to be removed.
pub(super) const CHECK_REMOVAL: Duration = Duration::from_secs(10);
/// The age from which the leftover of a writer that has died is removed from a folder.
pub(super) const LEFTOVER_AGE: Duration = Duration::from_secs(24 * 3600);
