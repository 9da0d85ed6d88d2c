//! Deadlines and bounds.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::unlimited;
use crate::error::{Error, ErrorKind, Result};

/// Deadlines and bounds of a pool. The defaults suit a local pool and a cluster alike.
///
/// - [`Duration::MAX`], `u32::MAX` and `usize::MAX` mean no limit.
/// - A limit that is too small to be useful is an error when the pool is built: see
///   [`check`](Self::check).
/// - A duration above [`Limits::LONGEST`] counts as [`Limits::LONGEST`], and a size above the
///   largest possible one as the largest possible one.
///
/// ```
/// # use skyward_core as skyward;
/// use std::time::Duration;
///
/// use skyward::spec::Limits;
///
/// let limits = Limits::default().hooks(Duration::MAX).max_queued(usize::MAX);
/// limits.check()?;
///
/// let error = limits.lease(Duration::from_millis(10)).check().unwrap_err();
/// assert_eq!(error.message(), "`Limits::lease` is 10ms; it can be 1s or more");
/// # Ok::<(), skyward::Error>(())
/// ```
///
/// With serde, a duration is a number of seconds, `"unlimited"` means no limit, and what is missing
/// has its default. A name that is no limit is an error.
///
/// ```
/// # use skyward_core as skyward;
/// let limits: skyward::spec::Limits = serde_json::from_str(r#"{"start": 1800, "hooks": "unlimited"}"#)?;
/// assert_eq!(limits.start.as_secs(), 1800);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Limits {
    /// The time from the start of the pool until it is ready, without the time that building the
    /// environment takes.
    ///
    /// Default: 10 minutes.
    #[serde(with = "unlimited::seconds")]
    pub start: Duration,
    /// How long a provider may keep a machine in its queue, as a batch system does. This time does
    /// not count for [`start`](Self::start).
    ///
    /// Default: 1 hour.
    #[serde(with = "unlimited::seconds")]
    pub machine_wait: Duration,
    /// How long building the environment may take (resolving, downloading, installing).
    ///
    /// Default: 30 minutes.
    #[serde(with = "unlimited::seconds")]
    pub environment: Duration,
    /// How long all workers may take to enter their hooks: to join the world, to import frameworks.
    ///
    /// Default: 5 minutes.
    #[serde(with = "unlimited::seconds")]
    pub hooks: Duration,
    /// How long a cancelled task or a stopping worker has to end before it is killed. Zero kills it
    /// at once.
    ///
    /// Default: 5 seconds.
    #[serde(with = "unlimited::seconds")]
    pub grace: Duration,
    /// The node's countdown to self-termination. The client renews it every quarter of this time.
    /// At least 1 second.
    ///
    /// Default: 60 seconds.
    #[serde(with = "unlimited::seconds")]
    pub lease: Duration,
    /// How long a scope may take at its end to end its machines.
    ///
    /// Default: 30 seconds.
    #[serde(with = "unlimited::seconds")]
    pub shutdown: Duration,
    /// How long a gang in a joined world may run without progress of any of its ranks. After that,
    /// its world is ended with [`ErrorKind::Stalled`](crate::error::ErrorKind::Stalled), which says
    /// where each rank was. `None`: no limit.
    ///
    /// These count as progress: bytes written to standard output or standard error, an item of a
    /// stream, a rank that returns, and a call of `sky.progress()`.
    ///
    /// Default: `None`.
    #[serde(with = "unlimited::optional_seconds")]
    pub stall: Option<Duration>,
    /// How long a task may run without progress before the pool reports where it is, with
    /// [`PoolEvent::TaskStalled`](crate::event::PoolEvent::TaskStalled) and a warning. A gang in a
    /// joined world is reported as one, when none of its ranks makes progress; a task that waits for
    /// calls on other workers is not reported. [`Duration::MAX`]: no reports.
    ///
    /// The task continues to run. The pool reports it again after the task has made progress and
    /// then none for the same time. If [`stall`](Self::stall) is not longer than this limit, the
    /// error of `stall` is the only report of a gang.
    ///
    /// Default: 10 minutes.
    #[serde(with = "unlimited::seconds")]
    pub stall_report: Duration,
    /// How many workers one task may end before it counts as poison. It then fails with
    /// [`ErrorKind::Poisoned`](crate::error::ErrorKind::Poisoned), whatever its retries allow, and
    /// the pool refuses the same payload with the same arguments from then on. At least 1.
    ///
    /// Default: 3.
    #[serde(with = "unlimited::count")]
    pub poison: u32,
    /// How long a node of an elastic pool has no task before the pool releases it.
    ///
    /// Default: 2 minutes.
    #[serde(with = "unlimited::seconds")]
    pub idle: Duration,
    /// How many tasks must wait for each worker before an elastic pool grows by a node. At least 1.
    ///
    /// Default: 1.
    #[serde(with = "unlimited::count")]
    pub backlog: u32,
    /// The largest value on the wire, in bytes: arguments, results, sources. At least 1 MiB; a
    /// limit above 4 GiB counts as 4 GiB.
    ///
    /// Default: 1 GiB.
    #[serde(with = "unlimited::count")]
    pub max_frame_bytes: usize,
    /// How many tasks may wait in the pool. `submit` waits while the queue is full. At least 1.
    ///
    /// Default: 10 000.
    #[serde(with = "unlimited::count")]
    pub max_queued: usize,
    /// How many calls without an outcome the pool's tasks may have made. A further call is refused.
    /// At least 1.
    ///
    /// Calls do not count for [`max_queued`](Self::max_queued), because a task that waited for room
    /// in the queue would wait for itself.
    ///
    /// Default: 100 000.
    #[serde(with = "unlimited::count")]
    pub max_calls: usize,
    /// How many bytes of large arrays of calls the store of a node keeps as files. At least 1 MiB.
    ///
    /// To make room for a new array, the store removes arrays that no call uses, the least recently
    /// used first. If there is none to remove, the new array travels with its call.
    ///
    /// Default: 16 GiB.
    #[serde(with = "unlimited::count")]
    pub store_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(600),
            machine_wait: Duration::from_secs(3600),
            environment: Duration::from_secs(1800),
            hooks: Duration::from_secs(300),
            grace: Duration::from_secs(5),
            lease: Duration::from_secs(60),
            shutdown: Duration::from_secs(30),
            stall: None,
            stall_report: Duration::from_secs(600),
            poison: 3,
            idle: Duration::from_secs(120),
            backlog: 1,
            max_frame_bytes: 1 << 30,
            max_queued: 10_000,
            max_calls: 100_000,
            store_bytes: 16 << 30,
        }
    }
}

/// Defines a setter for each field, with the type of the field.
macro_rules! setters {
    ($limits:ident { $($name:ident: $type:ty),* $(,)? }) => {
        impl $limits {
            $(
                #[doc = concat!("Sets [`", stringify!($name), "`](field@Self::", stringify!($name), ").")]
                #[must_use]
                pub fn $name(mut self, $name: $type) -> Self {
                    self.$name = $name;
                    self
                }
            )*
        }
    };
}

pub(crate) use setters;

setters! {
    Limits {
        start: Duration,
        machine_wait: Duration,
        environment: Duration,
        hooks: Duration,
        grace: Duration,
        lease: Duration,
        shutdown: Duration,
        stall: Option<Duration>,
        stall_report: Duration,
        poison: u32,
        idle: Duration,
        backlog: u32,
        max_frame_bytes: usize,
        max_queued: usize,
        max_calls: usize,
        store_bytes: u64,
    }
}

impl Limits {
    /// The longest duration of a limit, 30 years: [`Duration::MAX`] counts as this.
    pub const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

    /// Checks that no limit is too small to be useful.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a limit that is too small. The error names the limit, its
    /// value and the least value.
    pub fn check(&self) -> Result<()> {
        let deadline = "a shorter deadline passes before anything can happen; the default suits most pools";
        let lease = "the client renews a lease every quarter of its time, over a network that may be slow for a moment";
        for (name, value, least, hint) in [
            ("start", self.start, TIMER_RESOLUTION, deadline),
            ("machine_wait", self.machine_wait, TIMER_RESOLUTION, deadline),
            ("environment", self.environment, TIMER_RESOLUTION, deadline),
            ("hooks", self.hooks, TIMER_RESOLUTION, deadline),
            ("lease", self.lease, SHORTEST_LEASE, lease),
            ("shutdown", self.shutdown, TIMER_RESOLUTION, deadline),
            ("stall", self.stall.unwrap_or(Duration::MAX), TIMER_RESOLUTION, "`None` sets no limit"),
            ("stall_report", self.stall_report, TIMER_RESOLUTION, "`Duration::MAX` disables the reports"),
            ("idle", self.idle, TIMER_RESOLUTION, "an elastic pool would release nodes between two tasks"),
        ] {
            at_least(name, value, least, hint)?;
        }
        at_least(
            "poison",
            self.poison,
            1,
            "a task counts as poison after it has ended this many workers; `u32::MAX` sets no limit",
        )?;
        let backlog = "an elastic pool grows by a node when this many tasks wait for each of its workers";
        at_least("backlog", self.backlog, 1, backlog)?;
        at_least(
            "max_queued",
            self.max_queued,
            1,
            "each task waits in the queue before it runs; `usize::MAX` sets no limit",
        )?;
        let calls = "a pool whose tasks make no calls needs no limit; `usize::MAX` sets no limit";
        at_least("max_calls", self.max_calls, 1, calls)?;
        let store = "a smaller store could not hold any array";
        at_least("store_bytes", self.store_bytes, 1 << 20, store)?;
        at_least(
            "max_frame_bytes",
            Bytes(self.max_frame_bytes),
            Bytes(1 << 20),
            "the limit also applies to the data that workers are started with",
        )
    }

    /// The same limits, each cut to the largest value that arithmetic and the wire allow.
    pub(crate) fn countable(self) -> Self {
        let Self {
            start,
            machine_wait,
            environment,
            hooks,
            grace,
            lease,
            shutdown,
            stall,
            stall_report,
            poison,
            idle,
            backlog,
            max_frame_bytes,
            max_queued,
            max_calls,
            store_bytes,
        } = self;
        Self {
            start: start.min(Self::LONGEST),
            machine_wait: machine_wait.min(Self::LONGEST),
            environment: environment.min(Self::LONGEST),
            hooks: hooks.min(Self::LONGEST),
            grace: grace.min(Self::LONGEST),
            lease: lease.min(Self::LONGEST),
            shutdown: shutdown.min(Self::LONGEST),
            stall: stall.map(|stall| stall.min(Self::LONGEST)),
            stall_report: stall_report.min(Self::LONGEST),
            poison,
            idle: idle.min(Self::LONGEST),
            backlog,
            max_frame_bytes: max_frame_bytes.min(u32::MAX as usize),
            max_queued,
            max_calls,
            store_bytes: store_bytes.min(i64::MAX as u64),
        }
    }
}

/// A number of bytes. `Debug` shows the unit.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Bytes(usize);

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

fn at_least<T: PartialOrd + fmt::Debug>(name: &str, value: T, least: T, hint: &str) -> Result<()> {
    if value >= least {
        return Ok(());
    }
    let what = format!("`Limits::{name}` is {value:?}; it can be {least:?} or more");
    Err(Error::new(ErrorKind::InvalidSpec, what).with_hint(hint))
}

/// The resolution of timers.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);
/// A network can be slow for a moment, and a lease is renewed every quarter of its time.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_file_are_read_as_they_were_written() {
        let all = Limits::default().start(Duration::from_millis(1500)).hooks(Duration::MAX).max_queued(usize::MAX);
        let all = all.stall(Some(Duration::from_secs(60))).poison(u32::MAX).store_bytes(u64::MAX);
        for limits in [Limits::default(), all] {
            let json = serde_json::to_string(&limits).unwrap();
            assert_eq!(serde_json::from_str::<Limits>(&json).unwrap(), limits, "{json}");
        }
        let some: Limits = toml::from_str("start = 90\nstall = \"unlimited\"\nmax_queued = 5").unwrap();
        let expected = Limits::default().start(Duration::from_secs(90)).stall(Some(Duration::MAX)).max_queued(5);
        assert_eq!(some, expected);
    }

    #[test]
    fn a_limit_that_is_none_is_refused_by_name() {
        for (json, part) in [
            (r#"{"strat": 1}"#, "unknown field `strat`"),
            (r#"{"start": -1}"#, "-1 seconds are no duration"),
            (r#"{"start": "10 min"}"#, "a duration is a number of seconds"),
            (r#"{"poison": 4294967296}"#, "4294967296 is too large"),
            (r#"{"max_queued": 1.5}"#, "a limit is a whole number"),
        ] {
            let error = serde_json::from_str::<Limits>(json).unwrap_err().to_string();
            assert!(error.contains(part), "{json}: {error}");
        }
    }
}
