//! What a host has, and how much of it is free.

use super::host::Host;
use super::record::OFFER;
use super::refusal::Taken;
use crate::provider::models::{Model, parse_smi};
use crate::provider::{Architecture, Offer, Requirements};
use crate::spec::Accelerator;

/// What a host reports about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) cpus: u32,
    pub(super) memory_gib: u32,
    /// Free space on the disk of its folder.
    pub(super) disk_gib: Option<u32>,
    pub(super) architecture: Option<Architecture>,
    pub(super) devices: Vec<Model>,
    pub(super) taken: Vec<Taken>,
}

impl Facts {
    /// Parses the output of `facts.sh`.
    pub(super) fn read(text: &str) -> Self {
        let mut facts = Self::default();
        let mut kibibytes = u64::MAX;
        for line in text.lines() {
            let Some((name, value)) = line.strip_prefix("skyward-").and_then(|line| line.split_once(' ')) else {
                continue;
            };
            match name {
                "cpus" => facts.cpus = value.parse().unwrap_or(1),
                "memory_kib" => kibibytes = kibibytes.min(value.parse().unwrap_or(u64::MAX)),
                "disk_kib" => {
                    facts.disk_gib = value.parse::<u64>().ok().and_then(|disk| u32::try_from(disk >> 20).ok());
                }
                "architecture" => facts.architecture = Architecture::of_linux(value),
                "device" => facts.devices.extend(parse_smi(value)),
                _ => {}
            }
        }
        // A host sold with 16 GiB shows slightly less.
        let gibibytes = if kibibytes == u64::MAX { 0 } else { (kibibytes + (1 << 19)) >> 20 };
        facts.memory_gib = u32::try_from(gibibytes).unwrap_or(u32::MAX);
        facts.taken = Taken::read(text);
        facts
    }

    /// What a node on this host gets: the share of one slot.
    pub(super) fn share(&self, host: &Host) -> Offer {
        let slots = host.slots.max(1);
        let accelerator = self.accelerator(host).filter(|all| all.count >= slots).map(|mut all| {
            all.count /= slots;
            all
        });
        Offer::new(OFFER, "the hosts", (self.cpus / slots).max(1), self.memory_gib / slots)
            .disk_gib(self.disk_gib.map(|disk| disk / slots))
            .architecture(self.architecture)
            .accelerator(accelerator)
    }

    /// The accelerators of the host, by their indices in `CUDA_VISIBLE_DEVICES`.
    pub(super) fn devices(&self, host: &Host) -> Vec<String> {
        let count = self.accelerator(host).map_or(0, |accelerator| accelerator.count);
        (0..count).map(|index| index.to_string()).collect()
    }

    /// All accelerators of the host, if they are of one kind. A host with several kinds needs a
    /// declaration of the one to use.
    fn accelerator(&self, host: &Host) -> Option<Accelerator> {
        if let Some(told) = &host.accelerator {
            return Some(told.clone());
        }
        let kind = self.devices.first()?.kind();
        let same = self.devices.iter().all(|device| device.kind() == kind);
        let mut found = Accelerator::new(kind, u32::try_from(self.devices.len()).unwrap_or(u32::MAX));
        found.memory_gib = self.devices.iter().filter_map(|device| device.memory_gib).min();
        same.then_some(found)
    }
}

/// One offer for all hosts that meet the requirements: the minimum of what they have.
pub(super) fn offer(shares: &[Offer], requirements: &Requirements) -> Option<Offer> {
    let cpus = shares.iter().map(|share| share.cpus).min()?;
    let memory_gib = shares.iter().map(|share| share.memory_gib).min()?;
    let first = shares.first()?.architecture;
    let offer = Offer::new(OFFER, "the hosts", cpus, memory_gib)
        .accelerator(requirements.accelerator.clone())
        // Exactly the requested disk: less may be free when a machine is replaced.
        .disk_gib(requirements.disk_gib)
        .architecture(first.filter(|_| shares.iter().all(|share| share.architecture == first)));
    Some(offer)
}

/// The requirements of a machine of this offer.
pub(super) fn needs(offer: &Offer) -> Requirements {
    Requirements {
        accelerator: offer.accelerator.clone(),
        cpus: Some(offer.cpus),
        memory_gib: Some(offer.memory_gib),
        disk_gib: offer.disk_gib,
        architecture: offer.architecture,
        ..Requirements::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "skyward-architecture x86_64\nskyward-disk_kib 10000000\nskyward-cpus 8\nskyward-memory_kib 65600000\nskyward-memory_kib 16000000\nskyward-device NVIDIA H100 80GB HBM3, 81559\nskyward-device NVIDIA H100 80GB HBM3, 81559\nskyward-taken 0 p-a p-a-n0-a1@h\nskyward-taken 2 \nskyward-taken 3 user bob\n";

    #[test]
    fn the_facts_of_a_host_are_parsed_and_divided_among_its_slots() {
        let facts = Facts::read(TOLD);
        assert_eq!(facts.cpus, 8);
        assert_eq!(facts.memory_gib, 15);
        assert_eq!(facts.devices.len(), 2);
        assert_eq!(facts.taken.len(), 3);
        assert_eq!(facts.disk_gib, Some(9));
        assert_eq!(facts.architecture, Some(Architecture::X86_64));
        let share = facts.share(&Host::new("h").slots(2));
        assert_eq!(share.disk_gib, Some(4));
        assert_eq!(share.architecture, Some(Architecture::X86_64));
        assert_eq!(share.cpus, 4);
        assert_eq!(share.memory_gib, 7);
        assert_eq!(share.accelerator, Some(Accelerator::new("H100", 1).memory_gib(80)));
        assert_eq!(facts.share(&Host::new("h").slots(3)).accelerator, None);
        assert_eq!(facts.devices(&Host::new("h")), ["0", "1"]);
        assert_eq!(facts.devices(&Host::new("h").accelerator(Accelerator::new("A100", 1))), ["0"]);
    }

    #[test]
    fn an_offer_is_what_each_suitable_host_has() {
        let wants = Requirements::default().accelerator(Accelerator::new("h100", 1));
        let shares = [1, 2].map(|slots| Facts::read(TOLD).share(&Host::new("h").slots(slots)));
        assert!(shares.iter().all(|share| wants.are_met_by(share)));
        let offer = offer(&shares, &wants).unwrap();
        assert_eq!(offer.cpus, 4);
        assert_eq!(offer.memory_gib, 7);
        assert_eq!(&offer.accelerator, &wants.accelerator);
        assert!(shares.iter().all(|share| needs(&offer).are_met_by(share)));
        assert_eq!(offer.disk_gib, None);
        assert_eq!(offer.architecture, Some(Architecture::X86_64));
        let mut mixed = shares.clone();
        mixed[1].architecture = Some(Architecture::Aarch64);
        assert_eq!(super::offer(&mixed, &wants).unwrap().architecture, None);
        let disk = wants.clone().disk_gib(3);
        assert!(disk.are_met_by(&super::offer(&shares, &disk).unwrap()));
        assert!(!wants.clone().disk_gib(5).are_met_by(&shares[1]));
        assert!(!Requirements::default().cpus(9).are_met_by(&shares[0]));
        for (kind, count) in [("H100", 2), ("H200", 1)] {
            let wants = Requirements::default().accelerator(Accelerator::new(kind, count));
            assert!(!wants.are_met_by(&shares[1]), "{count}× {kind}");
        }
        for (kind, does) in [("H100-SXM5-80GB", true), ("nvidia-h100-80gb", true), ("H100-94GB", false), ("H20", false)]
        {
            let wants = Requirements::default().accelerator(Accelerator::new(kind, 1));
            assert_eq!(wants.are_met_by(&shares[1]), does, "{kind}");
        }
        assert_eq!(super::offer(&[], &wants), None);
    }
}
