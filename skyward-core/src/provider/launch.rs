//! What a pool asks a provider to launch.

use std::time::Duration;

use super::{Labels, Offer, Requirements};
use crate::ids::{LaunchId, MachineNumber, PoolId};
use crate::spec::Nodes;

/// A pool that is going to launch machines.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PoolRequest {
    /// The pool.
    pub pool: PoolId,
    /// Who starts it, for people: `ada@workstation`.
    pub owner: String,
    /// How many nodes the pool wants.
    pub nodes: Nodes,
    /// Whether its workers are one world, so that its machines must reach one another.
    pub joined: bool,
    /// What each of its machines must have.
    pub wanted: Requirements,
    /// How long anything that the provider creates may live without a renewal of the lease.
    pub lease: Duration,
    /// Labels for everything that the provider creates. A provider without labels ignores them.
    pub labels: Labels,
}

/// Machines of one offer to launch in one call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LaunchBatch {
    /// The machines. Each launch id occurs once.
    pub requests: Vec<LaunchRequest>,
    /// The chosen offer.
    pub offer: Offer,
    /// Whether to launch none unless all can be launched. Set only where
    /// [`Capabilities::gangs`](super::Capabilities::gangs) promises that the provider supports it.
    pub all_or_none: bool,
}

/// One machine to launch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LaunchRequest {
    /// The launch id: the same id never starts two machines.
    pub launch: LaunchId,
    /// The pool that the machine is for.
    pub pool: PoolId,
    /// The machine's number in its pool.
    pub number: MachineNumber,
    /// How long the machine may live without a renewal of its lease.
    pub lease: Duration,
    /// How long the machine may take until the first renewal of its lease.
    pub boot: Duration,
    /// The time after which the machine ends by itself, counted from its launch, also while its
    /// lease is renewed: what is left of the pool's budget.
    /// [`Capabilities::keeper`](super::Capabilities::keeper) promises that.
    pub ends_in: Option<Duration>,
    /// Labels for the machine, where the provider has labels.
    pub labels: Labels,
}

impl PoolRequest {
    /// Creates the request of a pool of one node with this lease, without an owner.
    pub fn new(pool: PoolId, lease: Duration) -> Self {
        Self {
            pool,
            owner: String::new(),
            nodes: Nodes::fixed(1),
            joined: false,
            wanted: Requirements::default(),
            lease,
            labels: Labels::new(),
        }
    }
}

impl LaunchBatch {
    /// Creates a batch of machines of one offer.
    pub fn new(offer: Offer, requests: Vec<LaunchRequest>) -> Self {
        Self { requests, offer, all_or_none: false }
    }

    /// Creates the batch of one machine.
    pub fn one(offer: Offer, request: LaunchRequest) -> Self {
        Self::new(offer, vec![request])
    }
}

impl LaunchRequest {
    /// Creates the request of one machine, with a boot time of one lease.
    pub fn new(launch: LaunchId, pool: PoolId, number: MachineNumber, lease: Duration) -> Self {
        Self { launch, pool, number, lease, boot: lease, ends_in: None, labels: Labels::new() }
    }

    /// Has the machine end by itself after this time, whether its lease is renewed or not.
    #[must_use]
    pub fn ends_in(mut self, ends_in: Duration) -> Self {
        self.ends_in = Some(ends_in);
        self
    }

    /// Sets how long the machine may take until the first renewal of its lease.
    #[must_use]
    pub fn boot(mut self, boot: Duration) -> Self {
        self.boot = boot;
        self
    }
}
