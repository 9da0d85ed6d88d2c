//! The times of the simulation, by what they bound.

use std::time::Duration;

/// How long a pool may take to end in the background.
pub(super) const BACKGROUND_END: Duration = Duration::from_secs(600);
/// How long a call may run after its caller's try: the grace time after which its worker is killed,
/// and a little more.
pub(super) const CALL_AFTER_CALLER: Duration = Duration::from_secs(3);
/// The same, if the pool may lose the caller or the call for longer than a lease.
pub(super) const CALL_AFTER_LOST_CALLER: Duration = Duration::from_secs(60);
/// The least time between two reports on one task's calls.
pub(super) const CALLS_REPORT_PAUSE: Duration = Duration::from_millis(500);
/// How long the last calls of the pool may take to end.
pub(super) const LAST_CALLS_END: Duration = Duration::from_secs(1);
/// The latest time of a machine's own death.
pub(super) const LATEST_DEATH: Duration = Duration::from_secs(40);
/// By this time, every machine that ends by itself has ended.
pub(super) const LATEST_END: Duration = Duration::from_secs(2 * 3600);
/// How long a machine may be queued.
pub(super) const MACHINE_WAIT: Duration = Duration::from_secs(150);
/// How long a whole simulation may take: longer than the sum of all deadlines of a pool and its
/// tasks.
pub(super) const PLAY: Duration = Duration::from_secs(4 * 3600);
/// How long the end of a pool may take.
pub(super) const SHUTDOWN: Duration = Duration::from_secs(60);
/// How long a gang may be without progress: shorter than its tasks may run.
pub(super) const STALL: Duration = Duration::from_secs(10);
/// How long a gang may be without progress until it is reported.
pub(super) const STALL_REPORT: Duration = Duration::from_secs(3);
/// How long a task may run.
pub(super) const TASK_RUN: Duration = Duration::from_secs(30);
