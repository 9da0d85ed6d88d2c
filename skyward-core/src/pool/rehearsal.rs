//! The result of a rehearsal of a call (findings, results, times), and its limits.

mod finding;
mod observed;
mod play;
mod rehearse;
mod timing;

use std::fmt;
use std::time::Duration;

pub use finding::{Finding, FindingKind};

use self::timing::SHORTEST_LIMIT;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::PoolId;
use crate::spec::{Limits, setters};

/// The result of [`PoolBuilder::rehearse`](super::PoolBuilder::rehearse). `Display` formats it as a
/// report.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rehearsal<T> {
    /// The name of the payload's entry function.
    pub entry: String,
    /// The number of ranks that the payload ran on.
    pub ranks: u32,
    /// The number of CPU devices that JAX had in each rank.
    pub devices: u32,
    /// The findings in the order in which they occurred; hints come last.
    pub findings: Vec<Finding>,
    /// What the payload returned, by rank; `None` unless it returned on all ranks.
    pub results: Option<Vec<T>>,
    /// The time until all workers had entered their hooks; `None` if that did not happen.
    pub start_took: Option<Duration>,
    /// The time until the call returned or failed; `None` if the call did not begin.
    pub run_took: Option<Duration>,
    /// The id of the rehearsed pool, as used in logs; `None` if the pool did not become ready.
    pub pool: Option<PoolId>,
}

/// Limits for the parts of a rehearsal. Building the environment has the pool's own
/// [`Limits::environment`].
///
/// ```
/// # use skyward_core as skyward;
/// use std::time::Duration;
///
/// use skyward::pool::RehearsalLimits;
///
/// let limits = RehearsalLimits::default().call(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RehearsalLimits {
    /// The time to make the nodes ready, and after that the time to enter the hooks. Where the
    /// pool's own [`Limits::start`] or [`Limits::hooks`] is shorter, the shorter limit applies.
    ///
    /// Default: 5 minutes.
    pub start: Duration,
    /// The time from the call to its return on all ranks.
    ///
    /// Default: 10 minutes.
    pub call: Duration,
    /// The time after which a gang is ended if none of its ranks made progress; the finding shows
    /// where each rank was. Compiling a model without output must fit in. If no rank makes progress
    /// for half of this time and the gang then goes on, [`FindingKind::Silence`] reports it.
    ///
    /// Default: 60 seconds.
    pub stall: Duration,
}

impl Default for RehearsalLimits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { start: seconds(300), call: seconds(600), stall: seconds(60) }
    }
}

setters! { RehearsalLimits { start: Duration, call: Duration, stall: Duration } }

impl RehearsalLimits {
    /// Refuses limits that are too short to be of use, and cuts the others to [`Limits::LONGEST`].
    pub(super) fn checked(self) -> Result<Self> {
        let Self { start, call, stall } = self;
        for (name, value) in [("start", start), ("call", call), ("stall", stall)] {
            if value < SHORTEST_LIMIT {
                let what = format!("`RehearsalLimits::{name}` is {value:?}; it can be {SHORTEST_LIMIT:?} or more");
                return Err(Error::new(ErrorKind::InvalidSpec, what).with_hint(
                    "a shorter limit passes before a worker can report anything; the default suits most payloads",
                ));
            }
        }
        let countable = |value: Duration| value.min(Limits::LONGEST);
        Ok(Self { start: countable(start), call: countable(call), stall: countable(stall) })
    }
}

impl<T> Rehearsal<T> {
    /// Whether the payload returned on all ranks and all findings are hints.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_too_short_are_refused_by_name() {
        let limits = RehearsalLimits { stall: Duration::ZERO, ..RehearsalLimits::default() };
        let error = limits.checked().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec);
        assert_eq!(error.message(), "`RehearsalLimits::stall` is 0ns; it can be 1s or more");
        let endless = RehearsalLimits { start: Duration::MAX, call: Duration::MAX, stall: Duration::MAX };
        assert_eq!(endless.checked().unwrap().call, Limits::LONGEST);
    }
}
