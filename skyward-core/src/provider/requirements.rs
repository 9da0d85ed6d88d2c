//! What a machine must have.

use serde::{Deserialize, Serialize};

use super::Offer;
use super::models::{UnsaidMemory, serves};
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

impl Requirements {
    /// Whether a machine of this offer has all of it. Memory of accelerators that the offer does not say is taken for enough.
    ///
    /// ```
    /// use skyward_core::provider::{Offer, Requirements};
    ///
    /// let mut wanted = Requirements::default();
    /// wanted.cpus = Some(8);
    /// assert!(wanted.are_met_by(&Offer::new("m7i.2xlarge", "eu-west-1a", 8, 32)));
    /// assert!(!wanted.are_met_by(&Offer::new("m7i.xlarge", "eu-west-1a", 4, 16)));
    /// ```
    pub fn are_met_by(&self, offer: &Offer) -> bool {
        let accelerator = self.accelerator.as_ref();
        let has = |wanted: &Accelerator| {
            offer.accelerator.as_ref().is_some_and(|has| serves(has, wanted, UnsaidMemory::Enough))
        };
        accelerator.is_none_or(has)
            && self.cpus.is_none_or(|cpus| offer.cpus >= cpus)
            && self.memory_gib.is_none_or(|memory| offer.memory_gib >= memory)
    }
}
