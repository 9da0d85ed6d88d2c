//! An instance type: what EC2 says of it, in the words of this project.

use std::fmt;

use aws_sdk_ec2::types::{
    ArchitectureType, GpuDeviceInfo, InstanceTypeInfo, NeuronDeviceInfo, ProcessorInfo, UsageClassType,
};
use serde::{Deserialize, Serialize};
use skyward_core::provider::Architecture;
use skyward_core::spec::{Accelerator, AcceleratorFamily};

/// An instance type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct InstanceType {
    /// `g5.xlarge`.
    pub(crate) name: String,
    pub(crate) cpus: u32,
    /// Rounded down, so that a machine never has less than its offer says.
    pub(crate) memory_gib: u32,
    pub(crate) architecture: Architecture,
    pub(crate) devices: Devices,
    /// Sold on demand.
    pub(crate) on_demand: bool,
    /// Sold as a spot instance.
    pub(crate) spot: bool,
    /// Sold in capacity blocks, which are reserved for days ahead.
    pub(crate) capacity_block: bool,
    pub(crate) efa_interfaces: u32,
    pub(crate) current_generation: bool,
    pub(crate) bare_metal: bool,
    /// Whether AWS throttles its processors, or charges more for them, when they are busy for long.
    pub(crate) burstable: bool,
    /// Disks that belong to the host and end with the machine; 0 where there are none.
    pub(crate) instance_storage_gib: u32,
}

/// What an instance type has beside its processors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Devices {
    Nothing,
    Accelerators(Accelerator),
    /// Devices that no image of this provider drives. The type is never offered; a refusal names
    /// them.
    Unserved(Unserved),
}

/// Devices that are not offered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Unserved {
    /// As EC2 names them: `Radeon Pro V520`.
    pub(crate) name: String,
    /// Why not, as the end of a sentence about them.
    pub(crate) why: String,
}

impl InstanceType {
    /// Reads EC2's description of a type. None for a type without a name or a number of processors,
    /// and for architectures that Skyward does not support, such as those of macOS.
    pub(crate) fn read(info: &InstanceTypeInfo) -> Option<Self> {
        let uses = info.supported_usage_classes();
        let efa = info.network_info().and_then(|network| network.efa_info()?.maximum_efa_interfaces());
        let storage = info.instance_storage_info().and_then(|storage| storage.total_size_in_gb());
        Some(Self {
            name: info.instance_type()?.as_str().to_owned(),
            cpus: count(info.v_cpu_info()?.default_v_cpus())?,
            memory_gib: u32::try_from(info.memory_info()?.size_in_mib()? / MIB_PER_GIB).ok()?,
            architecture: architecture(info.processor_info()?)?,
            devices: Devices::read(info),
            on_demand: uses.contains(&UsageClassType::OnDemand),
            spot: uses.contains(&UsageClassType::Spot),
            capacity_block: uses.contains(&UsageClassType::CapacityBlock),
            efa_interfaces: count(efa).unwrap_or(0),
            current_generation: info.current_generation() == Some(true),
            bare_metal: info.bare_metal() == Some(true),
            burstable: info.burstable_performance_supported() == Some(true),
            // EC2 counts in GB, which are smaller than GiB.
            instance_storage_gib: storage
                .and_then(|gb| u32::try_from(i128::from(gb) * 1_000_000_000 / (1 << 30)).ok())
                .unwrap_or(0),
        })
    }

    /// Its accelerators, where an image of this provider drives them.
    pub(crate) fn accelerator(&self) -> Option<&Accelerator> {
        match &self.devices {
            Devices::Accelerators(accelerator) => Some(accelerator),
            Devices::Nothing | Devices::Unserved(_) => None,
        }
    }

    /// Whether it is sold in capacity blocks and not otherwise.
    pub(crate) fn capacity_block_only(&self) -> bool {
        self.capacity_block && !self.on_demand && !self.spot
    }

    /// A rough measure of cost, without a unit, for types whose prices are unknown: a processor
    /// counts as much as 8 GiB of memory, and an accelerator more than either.
    pub(crate) fn weight(&self) -> u64 {
        let accelerators = self.accelerator().map_or(0, |accelerator| u64::from(accelerator.count));
        accelerators * 1_000_000 + u64::from(self.cpus) * 8 + u64::from(self.memory_gib)
    }
}

impl Devices {
    fn read(info: &InstanceTypeInfo) -> Self {
        // Inferentia is in `InferenceAcceleratorInfo` too: the same devices once more.
        let neuron = info.neuron_info().map(|info| info.neuron_devices()).unwrap_or_default();
        let gpus = info.gpu_info().map(|info| info.gpus()).unwrap_or_default();
        let inference = info.inference_accelerator_info().map(|info| info.accelerators()).unwrap_or_default();
        let media = info.media_accelerator_info().map(|info| info.accelerators()).unwrap_or_default();
        let fpgas = info.fpga_info().map(|info| info.fpgas()).unwrap_or_default();
        match (neuron, gpus) {
            ([], []) => {}
            ([one], []) => return Self::of_neuron(one),
            ([], [one]) => return Self::of_gpu(one),
            _ => return Self::unserved("accelerators of several kinds", "but no image has drivers for all of them"),
        }
        let first = inference.first().and_then(|one| one.name());
        let first = first.or_else(|| media.first()?.name()).or_else(|| fpgas.first()?.name());
        match (first, inference.is_empty() && media.is_empty() && fpgas.is_empty()) {
            (None, true) => Self::Nothing,
            (name, _) => Self::unserved(name.unwrap_or("its accelerator"), NO_DRIVER),
        }
    }

    fn of_gpu(gpu: &GpuDeviceInfo) -> Self {
        let name = gpu.name().unwrap_or("its GPU");
        if !gpu.manufacturer().is_some_and(|maker| maker.eq_ignore_ascii_case("nvidia")) {
            return Self::unserved(name, NO_DRIVER);
        }
        // These types have a part of a GPU: a pool that asks for an L4 would get an eighth of one.
        // They also need NVIDIA's GRID driver, which the Deep Learning images do not have.
        if gpu.gpu_partition_size().is_some_and(|size| size < 1.0) {
            let why = "which is only a fraction of a GPU in this type and needs a driver that the images lack";
            return Self::unserved(name, why);
        }
        let memory = gpu.memory_info().and_then(|memory| memory.size_in_mib());
        Self::accelerators(name, "NVIDIA", AcceleratorFamily::Nvidia, gpu.count(), memory)
    }

    fn of_neuron(device: &NeuronDeviceInfo) -> Self {
        let name = device.name().unwrap_or("accelerator");
        // EC2 reports the memory of a device, which its cores share.
        let memory = device.memory_info().and_then(|memory| memory.size_in_mib());
        let most = MOST_MEMORY.iter().find(|(kind, _)| *kind == name).map(|(_, gib)| gib * 1024);
        let memory = memory.map(|memory| memory.min(most.unwrap_or(i32::MAX)));
        Self::accelerators(name, "Neuron", AcceleratorFamily::Neuron, device.count(), memory)
    }

    /// An unknown kind keeps the maker's name, because nothing else shows its family.
    fn accelerators(
        name: &str,
        maker: &str,
        family: AcceleratorFamily,
        devices: Option<i32>,
        memory_mib: Option<i32>,
    ) -> Self {
        let Some(devices) = count(devices) else {
            return Self::unserved(name, "whose number EC2 does not report");
        };
        let read = Accelerator::new(name, devices);
        let kind = match read.family() {
            Some(known) if known == family => read.plain_kind(),
            _ => format!("{maker} {name}"),
        };
        let mut accelerator = Accelerator::new(kind, devices);
        // Rounded in the same way as the memory that a driver reports on a machine.
        accelerator.memory_gib = count(memory_mib).map(|mib| (f64::from(mib) / 1024.0).round() as u32);
        Self::Accelerators(accelerator)
    }

    fn unserved(name: &str, why: &str) -> Self {
        Self::Unserved(Unserved { name: name.to_owned(), why: why.to_owned() })
    }
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.why)
    }
}

fn architecture(processor: &ProcessorInfo) -> Option<Architecture> {
    processor.supported_architectures().iter().find_map(|architecture| match architecture {
        ArchitectureType::X8664 => Some(Architecture::X86_64),
        ArchitectureType::Arm64 => Some(Architecture::Aarch64),
        _ => None,
    })
}

/// A number of things that are there.
fn count(number: Option<i32>) -> Option<u32> {
    u32::try_from(number?).ok().filter(|number| *number > 0)
}

const MIB_PER_GIB: i64 = 1024;
const NO_DRIVER: &str = "which has no driver in the images that machines start from";
/// The memory of devices, in GiB, for which EC2 reports too much: 512 GiB for a Trainium2, which
/// has 96 by its data sheet.
const MOST_MEMORY: &[(&str, i32)] = &[("Trainium2", 96)];

#[cfg(test)]
pub(crate) mod tests;
