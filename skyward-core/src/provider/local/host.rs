//! What this host has.

use std::process::{Command, Stdio};

use crate::provider::Offer;
use crate::spec::Accelerator;

/// This host without accelerators, and then each kind of accelerator that it has.
pub(super) fn offers(look: Look) -> Vec<Offer> {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX));
    let plain = Offer::new("host", "this host", cpus, memory_gib());
    let mut offers = vec![plain.clone()];
    let visible = chosen_devices().map_or(u32::MAX, |devices| u32::try_from(devices.len()).unwrap_or(u32::MAX));
    for model in models(look) {
        let kind = kind_of(&model.name);
        let same = |offer: &&mut Offer| offer.accelerator.as_ref().is_some_and(|other| other.kind == kind);
        match offers.iter_mut().find(same).and_then(|offer| offer.accelerator.as_mut()) {
            Some(accelerator) => accelerator.count = (accelerator.count + 1).min(visible),
            None if visible > 0 => {
                let mut accelerator = Accelerator::new(kind, 1);
                accelerator.memory_gib = model.memory_gib;
                let mut offer = plain.clone();
                offer.accelerator = Some(accelerator);
                offers.push(offer);
            }
            None => {}
        }
    }
    offers
}

/// The accelerators that a node may be given, as `CUDA_VISIBLE_DEVICES` names them.
pub(super) fn devices() -> Vec<String> {
    chosen_devices().unwrap_or_else(|| (0..models(Look::Close).len()).map(|index| index.to_string()).collect())
}

/// What the client itself was given.
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
pub(super) enum Look {
    /// What the driver's files say: at once, without memory.
    Quick,
    /// What the driver's tool says: it may take a second.
    Close,
}

/// Whether an accelerator of the host is the one that is asked for.
pub(super) fn is_kind(has: &str, wanted: &str) -> bool {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase();
    plain(has) == plain(wanted)
}

struct Model {
    name: String,
    memory_gib: Option<u32>,
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
    // Without the tool the driver still tells the names.
    (look == Look::Close).then(tool).flatten().unwrap_or_else(|| {
        let gpus = std::fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten().flatten();
        gpus.filter_map(|gpu| std::fs::read_to_string(gpu.path().join("information")).ok())
            .filter_map(|text| text.lines().find_map(|line| Some(line.strip_prefix("Model:")?.trim().to_owned())))
            .map(|name| Model { name, memory_gib: None })
            .collect()
    })
}

fn parse_smi(text: &str) -> Vec<Model> {
    text.lines()
        .filter_map(|line| line.rsplit_once(','))
        .map(|(name, mebibytes)| Model {
            name: name.trim().to_owned(),
            // The driver keeps some for itself: an 80 GB card shows 79.6 GiB or 81559 MiB.
            memory_gib: mebibytes.trim().parse::<f64>().ok().map(|mebibytes| (mebibytes / 1024.0).round() as u32),
        })
        .collect()
}

/// The field's name for a model: `H100` for `NVIDIA H100 80GB HBM3`.
fn kind_of(model: &str) -> String {
    let mut words = model.split([' ', '-']).filter(|word| !MAKERS.contains(&word.to_ascii_uppercase().as_str()));
    match words.next() {
        Some(line @ ("RTX" | "GTX")) => format!("{line}{}", words.next().unwrap_or_default()),
        Some(word) => word.to_owned(),
        None => model.to_owned(),
    }
}

fn memory_gib() -> u32 {
    let limit =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    });
    let bytes = limit.into_iter().chain(total).min().unwrap_or(0);
    // A host sold with 16 GiB shows a little less.
    u32::try_from((bytes + (1 << 29)) >> 30).unwrap_or(u32::MAX)
}

const MAKERS: [&str; 4] = ["NVIDIA", "TESLA", "GEFORCE", "QUADRO"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_fields_names() {
        for (model, kind) in [
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA H200", "H200"),
            ("NVIDIA A100-SXM4-80GB", "A100"),
            ("Tesla T4", "T4"),
            ("NVIDIA GeForce RTX 4090", "RTX4090"),
            ("NVIDIA RTX A6000", "RTXA6000"),
        ] {
            assert_eq!(kind_of(model), kind);
        }
        assert!(is_kind("RTX4090", "rtx 4090"));
        assert!(!is_kind("A100", "A10"));
    }

    #[test]
    fn the_tool_is_read() {
        let models = parse_smi("NVIDIA H200, 143771\nNVIDIA H200, [N/A]\n");
        assert_eq!(models.iter().map(|model| model.memory_gib).collect::<Vec<_>>(), [Some(140), None]);
        assert_eq!(models[0].name, "NVIDIA H200");
    }

    #[test]
    fn this_host_has_something() {
        let offers = offers(Look::Quick);
        assert!(offers[0].cpus > 0 && offers[0].memory_gib > 0 && offers[0].accelerator.is_none());
    }
}
