//! The resources of this host.

use std::process::{Command, Stdio};

use crate::ids::OfferId;
use crate::provider::models::{Model, parse_smi};
use crate::provider::{Offer, Requirements};
use crate::spec::Accelerator;

/// One offer for this host without accelerators, then one for each kind of accelerator that it has.
pub(in crate::provider) fn offers(look: Look) -> Vec<Offer> {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX));
    let plain = Offer::new("host", "this host", cpus, memory_gib());
    let mut offers = vec![plain.clone()];
    let visible = chosen_devices().map_or(u32::MAX, |devices| u32::try_from(devices.len()).unwrap_or(u32::MAX));
    for model in models(look) {
        let kind = model.kind();
        let same = |offer: &&mut Offer| offer.accelerator.as_ref().is_some_and(|other| other.kind == kind);
        match offers.iter_mut().find(same).and_then(|offer| offer.accelerator.as_mut()) {
            Some(accelerator) => {
                accelerator.count = (accelerator.count + 1).min(visible);
                // A node may get any of them.
                accelerator.memory_gib = accelerator.memory_gib.zip(model.memory_gib).map(|(a, b)| a.min(b));
            }
            None if visible > 0 => {
                let mut accelerator = Accelerator::new(kind, 1);
                accelerator.memory_gib = model.memory_gib;
                let id = OfferId::new(format!("host with {}", accelerator.kind));
                offers.push(plain.clone().id(id).accelerator(accelerator));
            }
            None => {}
        }
    }
    offers
}

/// What to say about accelerators of this host that a pool does not ask for.
pub(in crate::provider) fn unseen(offers: &[Offer], requirements: &Requirements) -> Option<String> {
    let there = offers.iter().find_map(|offer| offer.accelerator.as_ref())?;
    requirements.accelerator.is_none().then(|| {
        let Accelerator { kind, count, .. } = there;
        format!(
            "this host has {there}, and the pool asks for no accelerator, so its workers see none: \
             `.accelerator(Accelerator::new(\"{kind}\", {count}))` asks for it"
        )
    })
}

/// The accelerators that a node may get, by their names in `CUDA_VISIBLE_DEVICES`.
pub(in crate::provider) fn devices() -> Vec<String> {
    chosen_devices().unwrap_or_else(|| (0..models(Look::Close).len()).map(|index| index.to_string()).collect())
}

/// The accelerators that the client itself may use.
fn chosen_devices() -> Option<Vec<String>> {
    let text = std::env::var(super::claims::DEVICES).ok()?;
    Some(
        text.split(',')
            .map(str::trim)
            .filter(|device| !device.is_empty() && *device != "-1")
            .map(str::to_owned)
            .collect(),
    )
}

/// How closely to look for accelerators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::provider) enum Look {
    /// Read the driver's files: at once, without the memory.
    Quick,
    /// Run the driver's tool: it may take a second.
    Close,
}

fn models(look: Look) -> Vec<Model> {
    if !std::path::Path::new("/proc/driver/nvidia").exists() {
        return Vec::new();
    }
    let tool = || {
        let query = ["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"];
        let output = Command::new("nvidia-smi").args(query).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| parse_smi(&String::from_utf8_lossy(&output.stdout)))
    };
    // Without the tool, the driver's files still contain the names.
    (look == Look::Close).then(tool).flatten().unwrap_or_else(|| {
        let gpus = std::fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
        gpus.filter_map(|gpu| std::fs::read_to_string(gpu.path().join("information")).ok())
            .filter_map(|text| text.lines().find_map(|line| Some(line.strip_prefix("Model:")?.trim().to_owned())))
            .map(|name| Model { name, memory_gib: None })
            .collect()
    })
}

fn memory_gib() -> u32 {
    let limit =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    });
    let bytes = limit.into_iter().chain(total).min().unwrap_or(0);
    // A host sold with 16 GiB shows slightly less.
    u32::try_from((bytes + (1 << 29)) >> 30).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accelerator_that_nobody_asks_for_is_mentioned() {
        let plain = Offer::new("host", "this host", 8, 32);
        let offers = [plain.clone(), plain.clone().accelerator(Accelerator::new("H100", 2))];
        let words = unseen(&offers, &Requirements::default()).unwrap();
        assert!(words.contains("`.accelerator(Accelerator::new(\"H100\", 2))` asks for it"), "{words}");
        assert_eq!(unseen(&offers[..1], &Requirements::default()), None);
        let asks = Requirements::default().accelerator(Accelerator::new("H100", 1));
        assert_eq!(unseen(&offers, &asks), None);
    }

    #[test]
    fn this_host_has_cores_and_memory() {
        let offers = offers(Look::Quick);
        assert!(offers[0].cpus > 0 && offers[0].memory_gib > 0 && offers[0].accelerator.is_none());
    }
}
