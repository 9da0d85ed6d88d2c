//! What a pool asks a provider to make.

use std::time::Duration;

use super::Offer;
use crate::ids::{LaunchId, MachineNumber, PoolId};

/// A pool that is going to launch machines.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PoolRequest {
    /// The pool.
    pub pool: PoolId,
    /// How long what is made may live without its lease being renewed.
    pub lease: Duration,
}

/// Machines of one offer that are launched by one call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LaunchBatch {
    /// The machines. Each launch id is there once.
    pub requests: Vec<LaunchRequest>,
    /// The chosen offer.
    pub offer: Offer,
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
}

impl PoolRequest {
    /// A pool whose machines have this lease.
    pub fn new(pool: PoolId, lease: Duration) -> Self {
        Self { pool, lease }
    }
}

impl LaunchBatch {
    /// Machines of one offer.
    pub fn new(offer: Offer, requests: Vec<LaunchRequest>) -> Self {
        Self { requests, offer }
    }

    /// The batch of one machine.
    pub fn one(offer: Offer, request: LaunchRequest) -> Self {
        Self::new(offer, vec![request])
    }
}

impl LaunchRequest {
    /// A machine of a pool, which may boot for as long as its lease.
    pub fn new(launch: LaunchId, pool: PoolId, number: MachineNumber, lease: Duration) -> Self {
        Self { launch, pool, number, lease, boot: lease }
    }

    /// Gives the machine this long until its lease is renewed for the first time.
    #[must_use]
    pub fn boot(mut self, boot: Duration) -> Self {
        self.boot = boot;
        self
    }
}
