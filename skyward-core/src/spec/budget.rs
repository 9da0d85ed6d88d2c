//! What a pool may cost.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::spec::Limits;

/// What a pool may cost: a rate, a sum, a time, or any of them.
///
/// No machine is launched that would break one of them, neither for the pool's start nor to replace another or to grow. When what is left of the sum or of the time just covers
/// [`Limits::shutdown`] and two minutes (or half of the budget, if that is less), the pool takes no tasks any more, lets those that run go on for as long as that allows, and ends; its tasks fail with
/// [`ErrorKind::Budget`]. Each machine also ends by itself when its share of the sum or the time is over, where its provider has keepers, so that both hold when the client is dead.
///
/// Spent is what machines cost by the prices of their offers, from the launch of each until the provider reports it as released. Disks, addresses, traffic and taxes are not counted.
///
/// ```
/// use skyward_core::spec::Budget;
///
/// let budget = Budget::usd_per_hour(8.0).usd(50.0).hours(6.0);
/// let time_alone = Budget::default().hours(0.5);
/// # assert!(budget.usd == Some(50.0) && time_alone.usd_per_hour.is_none());
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
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
    /// At most so many US dollars per hour for all machines together.
    pub fn usd_per_hour(usd_per_hour: f64) -> Self {
        Self { usd_per_hour: Some(usd_per_hour), ..Self::default() }
    }

    /// The same, and at most so many US dollars in all.
    #[must_use]
    pub fn usd(mut self, usd: f64) -> Self {
        self.usd = Some(usd);
        self
    }

    /// The same, and at most so many hours.
    #[must_use]
    pub fn hours(mut self, hours: f64) -> Self {
        self.hours = Some(hours);
        self
    }

    /// Whether prices must be known to keep to it.
    pub fn is_in_dollars(&self) -> bool {
        self.usd_per_hour.is_some() || self.usd.is_some()
    }

    /// The hours as a time.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.hours.map(|hours| seconds(hours * 3600.0))
    }

    /// Checks that it can be kept to.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for what is no number, negative, or zero.
    pub fn check(&self) -> Result<()> {
        for (name, value) in [("usd_per_hour", self.usd_per_hour), ("usd", self.usd), ("hours", self.hours)] {
            if let Some(value) =
                value.filter(|value| !value.is_finite() || *value < 0.0 || name == "hours" && *value <= 0.0)
            {
                let what = format!("`Budget::{name}` is {value}, and no pool can keep to that");
                return Err(Error::new(ErrorKind::InvalidSpec, what)
                    .with_hint("give a positive number, or leave it out where there is no bound"));
            }
        }
        Ok(())
    }
}

/// What a pool has spent by the prices of its offers: machines alone, without disks, addresses and traffic.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Spent {
    /// US dollars until now.
    pub usd: f64,
    /// US dollars per hour for the machines that are not confirmed released.
    pub usd_per_hour: f64,
    /// Hours of machines until now.
    pub machine_hours: f64,
}

/// Its bounds: `$8.00/h, $50.00, 6 h`; `none` without one.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { usd_per_hour, usd, hours } = self;
        let rate = usd_per_hour.map(|rate| format!("${rate:.2}/h"));
        let parts = [rate, usd.map(|usd| format!("${usd:.2}")), hours.map(|hours| format!("{hours} h"))];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&if parts.is_empty() { "none".to_owned() } else { parts.join(", ") })
    }
}

/// As a duration that can be counted, whatever it is.
pub(crate) fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Limits::LONGEST).min(Limits::LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_can_be_kept_to_are_taken() {
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
