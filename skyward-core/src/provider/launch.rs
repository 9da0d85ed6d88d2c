//! What a pool asks a provider to make.

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
    /// How many nodes it is to have.
    pub nodes: Nodes,
    /// Whether its workers are one world, whose machines reach one another.
    pub joined: bool,
    /// What each of its machines must have.
    pub wanted: Requirements,
    /// How long what is made may live without its lease being renewed.
    pub lease: Duration,
    /// What everything that is made is labelled with, by a provider that has labels; others leave them out.
    pub labels: Labels,
}

/// Machines of one offer that are launched by one call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LaunchBatch {
    /// The machines. Each launch id is there once.
    pub requests: Vec<LaunchRequest>,
    /// The chosen offer.
    pub offer: Offer,
    /// Whether none is to be launched unless all are. Set only where [`Capabilities::gangs`](super::Capabilities::gangs) says that the provider can do that.
    pub all_or_none: bool,
}

/// One machine to launch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LaunchRequest {
    /// The intent: the same id never starts two machines.
    pub launch: LaunchId,
    /// The pool it is for.
    pub pool: PoolId,
    /// Its number among the machines of its pool.
    pub number: MachineNumber,
    /// How long the machine may live without its lease being renewed.
    pub lease: Duration,
    /// How long the machine may take until somebody renews its lease for the first time.
    pub boot: Duration,
    /// After this time from its launch the machine ends by itself, also while its lease is renewed: what is left of the pool's budget. [`Capabilities::keeper`](super::Capabilities::keeper) promises it.
    pub ends_in: Option<Duration>,
    /// What the machine is labelled with, where the provider has labels.
    pub labels: Labels,
}

impl PoolRequest {
    /// A pool of one node, with this lease, by nobody in particular.
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
    /// Machines of one offer.
    pub fn new(offer: Offer, requests: Vec<LaunchRequest>) -> Self {
        Self { requests, offer, all_or_none: false }
    }

    /// The batch of one machine.
    pub fn one(offer: Offer, request: LaunchRequest) -> Self {
        Self::new(offer, vec![request])
    }
}

impl LaunchRequest {
    /// A machine of a pool, which may boot for as long as its lease.
    pub fn new(launch: LaunchId, pool: PoolId, number: MachineNumber, lease: Duration) -> Self {
        Self { launch, pool, number, lease, boot: lease, ends_in: None, labels: Labels::new() }
    }

    /// Has the machine end by itself after this time, whatever its lease.
    #[must_use]
    pub fn ends_in(mut self, ends_in: Duration) -> Self {
        self.ends_in = Some(ends_in);
        self
    }

    /// Gives the machine this long until its lease is renewed for the first time.
    #[must_use]
    pub fn boot(mut self, boot: Duration) -> Self {
        self.boot = boot;
        self
    }
}
