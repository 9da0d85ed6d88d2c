//! A pool of which a provider still has something.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::ids::PoolId;

/// A pool of which a provider still has something: machines, networks, folders.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use skyward_core::ids::PoolId;
/// use skyward_core::provider::PoolRecord;
///
/// let pool = PoolId::new("p-x");
/// let (now, lease) = (SystemTime::now(), Duration::from_secs(60));
/// let network = PoolRecord::new(pool.clone(), now - 2 * lease).owner("ada@workstation");
/// let machine = PoolRecord::new(pool.clone(), now + lease);
/// let pools = PoolRecord::of_parts([network, machine]);
/// assert_eq!(pools, [PoolRecord::new(pool, now + lease).owner("ada@workstation")]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolRecord {
    /// The pool.
    pub pool: PoolId,
    /// Who started it, as [`PoolRequest::owner`](super::PoolRequest::owner) said; empty where that is not known.
    pub owner: String,
    /// When the last of it expires unless it is renewed, by this client's clock: a lease from now while a machine of it lives, otherwise in the past.
    pub expires: SystemTime,
}

impl PoolRecord {
    /// A pool of an unknown owner.
    pub fn new(pool: PoolId, expires: SystemTime) -> Self {
        Self { pool, owner: String::new(), expires }
    }

    /// Adds who started it.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// One record for each pool of many parts: with the first owner that is known, and the last end.
    pub fn of_parts(parts: impl IntoIterator<Item = Self>) -> Vec<Self> {
        let mut pools: BTreeMap<PoolId, Self> = BTreeMap::new();
        for part in parts {
            match pools.get_mut(&part.pool) {
                Some(pool) => {
                    pool.expires = pool.expires.max(part.expires);
                    if pool.owner.is_empty() {
                        pool.owner = part.owner;
                    }
                }
                None => {
                    pools.insert(part.pool.clone(), part);
                }
            }
        }
        pools.into_values().collect()
    }
}
