//! What a provider could launch.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::Architecture;
use crate::ids::OfferId;
use crate::spec::Accelerator;

/// A machine type at a price, in a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Offer {
    /// The id, unique among the provider's offers.
    pub id: OfferId,
    /// The provider's name for the machine type.
    pub machine_type: String,
    /// Where the machine would be.
    pub place: String,
    /// US dollars per hour; 0 where the machine is free, and none where the price is not known.
    pub usd_per_hour: Option<f64>,
    /// When the price was read; none where it does not change.
    pub priced_at: Option<SystemTime>,
    /// Whether the provider may take the machine back, for a lower price.
    pub spot: bool,
    /// The account's quota that the machine counts against, by the name in
    /// [`Refusal::Quota`](crate::error::Refusal::Quota).
    pub quota: Option<String>,
    /// CPU cores.
    pub cpus: u32,
    /// Memory in GiB.
    pub memory_gib: u32,
    /// Disk in GiB, where it is known.
    pub disk_gib: Option<u32>,
    /// The processor's architecture, where it is known.
    pub architecture: Option<Architecture>,
    /// Its accelerators.
    pub accelerator: Option<Accelerator>,
}

impl Offer {
    /// Creates an offer without accelerators and without cost. Its id is the machine type.
    pub fn new(machine_type: impl Into<String>, place: impl Into<String>, cpus: u32, memory_gib: u32) -> Self {
        let machine_type = machine_type.into();
        Self {
            id: OfferId::new(machine_type.clone()),
            machine_type,
            place: place.into(),
            usd_per_hour: Some(0.0),
            priced_at: None,
            spot: false,
            quota: None,
            cpus,
            memory_gib,
            disk_gib: None,
            architecture: None,
            accelerator: None,
        }
    }
}
