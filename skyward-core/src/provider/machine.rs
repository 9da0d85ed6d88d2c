//! A machine: its ids from the launch on, and its place when it runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LaunchBatch, LaunchRequest};
use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};

/// What a provider remembers about a machine.
pub type Facts = BTreeMap<String, String>;

/// A machine that was launched; it may not run yet.
///
/// Each field is public, so that `list` can construct one from the provider's own records alone.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
/// use skyward::provider::{Facts, Machine};
///
/// let machine = Machine {
///     id: MachineId::new("i-0abc"),
///     launch: LaunchId::new("p-x-n0-a1"),
///     pool: PoolId::new("p-x"),
///     number: MachineNumber(0),
///     offer: OfferId::new("g5.xlarge/eu-west-1a"),
///     facts: Facts::new(),
/// };
/// assert_eq!(machine.number.0, 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The machine's id at the provider. No two machines of a pool ever have the same id, not even
    /// one after the other: the ledger takes a machine that is gone off the record by its id.
    pub id: MachineId,
    /// The launch that started the machine.
    pub launch: LaunchId,
    /// The pool that the machine is for.
    pub pool: PoolId,
    /// The machine's number in its pool.
    #[serde(alias = "node")]
    pub number: MachineNumber,
    /// The offer that the machine was launched from.
    #[serde(default = "unknown_offer")]
    pub offer: OfferId,
    /// What else the provider needs to remember.
    #[serde(default)]
    pub facts: Facts,
}

/// Where a running machine can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Place {
    /// The address at which the pool's other machines reach the machine.
    pub address: String,
    /// The machine's own folder, with a path that is short enough for Unix sockets (at most 60
    /// bytes).
    pub folder: String,
    /// Whether the machine is on the client's own host, so that its agent can watch the client's
    /// process.
    pub on_client_host: bool,
    /// A command that the machine's agent runs, and whose lines `KIND SECONDS WORDS` are notices of
    /// the machine's end: `preempted 120 the provider takes the machine back`. The kinds are
    /// `preempted` and `expired`. The agent starts the command again when it ends.
    #[serde(default)]
    pub watch: Option<Vec<String>>,
}

impl Machine {
    /// Creates the machine that a request of a batch has started.
    pub fn of(batch: &LaunchBatch, request: &LaunchRequest, id: MachineId) -> Self {
        Self {
            id,
            launch: request.launch.clone(),
            pool: request.pool.clone(),
            number: request.number,
            offer: batch.offer.id.clone(),
            facts: Facts::new(),
        }
    }
}

impl Place {
    /// Creates a place on another host than the client's.
    pub fn new(address: impl Into<String>, folder: impl Into<String>) -> Self {
        Self { address: address.into(), folder: folder.into(), on_client_host: false, watch: None }
    }

    /// Sets the command that the machine's agent runs, which prints notices of the machine's end.
    #[must_use]
    pub fn watch(mut self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.watch = Some(command.into_iter().map(Into::into).collect());
        self
    }

    /// Marks the place as one on the client's own host.
    #[must_use]
    pub fn on_client_host(mut self) -> Self {
        self.on_client_host = true;
        self
    }
}

/// The offer of a machine whose record does not have one.
fn unknown_offer() -> OfferId {
    OfferId::new("")
}
