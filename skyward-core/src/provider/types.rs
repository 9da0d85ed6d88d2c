//! What goes into and comes out of a provider.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{LaunchId, MachineId, NodeIndex, PoolId};
use crate::spec::Accelerator;

/// What a machine must have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Requirements {
    /// Accelerators on each machine.
    pub accelerator: Option<Accelerator>,
    /// CPU cores, at least.
    pub cpus: Option<u32>,
    /// Memory in GiB, at least.
    pub memory_gib: Option<u32>,
}

/// A machine type at a price, in a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Offer {
    /// The provider's name for the machine type.
    pub machine_type: String,
    /// Where.
    pub place: String,
    /// US dollars per hour; 0 where nothing is paid.
    pub usd_per_hour: f64,
    /// CPU cores.
    pub cpus: u32,
    /// Memory in GiB.
    pub memory_gib: u32,
    /// Its accelerators.
    pub accelerator: Option<Accelerator>,
}

impl Offer {
    /// An offer without accelerators and without a price.
    pub fn new(machine_type: impl Into<String>, place: impl Into<String>, cpus: u32, memory_gib: u32) -> Self {
        Self {
            machine_type: machine_type.into(),
            place: place.into(),
            usd_per_hour: 0.0,
            cpus,
            memory_gib,
            accelerator: None,
        }
    }
}

/// One machine to launch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LaunchRequest {
    /// The intent: the same id never starts two machines.
    pub launch: LaunchId,
    /// The pool it is for.
    pub pool: PoolId,
    /// The node it will be.
    pub node: NodeIndex,
    /// The chosen offer.
    pub offer: Offer,
    /// How long the machine may live without its lease being renewed.
    pub lease: Duration,
}

impl LaunchRequest {
    /// A request for a node of a pool.
    pub fn new(launch: LaunchId, pool: PoolId, node: NodeIndex, offer: Offer, lease: Duration) -> Self {
        Self { launch, pool, node, offer, lease }
    }
}

/// A machine that was launched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Machine {
    /// Its id at the provider.
    pub id: MachineId,
    /// The intent that started it.
    pub launch: LaunchId,
    /// The pool it is for.
    pub pool: PoolId,
    /// The node it is.
    pub node: NodeIndex,
    /// The address at which the other nodes reach it.
    pub address: String,
    /// A folder of its own on the machine, short enough for Unix sockets (at most 60 bytes).
    pub folder: String,
    /// Whether it runs on the client's own host, so that its agent can watch the client's process.
    pub on_client_host: bool,
    /// Whether a keeper on it ends it unless the file `lease` in its folder is touched: by the pool while the machine is made ready, by its agent from then on.
    #[serde(default)]
    pub keeper: bool,
    /// Whatever else the provider wants to remember.
    pub facts: BTreeMap<String, String>,
}

impl Machine {
    /// The machine that a request started.
    pub fn new(request: &LaunchRequest, id: MachineId, address: impl Into<String>, folder: impl Into<String>) -> Self {
        Self {
            id,
            launch: request.launch.clone(),
            pool: request.pool.clone(),
            node: request.node,
            address: address.into(),
            folder: folder.into(),
            on_client_host: false,
            keeper: false,
            facts: BTreeMap::new(),
        }
    }
}

/// Where a machine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MachineStatus {
    /// It cannot be said now, because what knows the machine cannot be asked. Nothing is concluded from it.
    Unknown,
    /// Asked for; not reachable yet.
    Starting,
    /// There.
    Running,
    /// On its way out.
    Ending,
    /// No longer there, and nothing of it left.
    Gone,
}
