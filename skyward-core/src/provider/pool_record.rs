//! A pool of which a provider still has something.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::ids::PoolId;

/// A pool of which a provider still has something: machines, networks, folders.
///
/// ```
/// # use skyward_core as skyward;
/// use std::time::{Duration, SystemTime};
/// use skyward::ids::PoolId;
/// use skyward::provider::PoolRecord;
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
    /// Who started the pool, from [`PoolRequest::owner`](super::PoolRequest::owner); empty where
    /// that is not known.
    pub owner: String,
    /// When the last part of the pool expires unless it is renewed, by this client's clock: one
    /// lease from now while a machine of the pool lives.
    pub expires: SystemTime,
}

impl PoolRecord {
    /// Creates the record of a pool whose owner is not known.
    pub fn new(pool: PoolId, expires: SystemTime) -> Self {
        Self { pool, owner: String::new(), expires }
    }

    /// Sets who started the pool.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Merges the parts of pools into one record for each pool, with the first known owner and the
    /// latest expiry.
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
