//! The times of preparing a machine, by what they bound.

use std::time::Duration;

/// How long the start of an agent may take, where `Limits::start` does not allow less. Several nodes
/// may share one host, and their agents start at the same time.
pub(crate) const AGENT_START: Duration = Duration::from_secs(180);
/// How long to wait for the locks of apt: a machine's own updates after its first start take
/// minutes.
pub(crate) const APT_LOCK: Duration = Duration::from_secs(300);
/// How long a step may take that downloads nothing.
pub(crate) const STEP_WITHOUT_DOWNLOAD: Duration = Duration::from_secs(60);
/// By how much the clocks of a machine and of the client may differ without harm.
pub(crate) const TOLERATED_CLOCK_DIFFERENCE: Duration = Duration::from_secs(120);
