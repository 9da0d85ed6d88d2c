//! What a pool asks a provider to launch.

use std::time::Duration;

use super::{Labels, Offer, Requirements};
use crate::ids::{LaunchId, MachineNumber, PoolId};
use crate::spec::Nodes;

/// A pool that is going to launch machines.
///
/// ```
/// # use skyward_core as skyward;
/// use std::time::Duration;
///
/// use skyward::ids::PoolId;
/// use skyward::provider::{PoolRequest, Requirements};
///
/// let wanted = Requirements::default().cpus(8).same_zone(true);
/// let request = PoolRequest::new(PoolId::new("p-x"), Duration::from_secs(60))
///     .owner("ada@workstation")
///     .nodes(4)
///     .joined(true)
///     .wanted(wanted)
///     .labels([("team", "vision")]);
/// assert_eq!(request.labels["team"], "vision");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PoolRequest {
    /// The pool.
    pub pool: PoolId,
    /// Who starts the pool, for people: `ada@workstation`.
    pub owner: String,
    /// How many nodes the pool wants.
    pub nodes: Nodes,
    /// Whether the pool's workers are one world, so that its machines must reach one another.
    pub joined: bool,
    /// What each machine of the pool must have.
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
///
/// ```
/// # use skyward_core as skyward;
/// use std::time::Duration;
///
/// use skyward::ids::{Attempt, LaunchId, MachineNumber, PoolId};
/// use skyward::provider::LaunchRequest;
///
/// let (pool, number) = (PoolId::new("p-x"), MachineNumber(0));
/// let launch = LaunchId::of(&pool, number, Attempt(1));
/// let request = LaunchRequest::new(launch, pool, number, Duration::from_secs(60))
///     .owner("ada@workstation")
///     .boot(Duration::from_secs(600))
///     .ends_in(Duration::from_secs(3600))
///     .labels([("team", "vision")]);
/// assert_eq!(request.labels["team"], "vision");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LaunchRequest {
    /// The launch id: the same id never starts two machines.
    pub launch: LaunchId,
    /// The pool that the machine is for.
    pub pool: PoolId,
    /// Who starts the pool, for people: the [owner](PoolRequest::owner) in its [`PoolRequest`].
    pub owner: String,
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
    /// The most that the machine may cost in USD per hour: the price at which the pool's budget in
    /// dollars counts it. A provider whose prices change while a machine runs ends the machine, or
    /// has it ended, when its price is higher.
    pub most_usd_per_hour: Option<f64>,
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

    /// Sets who starts the pool.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Sets how many nodes the pool wants.
    #[must_use]
    pub fn nodes(mut self, nodes: impl Into<Nodes>) -> Self {
        self.nodes = nodes.into();
        self
    }

    /// Sets whether the pool's workers are one world.
    #[must_use]
    pub fn joined(mut self, joined: bool) -> Self {
        self.joined = joined;
        self
    }

    /// Sets what each machine of the pool must have.
    #[must_use]
    pub fn wanted(mut self, wanted: Requirements) -> Self {
        self.wanted = wanted;
        self
    }

    /// Sets the labels for everything that the provider creates.
    #[must_use]
    pub fn labels(mut self, labels: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        self.labels = labels.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self
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
    /// Creates the request of one machine, with a boot time of one lease, without an owner.
    pub fn new(launch: LaunchId, pool: PoolId, number: MachineNumber, lease: Duration) -> Self {
        let (owner, labels) = (String::new(), Labels::new());
        Self { launch, pool, owner, number, lease, boot: lease, ends_in: None, most_usd_per_hour: None, labels }
    }

    /// Sets who starts the pool.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Sets the time after which the machine ends by itself, whether its lease is renewed or not.
    #[must_use]
    pub fn ends_in(mut self, ends_in: Duration) -> Self {
        self.ends_in = Some(ends_in);
        self
    }

    /// Sets the most that the machine may cost in USD per hour.
    #[must_use]
    pub fn most_usd_per_hour(mut self, most: impl Into<Option<f64>>) -> Self {
        self.most_usd_per_hour = most.into();
        self
    }

    /// Sets how long the machine may take until the first renewal of its lease.
    #[must_use]
    pub fn boot(mut self, boot: Duration) -> Self {
        self.boot = boot;
        self
    }

    /// Sets the labels of the machine.
    #[must_use]
    pub fn labels(mut self, labels: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        self.labels = labels.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self
    }
}
