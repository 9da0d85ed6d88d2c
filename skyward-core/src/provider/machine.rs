//! A machine: what is known of it from its launch on, and where it is once it is there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LaunchBatch, LaunchRequest};
use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};

/// What a provider remembers of a machine.
pub type Facts = BTreeMap<String, String>;

/// A machine that was launched, and may not be there yet.
///
/// Each field is public, so that `list` makes one from the provider's own records alone.
///
/// ```
/// use skyward_core::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
/// use skyward_core::provider::{Facts, Machine};
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
    /// Its id at the provider.
    pub id: MachineId,
    /// The intent that started it.
    pub launch: LaunchId,
    /// The pool it is for.
    pub pool: PoolId,
    /// Its number among the machines of its pool.
    #[serde(alias = "node")]
    pub number: MachineNumber,
    /// The offer that was taken.
    #[serde(default = "unknown_offer")]
    pub offer: OfferId,
    /// Whatever else the provider wants to remember.
    #[serde(default)]
    pub facts: Facts,
}

/// Where a machine is that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Place {
    /// The address at which the pool's other machines reach it.
    pub address: String,
    /// A folder of its own on the machine, short enough for Unix sockets (at most 60 bytes).
    pub folder: String,
    /// Whether it is on the client's own host, so that its agent can watch the client's process.
    pub on_client_host: bool,
    /// A command that runs on the machine beside its agent, and whose lines `KIND SECONDS WORDS` are notices of the machine's end: `preempted 120 the provider takes the machine back`. The kinds are
    /// `preempted` and `expired`. It is started again when it ends.
    #[serde(default)]
    pub watch: Option<Vec<String>>,
}

impl Machine {
    /// The machine that a request of a batch has started.
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
    /// On another host than the client's.
    pub fn new(address: impl Into<String>, folder: impl Into<String>) -> Self {
        Self { address: address.into(), folder: folder.into(), on_client_host: false, watch: None }
    }

    /// Has the machine's agent run a command that prints notices of the machine's end.
    #[must_use]
    pub fn watch(mut self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.watch = Some(command.into_iter().map(Into::into).collect());
        self
    }

    /// On the client's own host.
    #[must_use]
    pub fn on_client_host(mut self) -> Self {
        self.on_client_host = true;
        self
    }
}

/// The offer of a machine whose record does not say it.
fn unknown_offer() -> OfferId {
    OfferId::new("")
}
