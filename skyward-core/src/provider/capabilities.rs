//! What a provider can do.

use std::time::Duration;

/// What a provider can do, beyond what each provider does. None of it depends on a pool.
///
/// ```
/// use skyward_core::provider::Capabilities;
///
/// let cloud = Capabilities::new().outlives_client().keeper();
/// assert!(cloud.outlives_client && cloud.keeper);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether its machines can be there after the client's process is gone, as they can nearly everywhere. If they cannot, because they are only pretended within that process,
    /// nothing of them is put into the ledger.
    pub outlives_client: bool,
    /// Whether a keeper on each machine ends it unless the file `lease` in the machine's folder is touched: by the pool while the machine is made ready, by its agent from then on. It also ends it after
    /// [`LaunchRequest::ends_in`](super::LaunchRequest::ends_in), whatever is touched.
    pub keeper: bool,
    /// Whether a batch can be launched [all or none](super::LaunchBatch::all_or_none).
    pub gangs: bool,
    /// Whether a machine that runs can come to an end that the provider knows of before: it is taken back, or its time is over. The pool looks at the reports of its machines all the time then.
    pub preemptible: bool,
    /// How long it can take until `list` shows a machine that was asked for, which [`reap`](crate::pool::reap) waits for: 5 seconds, unless it is said.
    pub settles_in: Duration,
}

impl Capabilities {
    /// None of them.
    pub fn new() -> Self {
        Self {
            outlives_client: false,
            keeper: false,
            gangs: false,
            preemptible: false,
            settles_in: Duration::from_secs(5),
        }
    }

    /// It can take so long until what was asked for is seen.
    #[must_use]
    pub fn settles_in(mut self, settles_in: Duration) -> Self {
        self.settles_in = settles_in;
        self
    }

    /// Its machines can be there after the client's process is gone.
    #[must_use]
    pub fn outlives_client(mut self) -> Self {
        self.outlives_client = true;
        self
    }

    /// It launches a batch all or none.
    #[must_use]
    pub fn gangs(mut self) -> Self {
        self.gangs = true;
        self
    }

    /// It knows of ends of its machines before.
    #[must_use]
    pub fn preemptible(mut self) -> Self {
        self.preemptible = true;
        self
    }

    /// A keeper ends each machine whose lease is not renewed.
    #[must_use]
    pub fn keeper(mut self) -> Self {
        self.keeper = true;
        self
    }
}

/// None of them.
impl Default for Capabilities {
    fn default() -> Self {
        Self::new()
    }
}
