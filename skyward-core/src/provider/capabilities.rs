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
    /// Whether a keeper on each machine ends it unless the file `lease` in the machine's folder is touched: by the pool while the machine is made ready, by its agent from then on.
    pub keeper: bool,
    /// How long it can take until `list` shows a machine that was asked for, which [`reap`](crate::pool::reap) waits for: 5 seconds, unless it is said.
    pub settles_in: Duration,
}

impl Capabilities {
    /// None of them.
    pub fn new() -> Self {
        Self { outlives_client: false, keeper: false, settles_in: Duration::from_secs(5) }
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
