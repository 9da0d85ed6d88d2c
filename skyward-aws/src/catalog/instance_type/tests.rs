//! The facts of instance types are those that EC2 gives for these names.

use aws_sdk_ec2::types::{
    ArchitectureType, EfaInfo, FpgaDeviceInfo, FpgaInfo, GpuDeviceInfo, GpuDeviceMemoryInfo, GpuInfo,
    InferenceAcceleratorInfo, InferenceDeviceInfo, InstanceStorageInfo, InstanceTypeInfo, MediaAcceleratorInfo,
    MediaDeviceInfo, MemoryInfo, NetworkInfo, NeuronDeviceCoreInfo, NeuronDeviceInfo, NeuronDeviceMemoryInfo,
    NeuronInfo, ProcessorInfo, UsageClassType, VCpuInfo, builders::InstanceTypeInfoBuilder,
};

use super::*;

/// An x86 type of the current generation that is sold on demand and as spot.
pub(crate) fn info(name: &str, cpus: i32, memory_gib: i64) -> InstanceTypeInfoBuilder {
    InstanceTypeInfo::builder()
        .instance_type(name.into())
        .current_generation(true)
        .bare_metal(false)
        .burstable_performance_supported(false)
        .supported_usage_classes(UsageClassType::OnDemand)
        .supported_usage_classes(UsageClassType::Spot)
        .processor_info(processor(ArchitectureType::X8664))
        .v_cpu_info(VCpuInfo::builder().default_v_cpus(cpus).build())
        .memory_info(MemoryInfo::builder().size_in_mib(memory_gib * 1024).build())
}

pub(crate) fn gpus(name: &str, maker: &str, count: i32, part: f64, memory_mib: i32) -> GpuInfo {
    let memory = GpuDeviceMemoryInfo::builder().size_in_mib(memory_mib).build();
    let gpu = GpuDeviceInfo::builder().name(name).manufacturer(maker).count(count).logical_gpu_count(count.max(1));
    GpuInfo::builder().gpus(gpu.gpu_partition_size(part).memory_info(memory).build()).build()
}

fn neuron(name: &str, count: i32, cores: i32, memory_mib: i32) -> NeuronInfo {
    let memory = NeuronDeviceMemoryInfo::builder().size_in_mib(memory_mib).build();
    let core = NeuronDeviceCoreInfo::builder().count(cores).version(2).build();
    let device = NeuronDeviceInfo::builder().name(name).count(count).core_info(core).memory_info(memory).build();
    NeuronInfo::builder().neuron_devices(device).build()
}

fn processor(architecture: ArchitectureType) -> ProcessorInfo {
    ProcessorInfo::builder().supported_architectures(architecture).build()
}

fn read(info: InstanceTypeInfoBuilder) -> InstanceType {
    InstanceType::read(&info.build()).unwrap()
}

#[track_caller]
fn assert_has(info: InstanceTypeInfoBuilder, kind: &str, count: u32, memory_gib: u32) {
    let read = read(info);
    assert_eq!(read.accelerator(), Some(&Accelerator::new(kind, count).memory_gib(memory_gib)), "{}", read.name);
}

#[test]
fn a_type_is_read() {
    let efa = NetworkInfo::builder().efa_info(EfaInfo::builder().maximum_efa_interfaces(4).build()).build();
    let info = info("p4d.24xlarge", 96, 1152)
        .supported_usage_classes(UsageClassType::CapacityBlock)
        .network_info(efa)
        .instance_storage_info(InstanceStorageInfo::builder().total_size_in_gb(8000).build())
        .gpu_info(gpus("A100", "NVIDIA", 8, 1.0, 40960));
    let expected = InstanceType {
        name: "p4d.24xlarge".into(),
        cpus: 96,
        memory_gib: 1152,
        architecture: Architecture::X86_64,
        devices: Devices::Accelerators(Accelerator::new("A100", 8).memory_gib(40)),
        on_demand: true,
        spot: true,
        capacity_block: true,
        efa_interfaces: 4,
        current_generation: true,
        bare_metal: false,
        burstable: false,
        instance_storage_gib: 7450,
    };
    assert_eq!(read(info), expected);
    assert!(!expected.capacity_block_only());
    assert!(InstanceType { on_demand: false, spot: false, ..expected }.capacity_block_only());
}

#[test]
fn gpus_have_the_names_and_the_memory_that_drivers_give_them() {
    for (name, mib, kind, gib) in [
        ("A10G", 22888, "A10G", 22),
        ("T4", 16384, "T4", 16),
        ("L40S", 45776, "L40S", 45),
        ("H200", 144384, "H200", 141),
        ("B200", 183359, "B200", 179),
        ("RTX PRO Server 6000", 98304, "RTXPRO6000", 96),
    ] {
        assert_has(info("x", 8, 8).gpu_info(gpus(name, "NVIDIA", 4, 1.0, mib)), kind, 4, gib);
    }
}

#[test]
fn a_kind_that_is_not_known_keeps_its_family() {
    let new = read(info("p9.48xlarge", 192, 2048).gpu_info(gpus("R300", "NVIDIA", 8, 1.0, 294912)));
    let accelerator = new.accelerator().unwrap();
    assert_eq!(accelerator.family(), Some(AcceleratorFamily::Nvidia));
    assert!(accelerator.is_same_kind(&Accelerator::new("R300", 1)));
    let new = read(info("trn9.48xlarge", 192, 2048).neuron_info(neuron("Trainium9", 16, 8, 98304)));
    assert_eq!(new.accelerator().unwrap().family(), Some(AcceleratorFamily::Neuron));
}

#[test]
fn memory_of_neuron_is_that_of_a_device_and_not_of_each_core() {
    assert_has(info("trn1.2xlarge", 8, 32).neuron_info(neuron("Trainium", 1, 2, 32768)), "Trainium", 1, 32);
    assert_has(info("trn1.32xlarge", 128, 512).neuron_info(neuron("Trainium", 16, 2, 32768)), "Trainium", 16, 32);
    assert_has(info("trn2.48xlarge", 192, 2048).neuron_info(neuron("Trainium2", 16, 8, 524288)), "Trainium2", 16, 96);
}

#[test]
fn what_is_told_as_two_sorts_of_accelerators_counts_once() {
    let device = InferenceDeviceInfo::builder().name("Inferentia2").manufacturer("AWS").count(6).build();
    let inference = InferenceAcceleratorInfo::builder().accelerators(device).build();
    let info = info("inf2.24xlarge", 96, 384).inference_accelerator_info(inference).neuron_info(neuron(
        "Inferentia2",
        6,
        2,
        32768,
    ));
    assert_has(info, "Inferentia2", 6, 32);
}

#[test]
fn devices_without_a_driver_are_named_and_not_offered() {
    let inference = InferenceDeviceInfo::builder().name("Qualcomm AI100").count(8).build();
    let inference = InferenceAcceleratorInfo::builder().accelerators(inference).build();
    let media = MediaDeviceInfo::builder().name("U30").manufacturer("Xilinx").count(1).build();
    let media = MediaAcceleratorInfo::builder().accelerators(media).build();
    let fpga = FpgaDeviceInfo::builder().name("Virtex UltraScale+ (VU47P)").count(1).build();
    let fpga = FpgaInfo::builder().fpgas(fpga).build();
    for (info, named) in [
        (info("g4ad.xlarge", 4, 16).gpu_info(gpus("Radeon Pro V520", "AMD", 1, 1.0, 8192)), "Radeon Pro V520"),
        (info("dl1.24xlarge", 96, 768).gpu_info(gpus("Gaudi HL-205", "Habana", 8, 1.0, 32768)), "Gaudi HL-205"),
        (info("dl2q.24xlarge", 96, 768).inference_accelerator_info(inference), "Qualcomm AI100"),
        (info("vt1.3xlarge", 12, 24).media_accelerator_info(media), "U30"),
        (info("f2.6xlarge", 24, 256).fpga_info(fpga), "Virtex UltraScale+ (VU47P)"),
        (info("g6f.large", 2, 8).gpu_info(gpus("L4", "NVIDIA", 0, 0.125, 2861)), "L4"),
    ] {
        let read = read(info);
        assert_eq!(read.accelerator(), None, "{}", read.name);
        let Devices::Unserved(unserved) = &read.devices else { panic!("{read:?}") };
        assert_eq!(unserved.name, named);
        let is_part = unserved.why.contains("only a fraction of a GPU");
        assert_eq!(is_part, named == "L4", "{unserved}");
    }
}

#[test]
fn a_type_with_processors_alone_has_nothing_else() {
    let arm = read(info("m7g.medium", 1, 4).processor_info(processor(ArchitectureType::Arm64)));
    assert_eq!(arm.architecture, Architecture::Aarch64);
    assert_eq!(arm.devices, Devices::Nothing);
    let old = ProcessorInfo::builder()
        .supported_architectures(ArchitectureType::I386)
        .supported_architectures(ArchitectureType::X8664)
        .build();
    assert_eq!(read(info("t2.micro", 1, 1).processor_info(old)).architecture, Architecture::X86_64);
}

#[test]
fn what_cannot_run_linux_or_says_too_little_is_no_type() {
    let mac = info("mac2.metal", 8, 16).processor_info(processor(ArchitectureType::Arm64Mac));
    assert_eq!(InstanceType::read(&mac.build()), None);
    assert_eq!(InstanceType::read(&info("x", 0, 16).build()), None);
    assert_eq!(InstanceType::read(&InstanceTypeInfo::builder().instance_type("m7i.large".into()).build()), None);
}

#[test]
fn it_survives_the_cache() {
    let type_ = read(info("g5.xlarge", 4, 16).gpu_info(gpus("A10G", "NVIDIA", 1, 1.0, 22888)));
    let text = serde_json::to_string(&type_).unwrap();
    assert_eq!(serde_json::from_str::<InstanceType>(&text).unwrap(), type_);
}
