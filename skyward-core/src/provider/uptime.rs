//! The clock of this machine that nobody can set.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment on the clock that begins with a boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Moment {
    boot: String,
    up_ms: u64,
}

impl Moment {
    /// Now; `None` where the machine does not tell its uptime.
    pub(super) fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/uptime").ok()?;
        let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
        Some(Self { boot: boot()?, up_ms: (seconds * 1000.0) as u64 })
    }

    /// A moment before this boot.
    pub(super) fn of_another_boot() -> Self {
        Self { boot: String::new(), up_ms: 0 }
    }

    /// How long ago this was. A moment of another boot was at least as long ago as this boot.
    pub(super) fn age(&self, now: &Self) -> Duration {
        let since = if self.boot == now.boot { self.up_ms } else { 0 };
        Duration::from_millis(now.up_ms.saturating_sub(since))
    }
}

/// The id of this boot.
pub(super) fn boot() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_measured_within_a_boot_and_is_the_whole_boot_otherwise() {
        let at = |boot: &str, up_ms| Moment { boot: boot.to_owned(), up_ms };
        assert_eq!(at("a", 2000).age(&at("a", 5000)), Duration::from_secs(3));
        assert_eq!(at("a", 9000).age(&at("b", 5000)), Duration::from_secs(5));
        assert_eq!(at("a", 9000).age(&at("a", 5000)), Duration::ZERO);
        assert_eq!(Moment::now().unwrap().boot, boot().unwrap());
    }
}
