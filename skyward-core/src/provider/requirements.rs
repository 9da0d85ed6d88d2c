//! What a machine must have.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Offer;
use super::models::{UnsaidMemory, serves};
use crate::spec::Accelerator;

/// What a machine must have. `Requirements::default()` is met by any machine on demand.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::provider::{Architecture, Market, Requirements};
/// use skyward::spec::Accelerator;
///
/// let wanted = Requirements::default()
///     .accelerator(Accelerator::new("A100", 2))
///     .memory_gib(128)
///     .disk_gib(500)
///     .architecture(Architecture::X86_64)
///     .market(Market::SpotOrOnDemand)
///     .most_usd_per_hour(10.0)
///     .zones(["eu-west-1a", "eu-west-1b"])
///     .same_zone(true);
/// assert_eq!(wanted.zones, ["eu-west-1a", "eu-west-1b"]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Requirements {
    /// Accelerators on each machine.
    pub accelerator: Option<Accelerator>,
    /// CPU cores, at least.
    pub cpus: Option<u32>,
    /// Memory in GiB, at least.
    pub memory_gib: Option<u32>,
    /// Disk in GiB, at least.
    pub disk_gib: Option<u32>,
    /// The processor's architecture.
    pub architecture: Option<Architecture>,
    /// How the machine is paid for.
    pub market: Market,
    /// US dollars per hour for one machine, at most.
    pub most_usd_per_hour: Option<f64>,
    /// The [zones](Offer::zone) that a machine may be in; empty for any zone.
    pub zones: Vec<String>,
    /// Whether all machines of the pool must be in one zone, such as those of a joined world.
    pub same_zone: bool,
}

/// Labels that a provider attaches to everything that it creates for a pool: names and values, such
/// as `team = vision`.
pub type Labels = BTreeMap<String, String>;

/// A processor's architecture, by the name of its Linux port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Architecture {
    /// AMD and Intel, 64 bits.
    X86_64,
    /// Arm, 64 bits.
    Aarch64,
}

/// How a machine is paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Market {
    /// At a fixed price, for as long as the pool needs it.
    #[default]
    OnDemand,
    /// At a lower price; the provider may take the machine back.
    Spot,
    /// Spot where available, otherwise on demand.
    SpotOrOnDemand,
    /// Whichever costs least.
    Cheapest,
}

impl Requirements {
    /// Sets the accelerators of each machine.
    #[must_use]
    pub fn accelerator(mut self, accelerator: Accelerator) -> Self {
        self.accelerator = Some(accelerator);
        self
    }

    /// Sets the least number of CPU cores.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Sets the least memory, in GiB.
    #[must_use]
    pub fn memory_gib(mut self, memory: u32) -> Self {
        self.memory_gib = Some(memory);
        self
    }

    /// Sets the least disk space, in GiB.
    #[must_use]
    pub fn disk_gib(mut self, disk: u32) -> Self {
        self.disk_gib = Some(disk);
        self
    }

    /// Sets the architecture of the processor.
    #[must_use]
    pub fn architecture(mut self, architecture: Architecture) -> Self {
        self.architecture = Some(architecture);
        self
    }

    /// Sets how the machine is paid for.
    #[must_use]
    pub fn market(mut self, market: Market) -> Self {
        self.market = market;
        self
    }

    /// Sets the most that one machine may cost, in US dollars per hour.
    #[must_use]
    pub fn most_usd_per_hour(mut self, most: f64) -> Self {
        self.most_usd_per_hour = Some(most);
        self
    }

    /// Sets the [zones](Offer::zone) that a machine may be in. An empty list means any zone.
    #[must_use]
    pub fn zones(mut self, zones: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.zones = zones.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether all machines of the pool must be in one zone.
    #[must_use]
    pub fn same_zone(mut self, same_zone: bool) -> Self {
        self.same_zone = same_zone;
        self
    }

    /// Whether a machine of this offer meets all requirements. Unknown memory of accelerators and
    /// an unknown price count as sufficient; an unknown disk or architecture counts as
    /// insufficient.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::provider::{Offer, Requirements};
    ///
    /// let wanted = Requirements::default().cpus(8);
    /// assert!(wanted.are_met_by(&Offer::new("m7i.2xlarge", "eu-west-1a", 8, 32)));
    /// assert!(!wanted.are_met_by(&Offer::new("m7i.xlarge", "eu-west-1a", 4, 16)));
    /// ```
    pub fn are_met_by(&self, offer: &Offer) -> bool {
        self.unmet_by(offer).is_empty()
    }

    /// The requirements that a machine of this offer does not meet, one phrase each: `16 cores`,
    /// `a spot price`.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::provider::{Market, Offer, Requirements};
    ///
    /// let wanted = Requirements::default().cpus(8).market(Market::Spot);
    /// assert_eq!(wanted.unmet_by(&Offer::new("host", "this host", 4, 16)), ["8 cores", "a spot price"]);
    /// ```
    pub fn unmet_by(&self, offer: &Offer) -> Vec<String> {
        let has = |wanted: &Accelerator| {
            offer.accelerator.as_ref().is_some_and(|has| serves(has, wanted, UnsaidMemory::Enough))
        };
        let disk = |wanted: u32| offer.disk_gib.is_some_and(|has| has >= wanted);
        let mut unmet = self.phrases();
        unmet.retain(|(need, _)| !match need {
            Need::Accelerator => self.accelerator.as_ref().is_none_or(has),
            Need::Cpus => self.cpus.is_none_or(|cpus| offer.cpus >= cpus),
            Need::Memory => self.memory_gib.is_none_or(|memory| offer.memory_gib >= memory),
            Need::Disk => self.disk_gib.is_none_or(disk),
            Need::Architecture => self.architecture.is_none_or(|wanted| offer.architecture == Some(wanted)),
            Need::Market => self.market != Market::Spot || offer.spot,
            Need::Price => {
                self.most_usd_per_hour.is_none_or(|most| offer.usd_per_hour.is_none_or(|price| price <= most))
            }
            Need::Zone => self.zones.is_empty() || self.zones.contains(&offer.zone),
        });
        let mut unmet: Vec<String> = unmet.into_iter().map(|(_, phrase)| phrase).collect();
        if offer.spot && self.market == Market::OnDemand {
            unmet.push("an on-demand price".to_owned());
        }
        unmet
    }

    /// All requirements, one phrase each.
    fn phrases(&self) -> Vec<(Need, String)> {
        let mut phrases = Vec::new();
        if let Some(accelerator) = &self.accelerator {
            let memory = accelerator.memory_gib.map(|memory| format!(" of {memory} GiB")).unwrap_or_default();
            phrases.push((Need::Accelerator, format!("{accelerator}{memory}")));
        }
        phrases.extend(self.cpus.map(|cpus| (Need::Cpus, format!("{cpus} cores"))));
        phrases.extend(self.memory_gib.map(|memory| (Need::Memory, format!("{memory} GiB of memory"))));
        phrases.extend(self.disk_gib.map(|disk| (Need::Disk, format!("{disk} GiB of disk"))));
        phrases.extend(self.architecture.map(|wanted| (Need::Architecture, format!("an {wanted} processor"))));
        if self.market == Market::Spot {
            phrases.push((Need::Market, "a spot price".to_owned()));
        }
        phrases.extend(self.most_usd_per_hour.map(|most| (Need::Price, format!("a price of at most ${most}/h"))));
        if !self.zones.is_empty() {
            phrases.push((Need::Zone, format!("a zone among {}", self.zones.join(", "))));
        }
        phrases
    }
}

#[derive(Clone, Copy)]
enum Need {
    Accelerator,
    Cpus,
    Memory,
    Disk,
    Architecture,
    Market,
    Price,
    Zone,
}

impl Architecture {
    /// The architecture of this program's own host, where it is one of these.
    pub fn of_client() -> Option<Self> {
        Self::of_linux(std::env::consts::ARCH)
    }

    /// Parses the name that `uname -m` prints, or Docker's.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::provider::Architecture;
    ///
    /// assert_eq!(Architecture::of_linux("x86_64"), Some(Architecture::X86_64));
    /// assert_eq!(Architecture::of_linux("arm64"), Some(Architecture::Aarch64));
    /// assert_eq!(Architecture::of_linux("riscv64"), None);
    /// ```
    pub fn of_linux(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "amd64" => Some(Self::X86_64),
            "aarch64" | "arm64" => Some(Self::Aarch64),
            _ => None,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        })
    }
}

/// All requirements; `any machine` where there are none.
impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phrases: Vec<String> = self.phrases().into_iter().map(|(_, phrase)| phrase).collect();
        f.write_str(&if phrases.is_empty() { "any machine".to_owned() } else { phrases.join(" and ") })
    }
}
