//! What a rehearsal of a call has shown: findings, results, times.

mod devices;
mod finding;
mod play;
mod told;

use std::fmt;
use std::time::Duration;

pub(super) use devices::with_cpu_devices;
pub use finding::{Finding, FindingKind};
pub(super) use play::{Rehearsed, play};

use crate::error::{Error, ErrorKind, Result};
use crate::ids::PoolId;
use crate::spec::Limits;

/// What [`PoolBuilder::rehearse`](super::PoolBuilder::rehearse) has shown. It displays as a report.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rehearsal<T> {
    /// The payload's entry.
    pub entry: String,
    /// On how many ranks it ran.
    pub ranks: u32,
    /// How many CPU devices JAX had in each.
    pub devices: u32,
    /// What was found, in the order in which it came; hints are last.
    pub findings: Vec<Finding>,
    /// What the payload returned, by rank, where it returned on all of them.
    pub results: Option<Vec<T>>,
    /// How long it took until all workers had entered their hooks, where they did.
    pub start_took: Option<Duration>,
    /// How long the call took until it returned or failed, where it began.
    pub run_took: Option<Duration>,
    /// The rehearsed pool, as it stands in logs, where it was ready.
    pub pool: Option<PoolId>,
}

/// How long the parts of a rehearsal may take. Building the environment has the pool's own [`Limits::environment`].
///
/// ```
/// use std::time::Duration;
/// use skyward_core::pool::RehearsalLimits;
///
/// let mut limits = RehearsalLimits::default();
/// limits.call = Duration::from_secs(60);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RehearsalLimits {
    /// Making the nodes ready, and then entering the hooks; 5 minutes. Where the pool's own
    /// [`Limits::start`] or [`Limits::hooks`] is shorter, that counts.
    pub start: Duration,
    /// From the call to its return on all ranks; 10 minutes.
    pub call: Duration,
    /// How long no rank of a gang may make progress until the call is ended, with where each rank
    /// was; 60 seconds. Compiling a model in silence must fit in. Half as long is told as
    /// [`FindingKind::Silence`], where the gang then goes on.
    pub stall: Duration,
}

impl Default for RehearsalLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { start: seconds(300), call: seconds(600), stall: seconds(60) }
    }
}

impl RehearsalLimits {
    /// Each no larger than can be counted, and none too short to be of use.
    pub(super) fn checked(self) -> Result<Self> {
        let Self { start, call, stall } = self;
        for (name, value) in [("start", start), ("call", call), ("stall", stall)] {
            if value < SHORTEST {
                let what = format!("`RehearsalLimits::{name}` is {value:?}; it can be {SHORTEST:?} or more");
                return Err(Error::new(ErrorKind::InvalidSpec, what).with_hint(
                    "a shorter one is over before a worker can say anything; the default suits most payloads",
                ));
            }
        }
        let countable = |value: Duration| value.min(Limits::LONGEST);
        Ok(Self { start: countable(start), call: countable(call), stall: countable(stall) })
    }
}

impl<T> Rehearsal<T> {
    /// Whether the payload returned on all ranks, and nothing was found but hints.
    pub fn is_clean(&self) -> bool {
        self.results.is_some() && self.findings.iter().all(Finding::is_hint)
    }
}

impl<T> fmt::Display for Rehearsal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, ranks, devices, findings, start_took, run_took, .. } = self;
        let problems = findings.iter().filter(|finding| !finding.is_hint()).count();
        let found = match problems {
            0 => "no problem was found".to_owned(),
            one_or_more => plural(one_or_more, "problem"),
        };
        let (ranks, devices) = (plural(*ranks as usize, "rank"), plural(*devices as usize, "device"));
        write!(f, "rehearsal of `{entry}` on {ranks} × {devices}: {found}")?;
        match (start_took, run_took) {
            (Some(start), Some(run)) => write!(f, "\nready after {start:.1?}, ran for {run:.1?}")?,
            (Some(start), None) => write!(f, "\nready after {start:.1?}")?,
            (None, _) => f.write_str("\nnothing ran")?,
        }
        for (number, finding) in (1..).zip(findings) {
            write!(f, "\n\n{number}. {}", finding.to_string().replace('\n', "\n   "))?;
        }
        Ok(())
    }
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A sign of progress arrives up to 0.2 s late.
const SHORTEST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_of_no_use_are_refused_by_name() {
        let limits = RehearsalLimits { stall: Duration::ZERO, ..RehearsalLimits::default() };
        let error = limits.checked().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert_eq!(error.message(), "`RehearsalLimits::stall` is 0ns; it can be 1s or more");
        let endless = RehearsalLimits { start: Duration::MAX, call: Duration::MAX, stall: Duration::MAX };
        assert_eq!(endless.checked().unwrap().call, Limits::LONGEST);
    }
}
