//! What a provider could launch.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::Architecture;
use crate::ids::OfferId;
use crate::spec::Accelerator;

/// A machine type at a price, in a zone.
///
/// ```
/// # use skyward_core as skyward;
/// use std::time::SystemTime;
///
/// use skyward::ids::OfferId;
/// use skyward::provider::{Architecture, Offer};
/// use skyward::spec::Accelerator;
///
/// let offer = Offer::new("g5.xlarge", "eu-west-1a", 4, 16)
///     .id(OfferId::new("g5.xlarge/eu-west-1a/spot"))
///     .usd_per_hour(0.46)
///     .priced_at(SystemTime::now())
///     .spot(true)
///     .quota("G and VT spot instances")
///     .disk_gib(100)
///     .architecture(Architecture::X86_64)
///     .accelerator(Accelerator::new("A10G", 1));
/// assert_eq!(offer.usd_per_hour, Some(0.46));
/// // The price is not known.
/// assert_eq!(offer.usd_per_hour(None).usd_per_hour, None);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Offer {
    /// The id, unique among the provider's offers.
    pub id: OfferId,
    /// The provider's name for the machine type.
    pub machine_type: String,
    /// Where the machine would be, by the provider's name: a zone, a host, a partition.
    pub zone: String,
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
    /// The machine's accelerators.
    pub accelerator: Option<Accelerator>,
}

impl Offer {
    /// Creates an offer without accelerators and without cost. Its id is the machine type.
    pub fn new(machine_type: impl Into<String>, zone: impl Into<String>, cpus: u32, memory_gib: u32) -> Self {
        let machine_type = machine_type.into();
        Self {
            id: OfferId::new(machine_type.clone()),
            machine_type,
            zone: zone.into(),
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

    /// Sets the id, where a machine type has several offers.
    #[must_use]
    pub fn id(mut self, id: OfferId) -> Self {
        self.id = id;
        self
    }

    /// Sets the price in US dollars per hour; `None` where it is not known.
    #[must_use]
    pub fn usd_per_hour(mut self, usd_per_hour: impl Into<Option<f64>>) -> Self {
        self.usd_per_hour = usd_per_hour.into();
        self
    }

    /// Sets when the price was read; `None` where it does not change.
    #[must_use]
    pub fn priced_at(mut self, priced_at: impl Into<Option<SystemTime>>) -> Self {
        self.priced_at = priced_at.into();
        self
    }

    /// Sets whether the provider may take the machine back.
    #[must_use]
    pub fn spot(mut self, spot: bool) -> Self {
        self.spot = spot;
        self
    }

    /// Sets the account's quota that the machine counts against.
    #[must_use]
    pub fn quota(mut self, quota: impl Into<String>) -> Self {
        self.quota = Some(quota.into());
        self
    }

    /// Sets the disk in GiB; `None` where it is not known.
    #[must_use]
    pub fn disk_gib(mut self, disk: impl Into<Option<u32>>) -> Self {
        self.disk_gib = disk.into();
        self
    }

    /// Sets the architecture of the processor; `None` where it is not known.
    #[must_use]
    pub fn architecture(mut self, architecture: impl Into<Option<Architecture>>) -> Self {
        self.architecture = architecture.into();
        self
    }

    /// Sets the accelerators; `None` for a machine without any.
    #[must_use]
    pub fn accelerator(mut self, accelerator: impl Into<Option<Accelerator>>) -> Self {
        self.accelerator = accelerator.into();
        self
    }
}
