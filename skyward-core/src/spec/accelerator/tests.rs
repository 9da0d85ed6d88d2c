use std::collections::BTreeMap;

use super::AcceleratorFamily::{Amd, Gaudi, Neuron, Nvidia, Tpu};
use super::kinds::KINDS;
use super::name::{join, words};
use super::*;

fn named(kind: &str) -> Accelerator {
    Accelerator::new(kind, 1)
}

/// How clouds and drivers write each kind.
const SPELLINGS: &[(&str, AcceleratorFamily, &[&str])] = &[
    (
        "V100",
        Nvidia,
        &["v100", "V100-SXM2", "V100-SXM2-16GB", "V100-32GB", "Tesla V100-SXM2-16GB", "nvidia-tesla-v100"],
    ),
    (
        "A100",
        Nvidia,
        &[
            "a100",
            "A100-80GB",
            "A100-SXM4-80GB",
            "NVIDIA A100 80GB PCIe",
            "A100-80GB-SXM",
            "nvidia-a100-80gb",
            "A100 80 GB",
        ],
    ),
    (
        "H100",
        Nvidia,
        &[
            "H100-PCIe",
            "H100 80GB HBM3",
            "NVIDIA H100 NVL",
            "H100-NVLINK",
            "H100-MEGA",
            "nvidia-h100-mega-80gb",
            "nvidia-h100-80gb",
        ],
    ),
    ("H200", Nvidia, &["NVIDIA H200", "H200-SXM", "nvidia-h200-141gb"]),
    ("GH200", Nvidia, &["NVIDIA GH200 480GB", "GH200_480GB", "NVIDIA GH200 144G HBM3e"]),
    ("B200", Nvidia, &["b200", "nvidia-b200"]),
    ("B300", Nvidia, &["NVIDIA B300 SXM6 AC"]),
    ("GB200", Nvidia, &["NVIDIA GB200", "nvidia-gb200", "GB200 NVL72"]),
    ("L4", Nvidia, &["nvidia-l4", "NVIDIA L4", "nvidia-l4-vws"]),
    ("L40S", Nvidia, &["l40s", "NVIDIA L40S"]),
    ("T4", Nvidia, &["Tesla T4", "nvidia-tesla-t4", "T4-16GB", "t4"]),
    ("T4g", Nvidia, &["T4G", "NVIDIA T4G", "t4g"]),
    ("A10G", Nvidia, &["NVIDIA A10G", "a10g"]),
    ("A10", Nvidia, &["NVIDIA A10"]),
    ("RTX4090", Nvidia, &["RTX 4090", "rtx-4090", "NVIDIA GeForce RTX 4090"]),
    ("GTX1080Ti", Nvidia, &["NVIDIA GeForce GTX 1080 Ti"]),
    ("RTX3070", Nvidia, &["NVIDIA GeForce RTX 3070 Laptop GPU"]),
    ("RTXA6000", Nvidia, &["NVIDIA RTX A6000", "A6000"]),
    ("RTX6000Ada", Nvidia, &["RTX6000-Ada", "NVIDIA RTX 6000 Ada Generation"]),
    ("RTX6000", Nvidia, &["Quadro RTX 6000"]),
    (
        "RTXPRO6000",
        Nvidia,
        &["RTX PRO 6000", "nvidia-rtx-pro-6000", "RTX PRO Server 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition"],
    ),
    ("K520", Nvidia, &["GRID K520"]),
    ("MI250", Amd, &["AMD INSTINCT MI250 (MCM) OAM AC MBA"]),
    ("MI300X", Amd, &["mi300x", "AMD Instinct MI300X", "AMD_Instinct_MI300X_OAM", "MI300X-O"]),
    ("MI325X", Amd, &["AMD Instinct MI325X"]),
    ("MI355X", Amd, &["mi355x"]),
    ("V520", Amd, &["Radeon Pro V520", "radeon-pro-v520", "AMD Radeon Pro V520"]),
    ("v2", Tpu, &["v2-8", "tpu-v2-8", "TPU v2"]),
    ("v4", Tpu, &["v4-32", "tpu-v4-podslice"]),
    ("v5e", Tpu, &["V5E", "v5litepod", "v5litepod-16", "TPU v5e", "TPU v5 lite", "tpu-v5-lite-podslice", "v5e-8"]),
    ("v5p", Tpu, &["v5p-128", "TPU v5", "tpu-v5p-slice"]),
    ("v6e", Tpu, &["Trillium", "TPU v6 lite", "tpu-v6e-slice", "v6e-256"]),
    ("TPU7x", Tpu, &["tpu7x", "ironwood", "TPU v7x", "tpu7x-128"]),
    ("Trainium", Neuron, &["Trn1", "trn1n", "AWS Trainium", "trainium"]),
    ("Trainium2", Neuron, &["Trn2", "trainium2", "Trainium 2"]),
    ("Inferentia", Neuron, &["inferentia", "Inf1"]),
    ("Inferentia2", Neuron, &["Inf2", "AWS Inferentia2"]),
    ("Gaudi", Gaudi, &["HL-205", "Gaudi HL-205", "gaudi-hl-205", "Habana Gaudi"]),
    ("Gaudi2", Gaudi, &["gaudi2", "Intel Gaudi 2", "HL-225H"]),
    ("Gaudi3", Gaudi, &["Intel® Gaudi® 3", "HL-325L"]),
];

#[test]
fn each_spelling_is_of_one_kind_and_family() {
    for (kind, family, spellings) in SPELLINGS {
        for spelling in spellings.iter().chain([kind]) {
            assert_eq!(named(spelling).plain_kind(), *kind, "{spelling}");
            assert_eq!(named(spelling).family(), Some(*family), "{spelling}");
            for (other, ..) in SPELLINGS {
                assert_eq!(named(spelling).is_same_kind(&named(other)), kind == other, "{spelling} and {other}");
            }
        }
    }
}

#[test]
fn names_that_resemble_each_other_are_different_kinds() {
    for (one, other) in [
        ("A100", "A10"),
        ("A10", "A10G"),
        ("T4", "T4g"),
        ("L4", "L40"),
        ("L40", "L40S"),
        ("H100", "GH200"),
        ("B200", "GB200"),
        ("V100", "V100S"),
        ("MI250", "MI250X"),
        ("MI300X", "MI300A"),
        ("RTX4090", "RTX4090D"),
        ("RTX 2080", "RTX 2080 Ti"),
        ("RTX 6000", "RTX 6000 Ada"),
        ("Gaudi", "Gaudi2"),
        ("Trainium", "Trainium2"),
        ("v5e", "v5p"),
        // The separator separates two numbers: a slice of a TPU is neither AMD's V520 nor NVIDIA's
        // V100.
        ("v5-20", "V520"),
        ("V10-0", "V100"),
        // A part of an accelerator is another kind than the whole accelerator.
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100"),
        ("NVIDIA A10-24Q", "A10"),
        ("AMD H100", "H100"),
        ("X9", "X8"),
        ("加速", "计算"),
        ("", "-"),
    ] {
        assert!(!named(one).is_same_kind(&named(other)), "{one} and {other}");
        assert!(!named(other).is_same_kind(&named(one)), "{other} and {one}");
    }
}

#[test]
fn unknown_kinds_are_compared_in_the_same_way_and_take_their_family_from_the_maker() {
    for (one, other) in
        [("X9", "NVIDIA X9 512GB HBM5"), ("RTX 9990", "rtx9990"), ("X9-SXM8", "x9 PCIe"), ("a b", "A-B")]
    {
        assert!(named(one).is_same_kind(&named(other)), "{one} and {other}");
    }
    assert_eq!(named("NVIDIA X9 512GB HBM5").plain_kind(), "X9");
    for (kind, family) in [
        ("X9", None),
        ("V100000", None),
        ("v9", None),
        ("t4x", None),
        ("my-H100-box", None),
        ("AMD H100", None),
        ("Intel Max 1550", None),
        ("NVIDIA AMD X9", None),
        ("", None),
        ("NVIDIA X9", Some(Nvidia)),
        ("AMD Instinct X9", Some(Amd)),
        ("TPU v9", Some(Tpu)),
        ("TPU", Some(Tpu)),
    ] {
        assert_eq!(named(kind).family(), family, "{kind}");
    }
}

#[test]
fn a_size_in_the_name_counts_for_kinds_of_several_sizes_and_unknown_kinds() {
    for (kind, memory) in [
        ("A100", None),
        ("A100-80GB", Some(80)),
        ("A100-SXM4-40GB", Some(40)),
        ("A100 80 GB", Some(80)),
        ("V100-SXM2-16GB", Some(16)),
        ("H100 80GB HBM3", Some(80)),
        ("X9-512GB", Some(512)),
        ("T4-16GB", None),
        ("NVIDIA GH200 480GB", None),
        ("A10G", None),
        ("v5litepod-16", None),
        ("A100-99999999999GB", None),
    ] {
        assert_eq!(named(kind).least_memory_gib(), memory, "{kind}");
    }
    assert_eq!(named("A100-80GB").memory_gib(40).least_memory_gib(), Some(40));
    assert_eq!(named("T4-16GB").memory_gib(15).least_memory_gib(), Some(15));
}

#[test]
fn no_name_is_of_two_kinds_and_all_names_parse_as_their_kind() {
    let mut owners = BTreeMap::new();
    for kind in KINDS {
        for name in kind.spellings.iter().chain([&kind.name]) {
            let plain = join(&words(name)).to_lowercase();
            let before = owners.insert(plain.clone(), kind.name);
            assert_eq!(before, None, "{name}");
            assert_eq!(named(name).plain_kind(), kind.name, "{name}");
            assert_eq!(named(&plain).plain_kind(), kind.name, "{name}");
        }
    }
}

#[test]
fn the_nearest_kinds_include_the_likely_one() {
    for (name, first) in [("H1000", "H100"), ("MI300", "MI300X"), ("RTX4O90", "RTX4090"), ("trainum2", "Trainium2")] {
        assert!(named(name).nearest_kinds().contains(&first), "{name}: {:?}", named(name).nearest_kinds());
    }
    assert!(named("H1000").nearest_kinds().len() <= 4);
    assert_eq!(named("quantum-annealer").nearest_kinds(), <[&str; 0]>::default());
}
