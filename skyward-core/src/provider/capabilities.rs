//! What a provider can do.

use std::time::Duration;

/// What a provider can do beyond the methods that each provider has. The capabilities of a provider
/// are the same for all pools.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::provider::Capabilities;
///
/// let cloud = Capabilities::new().outlives_client().keeper();
/// assert!(cloud.outlives_client && cloud.keeper);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether a machine can outlive the client's process. Nearly every provider's machines can.
    /// Where they cannot, because they exist only inside that process (a simulation, for instance),
    /// the pool writes nothing about them to the ledger.
    pub outlives_client: bool,
    /// Whether a keeper on each machine ends the machine unless its lease is renewed, which means
    /// that the file `lease` in the machine's folder is touched. The pool touches it while it makes
    /// the machine ready, and the machine's agent from then on. The keeper also ends the machine
    /// after [`LaunchRequest::ends_in`](super::LaunchRequest::ends_in), whether the lease is
    /// renewed or not.
    pub keeper: bool,
    /// Whether one call for many machines takes no longer than one for a single machine, because it
    /// is one request of the provider's service. The pool then combines calls of `launch`,
    /// `inspect` and `terminate` that come at nearly the same moment, and each caller gets the
    /// result of its own machine. A provider that calls [`launch_each`](super::launch_each)
    /// promises nothing here: a machine that is slow would keep those of other callers waiting. A
    /// provider with a [`pace`](Self::pace) is called in the same way, without this promise.
    pub batches: bool,
    /// Whether a batch can be launched [all or none](super::LaunchBatch::all_or_none).
    pub gangs: bool,
    /// Whether the provider can know the end of a running machine in advance: the provider takes
    /// the machine back, or the machine's walltime is over. The pool then inspects its machines
    /// every 30 seconds.
    pub preemptible: bool,
    /// Whether another client can take over a pool, with [`adopt`](super::Provider::adopt), when
    /// the client that launched its machines is gone. A provider whose client keeps in memory what
    /// leads to the machines, such as their keys, cannot promise it.
    pub adopts: bool,
    /// Whether all machines are parts of one host, and share its cores, memory, accelerators and
    /// ports.
    pub shared_host: bool,
    /// How long it can take until `list` shows a machine that was launched.
    /// [`reap`](crate::pool::reap) waits that long, and so does the end of a pool with a launch that
    /// was not answered. Default: 5 seconds.
    pub settles_in: Duration,
    /// The shortest time between two calls of one method, except `identity` and `connect`. All pools
    /// of this process that use the provider, recognised by its name and identity, keep it together:
    /// their calls wait in the order in which they came, within their deadlines. Default: zero.
    pub pace: Duration,
}

impl Capabilities {
    /// Creates capabilities that promise nothing.
    pub fn new() -> Self {
        Self {
            outlives_client: false,
            keeper: false,
            batches: false,
            gangs: false,
            preemptible: false,
            adopts: false,
            shared_host: false,
            settles_in: Duration::from_secs(5),
            pace: Duration::ZERO,
        }
    }

    /// Sets how long it can take until `list` shows a machine that was launched.
    #[must_use]
    pub fn settles_in(mut self, settles_in: Duration) -> Self {
        self.settles_in = settles_in;
        self
    }

    /// Sets the shortest time between two calls of one method.
    #[must_use]
    pub fn pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// The provider's machines can outlive the client's process.
    #[must_use]
    pub fn outlives_client(mut self) -> Self {
        self.outlives_client = true;
        self
    }

    /// One call for many machines takes no longer than one for a single machine.
    #[must_use]
    pub fn batches(mut self) -> Self {
        self.batches = true;
        self
    }

    /// The provider can launch a batch all or none.
    #[must_use]
    pub fn gangs(mut self) -> Self {
        self.gangs = true;
        self
    }

    /// The provider can know the end of a running machine in advance.
    #[must_use]
    pub fn preemptible(mut self) -> Self {
        self.preemptible = true;
        self
    }

    /// Another client can take over a pool.
    #[must_use]
    pub fn adopts(mut self) -> Self {
        self.adopts = true;
        self
    }

    /// The provider's machines are parts of one host.
    #[must_use]
    pub fn shared_host(mut self) -> Self {
        self.shared_host = true;
        self
    }

    /// A keeper ends each machine whose lease is not renewed.
    #[must_use]
    pub fn keeper(mut self) -> Self {
        self.keeper = true;
        self
    }
}

/// No capability.
impl Default for Capabilities {
    fn default() -> Self {
        Self::new()
    }
}
