//! Which instance types fit, and why the others do not.

use std::collections::BTreeMap;

use skyward_core::provider::{Architecture, Market, Offer, Requirements};
use skyward_core::spec::Accelerator;

use super::{Setting, allows};
use crate::catalog::Listing;
use crate::catalog::instance_type::{Devices, InstanceType};

/// The types that fit, and why others do not.
#[derive(Debug)]
pub(super) struct Fit<'a> {
    pub(super) fitting: Vec<Fitting<'a>>,
    pub(super) obstacles: Vec<Obstacle>,
}

/// A type that fits, and the zones that sell it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fitting<'a> {
    pub(super) instance_type: &'a InstanceType,
    pub(super) zones: Vec<&'a str>,
}

/// The first requirement that a type, or an offer of it, does not meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(super) stage: Stage,
    pub(super) instance_type: String,
    /// Among types that fail at the same stage, those with less are nearer.
    pub(super) distance: u64,
    /// What the type lacks, or where it is sold.
    pub(super) words: String,
}

/// The checks, in their order. The later the check that a type fails, the nearer the type is to the
/// requirements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Driver,
    Count,
    DeviceMemory,
    Machine,
    Market,
    Subnet,
    Zone,
    Price,
    Quota,
}

impl Obstacle {
    pub(super) fn new(stage: Stage, instance_type: &InstanceType, distance: u64, words: String) -> Self {
        Self { stage, instance_type: instance_type.name.clone(), distance, words }
    }
}

/// The types of a listing that fit.
pub(super) fn fit<'a>(listing: &'a Listing, requirements: &Requirements, setting: &Setting) -> Fit<'a> {
    let (mut fitting, mut obstacles) = (Vec::new(), Vec::new());
    for instance_type in &listing.types {
        let checked = match &requirements.accelerator {
            Some(wanted) => devices(instance_type, wanted, setting),
            None if is_plain(instance_type) => Ok(true),
            None => Ok(false),
        };
        let checked = checked.and_then(|is_candidate| {
            if !is_candidate {
                return Ok(None);
            }
            machine(instance_type, requirements, setting)?;
            sold(instance_type, requirements.market)?;
            zones(instance_type, listing, requirements, setting).map(Some)
        });
        match checked {
            Ok(Some(zones)) => fitting.push(Fitting { instance_type, zones }),
            Ok(None) => {}
            Err((stage, words)) => {
                let weight = instance_type.weight();
                // Among types that are too small, larger ones are nearer; otherwise, smaller ones.
                let distance = if stage == Stage::Machine { u64::MAX - weight } else { weight };
                obstacles.push(Obstacle::new(stage, instance_type, distance, words));
            }
        }
    }
    if requirements.accelerator.is_none() {
        fitting = few(fitting);
    }
    Fit { fitting, obstacles }
}

/// A machine of this type, in no zone yet and without a price.
pub(super) fn offer_of(
    instance_type: &InstanceType,
    zone: &str,
    requirements: &Requirements,
    setting: &Setting,
) -> Offer {
    let InstanceType { name, cpus, memory_gib, architecture, .. } = instance_type;
    // EC2 makes the disk with the machine, in the size that the pool asks for.
    let disk = requirements.disk_gib.unwrap_or(setting.disk_gib).min(MOST_DISK_GIB);
    Offer::new(name.clone(), zone, *cpus, *memory_gib)
        .usd_per_hour(None)
        .architecture(*architecture)
        .accelerator(instance_type.accelerator().cloned())
        .disk_gib(disk)
}

pub(super) type Checked<T> = Result<T, (Stage, String)>;

/// Checks that the type has accelerators of the kind, and enough of them.
pub(super) fn devices(instance_type: &InstanceType, wanted: &Accelerator, setting: &Setting) -> Checked<bool> {
    let has = match &instance_type.devices {
        Devices::Accelerators(has) if has.is_same_kind(wanted) => has,
        Devices::Unserved(unserved) if Accelerator::new(&*unserved.name, 1).is_same_kind(wanted) => {
            return Err((Stage::Driver, format!("has {unserved}")));
        }
        Devices::Accelerators(_) | Devices::Unserved(_) | Devices::Nothing => return Ok(false),
    };
    let lacking = DRIVERS.iter().find(|(kinds, _)| kinds.contains(&&*has.kind)).filter(|_| !setting.own_image);
    if let Some((_, driver)) = lacking {
        let words = format!("has {}, which needs {driver}: name an image that has it by its id", has.kind);
        return Err((Stage::Driver, words));
    }
    if has.count < wanted.count {
        return Err((Stage::Count, format!("has {}", has.count)));
    }
    match (wanted.least_memory_gib(), has.memory_gib) {
        (Some(wanted), Some(has)) if has < wanted => Err((Stage::DeviceMemory, format!("has {has} GiB each"))),
        _ => Ok(true),
    }
}

fn machine(instance_type: &InstanceType, requirements: &Requirements, setting: &Setting) -> Checked<()> {
    // Zone and market are checked later.
    let mut wanted = requirements.clone();
    wanted.market = Market::Cheapest;
    wanted.most_usd_per_hour = None;
    wanted.zones.clear();
    // Packages have builds for x86_64 before they have any for Arm. With accelerators, the
    // accelerator decides.
    if wanted.accelerator.is_none() {
        wanted.architecture.get_or_insert(Architecture::X86_64);
    }
    let unmet = wanted.unmet_by(&offer_of(instance_type, "", requirements, setting));
    match unmet.is_empty() {
        true => Ok(()),
        false => Err((Stage::Machine, format!("does not have {}", unmet.join(" and ")))),
    }
}

fn sold(instance_type: &InstanceType, market: Market) -> Checked<()> {
    let InstanceType { on_demand, spot, .. } = instance_type;
    if *spot && allows(market, true) || *on_demand && allows(market, false) {
        return Ok(());
    }
    let words = match (instance_type.capacity_block_only(), market) {
        // Capacity blocks are bought in advance and for days; see
        // <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-blocks.html>.
        (true, _) => "is sold only as capacity blocks, which you reserve in advance",
        (false, Market::Spot) => "is not sold as a spot instance",
        (false, _) => "is not sold on demand",
    };
    Err((Stage::Market, words.to_owned()))
}

fn zones<'a>(
    instance_type: &InstanceType,
    listing: &'a Listing,
    requirements: &Requirements,
    setting: &Setting,
) -> Checked<Vec<&'a str>> {
    let all: Vec<&str> = listing.zones_of(&instance_type.name).collect();
    let listed = |zones: &[&str]| if zones.is_empty() { "no zone".to_owned() } else { zones.join(", ") };
    let reached: Vec<&str> = all.iter().copied().filter(|zone| setting.zones.contains(*zone)).collect();
    if reached.is_empty() {
        return Err((Stage::Subnet, format!("is sold in {}, where the pool has no subnet", listed(&all))));
    }
    let allowed = |zone: &&str| requirements.zones.is_empty() || requirements.zones.iter().any(|one| one == zone);
    let wanted: Vec<&str> = reached.iter().copied().filter(allowed).collect();
    match wanted.is_empty() {
        true => Err((Stage::Zone, format!("is available only in {}", listed(&reached)))),
        false => Ok(wanted),
    }
}

/// Whether the type suits pools that ask for processors and memory alone.
fn is_plain(instance_type: &InstanceType) -> bool {
    let InstanceType { devices, current_generation, bare_metal, burstable, .. } = instance_type;
    *devices == Devices::Nothing && *current_generation && !bare_metal && !burstable
}

/// The smallest of the types that fit in each family: general-purpose families first, and the
/// newest of them first.
fn few(fitting: Vec<Fitting<'_>>) -> Vec<Fitting<'_>> {
    let mut smallest: BTreeMap<String, Fitting<'_>> = BTreeMap::new();
    for one in fitting {
        let (family, _) = one.instance_type.name.split_once('.').unwrap_or((&one.instance_type.name, ""));
        let is_smaller = |other: &Fitting<'_>| one.instance_type.weight() < other.instance_type.weight();
        if smallest.get(family).is_none_or(is_smaller) {
            smallest.insert(family.to_owned(), one);
        }
    }
    let mut few: Vec<(String, Fitting<'_>)> = smallest.into_iter().collect();
    few.sort_by_cached_key(|(family, one)| {
        let (series, generation, variant) = parts(family);
        let is_general = ["c", "m", "r"].contains(&series) && ["", "a", "g", "i"].contains(&variant);
        (!is_general, one.instance_type.weight(), std::cmp::Reverse(generation), family.clone())
    });
    few.into_iter().take(MOST_TYPES).map(|(_, one)| one).collect()
}

/// `c7i-flex` as `c`, 7 and `i-flex`.
fn parts(family: &str) -> (&str, u32, &str) {
    let digits = family.find(|c: char| c.is_ascii_digit()).unwrap_or(family.len());
    let (series, rest) = family.split_at(digits);
    let variant = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (generation, variant) = rest.split_at(variant);
    (series, generation.parse().unwrap_or(0), variant)
}

/// The largest disk of EBS.
pub(super) const MOST_DISK_GIB: u32 = 16_384;
/// How many types without accelerators are priced.
const MOST_TYPES: usize = 20;
/// Old kinds, and the drivers that they need. The Deep Learning images of Ubuntu 24.04 have newer
/// drivers: NVIDIA's open driver supports Turing and later, and the driver of Neuron does not
/// support the first Inferentia.
const DRIVERS: &[(&[&str], &str)] = &[
    (&["K520", "K80", "M60", "P100", "V100"], "NVIDIA's closed driver"),
    (&["Inferentia"], "a driver of Neuron that is older than that of the images"),
];

#[cfg(test)]
pub(super) mod tests;
