//! The times of checkpoints, by what they bound.

use std::time::Duration;

/// The age at which the owner of a name no longer keeps others from taking it. An owner renews its
/// hold each 20 s.
pub(super) const OWNER_AGE: Duration = Duration::from_secs(60);
/// How long a call that fails for now is repeated.
pub(super) const REPEATS: Duration = Duration::from_secs(60);
/// The pause before the first repetition; twice as long each time.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two repetitions.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);
