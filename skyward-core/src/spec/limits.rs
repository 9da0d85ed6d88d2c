//! Deadlines and bounds.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Deadlines and bounds of a pool; the defaults suit a local pool and a cluster alike.
///
/// [`Duration::MAX`] means no limit, and so do `u32::MAX` and `usize::MAX`. A pool refuses a limit that is too small to be of use when it is built, see [`check`](Self::check); one that is
/// larger than anything that it bounds counts as that. No duration counts for more than [`Limits::LONGEST`].
///
/// ```
/// use std::time::Duration;
/// use skyward_core::spec::Limits;
///
/// let mut limits = Limits::default();
/// limits.hooks = Duration::MAX;
/// limits.max_queued = usize::MAX;
/// limits.check()?;
///
/// limits.lease = Duration::from_millis(10);
/// let error = limits.check().unwrap_err();
/// assert_eq!(error.message(), "`Limits::lease` is 10ms; it can be 1s or more");
/// # Ok::<(), skyward_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// From `start` to ready, without the time that building the environment takes.
    pub start: Duration,
    /// How long a machine may be queued by its provider, as a batch system does; that time does not count for [`start`](Self::start).
    pub machine_wait: Duration,
    /// Building the environment (resolving, downloading, installing).
    pub environment: Duration,
    /// Entering the hooks of all workers: joining the world, importing frameworks.
    pub hooks: Duration,
    /// What a cancelled task or a stopping worker gets before it is killed; zero kills it at once.
    pub grace: Duration,
    /// The node's countdown to self-termination, renewed by the client every quarter of it. At least 1 second.
    pub lease: Duration,
    /// What a scope takes at its end to end its machines.
    pub shutdown: Duration,
    /// How long a gang in a joined world may run without progress of any of its ranks before its world is ended with [`ErrorKind::Stalled`](crate::error::ErrorKind::Stalled), which says
    /// where each rank was. Progress is: bytes written to standard output or standard error, an
    /// item of a stream, a rank that returns, a call of `sky.progress()`. None: no gang is ended
    /// for it.
    pub stall: Option<Duration>,
    /// How long a gang in a joined world runs without progress of any of its ranks before
    /// [`PoolEvent::GangStalled`](crate::event::PoolEvent::GangStalled) and a warning say where
    /// each rank is. The gang goes on, and is told of again when it has made progress and then none
    /// for as long. Where [`stall`](Self::stall) is not longer, its error says so, and nothing
    /// before. [`Duration::MAX`] for no reports.
    pub stall_report: Duration,
    /// How many workers one task may end before it is taken for poison: it fails with [`ErrorKind::Poisoned`](crate::error::ErrorKind::Poisoned) whatever its retries allow, and the same
    /// payload with the same arguments is not taken again by this pool. At least 1.
    pub poison: u32,
    /// How long a node of an elastic pool is without a task before it is given back.
    pub idle: Duration,
    /// How many tasks for each of its workers must wait before an elastic pool grows by a node. At least 1.
    pub backlog: u32,
    /// The largest value on the wire, in bytes: arguments, results, sources. At least 1 MiB; more than 4 GiB counts as that.
    pub max_frame: usize,
    /// Tasks that may wait in the pool; `submit` waits while there are more. At least 1.
    pub max_queued: usize,
    /// Calls without an outcome that tasks of the pool may have made; a call beyond them is refused.
    /// They do not count for [`max_queued`](Self::max_queued): a task that waited there for room would
    /// wait for itself. At least 1.
    pub max_calls: usize,
    /// Bytes of large arrays of calls that the store of a node keeps as files. Those that no call
    /// uses are removed for new ones, the one that was used longest ago first; where none is left to
    /// remove, arrays travel with their calls. At least 1 MiB.
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
            max_frame: 1 << 30,
            max_queued: 10_000,
            max_calls: 100_000,
            store_bytes: 16 << 30,
        }
    }
}

impl Limits {
    /// What [`Duration::MAX`] counts for: 30 years.
    pub const LONGEST: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

    /// Checks that a pool can have these limits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for a limit that is too small to be of use: the error names it, its value, and the values that it can have.
    pub fn check(&self) -> Result<()> {
        let deadline = "a shorter deadline has passed before anything can happen; the default suits most pools";
        let lease = "a lease is renewed every quarter of it, over a network that may be slow for a moment";
        for (name, value, least, hint) in [
            ("start", self.start, SHORTEST, deadline),
            ("machine_wait", self.machine_wait, SHORTEST, deadline),
            ("environment", self.environment, SHORTEST, deadline),
            ("hooks", self.hooks, SHORTEST, deadline),
            ("lease", self.lease, SHORTEST_LEASE, lease),
            ("shutdown", self.shutdown, SHORTEST, deadline),
            ("stall", self.stall.unwrap_or(Duration::MAX), SHORTEST, "`None` ends no gang for it"),
            ("stall_report", self.stall_report, SHORTEST, "`Duration::MAX` reports no gang"),
            ("idle", self.idle, SHORTEST, "an elastic pool would give nodes back between two tasks"),
        ] {
            at_least(name, value, least, hint)?;
        }
        at_least(
            "poison",
            self.poison,
            1,
            "a task is poison after it has ended so many workers; `u32::MAX` for never",
        )?;
        let backlog = "an elastic pool grows by a node when so many tasks wait for each of its workers";
        at_least("backlog", self.backlog, 1, backlog)?;
        at_least(
            "max_queued",
            self.max_queued,
            1,
            "a task waits in the queue before it runs; `usize::MAX` for no bound",
        )?;
        at_least("max_calls", self.max_calls, 1, "a task that makes none needs no bound; `usize::MAX` for no bound")?;
        let store = "a store of this size holds no array";
        at_least("store_bytes", self.store_bytes, 1 << 20, store)?;
        at_least("max_frame", Bytes(self.max_frame), Bytes(1 << 20), "it also bounds what workers are started with")
    }

    /// The same limits, each no larger than can be counted: what no machine lives to see is no limit.
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
            max_frame,
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
            max_frame: max_frame.min(u32::MAX as usize),
            max_queued,
            max_calls,
            store_bytes: store_bytes.min(i64::MAX as u64),
        }
    }
}

/// A number of bytes, which shows as such.
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

/// A timer knows nothing shorter.
const SHORTEST: Duration = Duration::from_millis(1);
const SHORTEST_LEASE: Duration = Duration::from_secs(1);
