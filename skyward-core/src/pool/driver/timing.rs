//! The times of the driver, by what they bound.

use std::time::Duration;

/// How often to check whether the budget is spent.
pub(crate) const BUDGET_CHECK: Duration = Duration::from_secs(60);
/// How long the driver sleeps when nothing is due.
pub(crate) const IDLE: Duration = Duration::from_secs(3600);
/// How long to wait for the last output of a node.
pub(crate) const LAST_OUTPUT: Duration = Duration::from_secs(5);
/// How often to check whether the last tasks have ended.
pub(crate) const LAST_TASKS_CHECK: Duration = Duration::from_millis(50);
/// The pause after a panic of a provider, times the panics so far.
pub(crate) const PANIC_PAUSE: Duration = Duration::from_millis(10);
/// How long to wait before a machine is asked for again that the budget or the provider refused.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// The time that the terminal gets to show the last events.
pub(crate) const SCREEN: Duration = Duration::from_secs(1);
/// How much earlier than the time that a machine takes to be ready a successor is begun.
pub(crate) const SUCCESSOR_LEAD: Duration = Duration::from_secs(30);
/// How long to wait before another successor is tried after several could not be made ready.
pub(crate) const SUCCESSOR_PAUSE: Duration = Duration::from_secs(60);
/// How often to query the states of machines that the provider can take back.
pub(crate) const WATCH_PAUSE: Duration = Duration::from_secs(30);
