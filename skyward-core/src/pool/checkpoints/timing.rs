//! The times of checkpoints, by what they bound.

use std::time::Duration;

/// The pause before ranks are asked for their steps again, after one could not be.
pub(super) const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How often a mover is asked whether it is there: a connection without news is as silent as one that
/// is cut.
pub(super) const ATTEND_PAUSE: Duration = Duration::from_secs(5);
/// The pause before a mover that failed is reached again.
pub(super) const REACH_PAUSE: Duration = Duration::from_millis(500);
/// How often a pool renews its hold of a name.
pub(super) const RENEW_PAUSE: Duration = Duration::from_secs(20);
/// How long an owner of a name that is gone holds it, and the time to notice that.
pub(super) const OWNER_GONE: Duration = Duration::from_secs(75);
/// The pause before a name that another pool holds is tried again.
pub(super) const OWNER_PAUSE: Duration = Duration::from_secs(2);
/// How long nobody uses a name until it is given back.
pub(super) const IDLE: Duration = Duration::from_secs(30);
/// The pause before a restore is tried again; longer by as much each time.
pub(super) const RESTORE_PAUSE: Duration = Duration::from_millis(500);
/// How long a try waits for the try before it to end.
pub(super) const PREDECESSOR: Duration = Duration::from_secs(60);
/// How long the last saves of a try that has ended may make no progress until they are given up.
pub(super) const LAST_SAVES: Duration = Duration::from_secs(60);
/// How often something that waits for another process is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(200);
/// The first pause before a save that the storage did not take is repeated; twice as long each time.
pub(super) const FIRST_SAVE_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before a save that the storage did not take is repeated.
pub(super) const LONGEST_SAVE_PAUSE: Duration = Duration::from_secs(30);
/// How long the end of a pool waits until its names are given back.
pub(super) const RELEASE: Duration = Duration::from_secs(10);
