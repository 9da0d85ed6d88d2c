//! What a pool may cost.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::spec::Limits;

/// What a pool may cost: a rate, a sum, a time, or several of them.
///
/// The budget has these effects:
///
/// - The pool launches no machine that would exceed a bound, neither at its start nor to replace a
///   machine or to grow.
/// - When the rest of the sum or of the time just covers [`Limits::shutdown`] and two minutes (or
///   half of the budget, if that is less), the pool takes no tasks any more. Running tasks continue
///   for as long as the rest allows, then the pool ends, and its tasks fail with
///   [`ErrorKind::Budget`].
/// - If the provider has keepers, each machine also ends by itself when its share of the sum or of
///   the time is over. So both bounds hold even if the client is dead.
///
/// The cost of a machine is the price of its offer, from the launch until the provider reports the
/// machine as released. Disks, addresses, traffic and taxes do not count.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::spec::Budget;
///
/// let budget = Budget::usd_per_hour(8.0).usd(50.0).hours(6.0);
/// let time_alone = Budget::default().hours(0.5);
/// # assert!(budget.usd == Some(50.0) && time_alone.usd_per_hour.is_none());
/// ```
///
/// With serde, a missing bound is none, and a name that is no bound is an error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Budget {
    /// US dollars per hour for all machines together.
    pub usd_per_hour: Option<f64>,
    /// US dollars for the pool's whole life.
    pub usd: Option<f64>,
    /// Hours from the launch of the first machine until the last one is gone.
    pub hours: Option<f64>,
}

impl Budget {
    /// At most this many US dollars per hour for all machines together.
    pub fn usd_per_hour(usd_per_hour: f64) -> Self {
        Self { usd_per_hour: Some(usd_per_hour), ..Self::default() }
    }

    /// The same budget, and at most this many US dollars in total.
    #[must_use]
    pub fn usd(mut self, usd: f64) -> Self {
        self.usd = Some(usd);
        self
    }

    /// The same budget, and at most this many hours.
    #[must_use]
    pub fn hours(mut self, hours: f64) -> Self {
        self.hours = Some(hours);
        self
    }

    /// Whether the budget has a bound in dollars, so that the pool needs to know prices.
    pub fn is_in_dollars(&self) -> bool {
        self.usd_per_hour.is_some() || self.usd.is_some()
    }

    /// The bound in hours, as a duration.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.hours.map(|hours| seconds(hours * 3600.0))
    }

    /// Checks that a pool can keep to the budget.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] if a bound is negative or not a finite number, or if the hours
    /// are zero.
    pub fn check(&self) -> Result<()> {
        for (name, value) in [("usd_per_hour", self.usd_per_hour), ("usd", self.usd), ("hours", self.hours)] {
            if let Some(value) =
                value.filter(|value| !value.is_finite() || *value < 0.0 || name == "hours" && *value <= 0.0)
            {
                let what = format!("`Budget::{name}` is {value}, which no pool can keep to");
                return Err(Error::new(ErrorKind::InvalidSpec, what)
                    .with_hint("give a positive number, or omit it to set no bound"));
            }
        }
        Ok(())
    }
}

/// What a pool has spent on machines, by the prices of their offers. Disks, addresses and traffic
/// do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Spent {
    /// US dollars so far.
    pub usd: f64,
    /// US dollars per hour for the machines that the provider has not confirmed as released.
    pub usd_per_hour: f64,
    /// Machine hours so far.
    pub machine_hours: f64,
}

/// The bounds: `$8.00/h, $50.00, 6 h`; `none` if there is none.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { usd_per_hour, usd, hours } = self;
        let rate = usd_per_hour.map(|rate| format!("${rate:.2}/h"));
        let parts = [rate, usd.map(|usd| format!("${usd:.2}")), hours.map(|hours| format!("{hours} h"))];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&if parts.is_empty() { "none".to_owned() } else { parts.join(", ") })
    }
}

/// Any number of seconds as a duration between zero and [`Limits::LONGEST`].
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Limits::LONGEST).min(Limits::LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bounds_that_a_pool_can_keep_to_are_accepted() {
        for wrong in [
            Budget::usd_per_hour(f64::NAN),
            Budget::usd_per_hour(-1.0),
            Budget::default().usd(f64::INFINITY),
            Budget::default().hours(0.0),
        ] {
            assert_eq!(wrong.check().unwrap_err().kind(), ErrorKind::InvalidSpec, "{wrong:?}");
        }
        Budget::usd_per_hour(8.0).usd(0.0).hours(1e300).check().unwrap();
        assert_eq!(Budget::default().hours(1e300).time(), Some(Limits::LONGEST));
        assert_eq!(Budget::default().hours(0.5).time(), Some(Duration::from_secs(1800)));
    }
}
