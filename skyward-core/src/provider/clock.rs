//! The clock of what machines cost and of how long they are there. A machine is paid for while its
//! client's host is suspended, and [`Instant::now`] does not count that time.

use std::time::{Duration, Instant};

/// Now, with all time for which the host was suspended since it booted. Compare it only with other
/// times of this clock.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::provider::clock;
///
/// let launched = clock::now();
/// // A machine is not listed at once.
/// assert!(clock::since(launched).as_secs() < 60);
/// ```
pub fn now() -> Instant {
    let now = tokio::time::Instant::now().into_std();
    now.checked_add(suspended()).unwrap_or(now)
}

/// How long ago `then` was, which is of this clock; nothing if it is later than now.
pub fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// When a timer is due at this time, unless the host is suspended before.
pub(crate) fn timer(at: Instant) -> tokio::time::Instant {
    tokio::time::Instant::now() + at.saturating_duration_since(now())
}

/// For how long the host was suspended since it booted.
#[cfg(all(target_os = "linux", not(test)))]
fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    read(ClockId::Boottime).saturating_sub(read(ClockId::Monotonic))
}

#[cfg(not(any(target_os = "linux", test)))]
fn suspended() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
thread_local! {
    /// For how long the host of this test was suspended.
    pub(crate) static SUSPENDED: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

#[cfg(test)]
fn suspended() -> Duration {
    SUSPENDED.get()
}
