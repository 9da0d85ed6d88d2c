//! The known kinds of accelerators.

use super::AcceleratorFamily::{self, Amd, Gaudi, Neuron, Nvidia, Tpu};

/// A kind of accelerator.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) family: AcceleratorFamily,
    /// The plain name.
    pub(super) name: &'static str,
    /// Whether the kind exists in several sizes of memory, so that a size in a name selects one.
    pub(super) is_sized: bool,
    /// Other names, without the words in [`MAKERS`] and [`FORMS`]. Case and separators do not
    /// matter.
    pub(super) spellings: &'static [&'static str],
}

/// Words that name a maker or a product line, with the family if the word determines one.
pub(super) const MAKERS: &[(&str, Option<AcceleratorFamily>)] = &[
    ("nvidia", Some(Nvidia)),
    ("tesla", Some(Nvidia)),
    ("geforce", Some(Nvidia)),
    ("quadro", Some(Nvidia)),
    ("grid", Some(Nvidia)),
    ("amd", Some(Amd)),
    ("instinct", Some(Amd)),
    ("radeon", Some(Amd)),
    ("tpu", Some(Tpu)),
    ("neuron", Some(Neuron)),
    ("habana", Some(Gaudi)),
    // These makers sell accelerators of several families.
    ("aws", None),
    ("google", None),
    ("intel", None),
];

/// Words that name a form factor, a type of memory or a licence. A generation may follow: `SXM4`,
/// `HBM3e`, `NVL72`.
pub(super) const FORMS: &[&str] =
    &["sxm", "pcie", "nvl", "nvlink", "hbm", "oam", "dgxs", "fhhl", "vws", "gpu", "laptop"];

const fn kind(family: AcceleratorFamily, name: &'static str, spellings: &'static [&'static str]) -> Kind {
    Kind { family, name, is_sized: false, spellings }
}

const fn sized(family: AcceleratorFamily, name: &'static str, spellings: &'static [&'static str]) -> Kind {
    Kind { family, name, is_sized: true, spellings }
}

/// Every known kind.
pub(super) static KINDS: &[Kind] = &[
    // Names that clouds use: `AcceleratorName` of EC2's API, `gke-accelerator` labels of GKE,
    // `sky show-gpus` of SkyPilot. Names that drivers use: `nvidia-smi --query-gpu=name`.
    sized(Nvidia, "A100", &[]),
    sized(Nvidia, "A800", &[]),
    // Google's A3 Mega machines differ in their network; SkyPilot and GKE call their H100
    // `H100-MEGA`.
    sized(Nvidia, "H100", &["H100 MEGA"]),
    sized(Nvidia, "H800", &[]),
    sized(Nvidia, "H20", &[]),
    kind(Nvidia, "H200", &[]),
    kind(Nvidia, "GH200", &[]),
    kind(Nvidia, "B100", &[]),
    kind(Nvidia, "B200", &[]),
    // The driver calls it `NVIDIA B300 SXM6 AC`.
    kind(Nvidia, "B300", &["B300 AC"]),
    kind(Nvidia, "GB10", &[]),
    kind(Nvidia, "GB200", &[]),
    kind(Nvidia, "GB300", &[]),
    kind(Nvidia, "L2", &[]),
    kind(Nvidia, "L4", &[]),
    kind(Nvidia, "L20", &[]),
    kind(Nvidia, "L40", &[]),
    kind(Nvidia, "L40S", &[]),
    kind(Nvidia, "A2", &[]),
    kind(Nvidia, "A10", &[]),
    kind(Nvidia, "A10G", &[]),
    kind(Nvidia, "A16", &[]),
    kind(Nvidia, "A30", &[]),
    kind(Nvidia, "A40", &[]),
    kind(Nvidia, "T4", &[]),
    kind(Nvidia, "T4g", &[]),
    sized(Nvidia, "V100", &[]),
    kind(Nvidia, "V100S", &[]),
    kind(Nvidia, "P4", &[]),
    kind(Nvidia, "P40", &[]),
    sized(Nvidia, "P100", &[]),
    kind(Nvidia, "P4000", &[]),
    kind(Nvidia, "M40", &[]),
    kind(Nvidia, "M60", &[]),
    kind(Nvidia, "M4000", &[]),
    kind(Nvidia, "K80", &[]),
    kind(Nvidia, "K520", &[]),
    // EC2 calls the GPU of its G7e instances `RTX PRO Server 6000`.
    kind(
        Nvidia,
        "RTXPRO6000",
        &[
            "RTX PRO Server 6000",
            "RTX PRO 6000 Blackwell",
            "RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 Blackwell Workstation Edition",
            "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        ],
    ),
    sized(Nvidia, "RTXPRO5000", &["RTX PRO 5000 Blackwell"]),
    kind(Nvidia, "RTXPRO4500", &["RTX PRO 4500 Blackwell", "RTX PRO 4500 Blackwell Server Edition"]),
    kind(Nvidia, "RTXPRO4000", &["RTX PRO 4000 Blackwell"]),
    kind(Nvidia, "RTX6000Ada", &["RTX 6000 Ada Generation"]),
    kind(Nvidia, "RTX5000Ada", &["RTX 5000 Ada Generation"]),
    kind(Nvidia, "RTX4500Ada", &["RTX 4500 Ada Generation"]),
    kind(Nvidia, "RTX4000Ada", &["RTX 4000 Ada Generation", "RTX 4000 SFF Ada Generation"]),
    kind(Nvidia, "RTX2000Ada", &["RTX 2000 Ada Generation"]),
    kind(Nvidia, "RTXA6000", &["A6000"]),
    kind(Nvidia, "RTXA5000", &["A5000"]),
    kind(Nvidia, "RTXA4500", &["A4500"]),
    kind(Nvidia, "RTXA4000", &["A4000"]),
    sized(Nvidia, "RTXA2000", &["A2000"]),
    kind(Nvidia, "RTX8000", &[]),
    kind(Nvidia, "RTX6000", &[]),
    kind(Nvidia, "RTX5000", &[]),
    kind(Nvidia, "RTX4000", &[]),
    kind(Nvidia, "RTX5090", &[]),
    kind(Nvidia, "RTX5080", &[]),
    kind(Nvidia, "RTX5070Ti", &[]),
    kind(Nvidia, "RTX5070", &[]),
    sized(Nvidia, "RTX5060Ti", &[]),
    kind(Nvidia, "RTX5060", &[]),
    kind(Nvidia, "RTX4090", &[]),
    kind(Nvidia, "RTX4090D", &[]),
    kind(Nvidia, "RTX4080Super", &[]),
    kind(Nvidia, "RTX4080", &[]),
    kind(Nvidia, "RTX4070TiSuper", &[]),
    kind(Nvidia, "RTX4070Ti", &[]),
    kind(Nvidia, "RTX4070Super", &[]),
    kind(Nvidia, "RTX4070", &[]),
    sized(Nvidia, "RTX4060Ti", &[]),
    kind(Nvidia, "RTX4060", &[]),
    kind(Nvidia, "RTX3090Ti", &[]),
    kind(Nvidia, "RTX3090", &[]),
    kind(Nvidia, "RTX3080Ti", &[]),
    sized(Nvidia, "RTX3080", &[]),
    kind(Nvidia, "RTX3070Ti", &[]),
    kind(Nvidia, "RTX3070", &[]),
    kind(Nvidia, "RTX3060Ti", &[]),
    sized(Nvidia, "RTX3060", &[]),
    kind(Nvidia, "RTX2080Ti", &[]),
    kind(Nvidia, "RTX2080Super", &[]),
    kind(Nvidia, "RTX2080", &[]),
    kind(Nvidia, "RTX2070Super", &[]),
    kind(Nvidia, "RTX2070", &[]),
    kind(Nvidia, "RTX2060Super", &[]),
    sized(Nvidia, "RTX2060", &[]),
    kind(Nvidia, "GTX1080Ti", &[]),
    kind(Nvidia, "GTX1080", &[]),
    kind(Nvidia, "GTX1070Ti", &[]),
    kind(Nvidia, "GTX1070", &[]),
    kind(Nvidia, "TITANRTX", &[]),
    kind(Nvidia, "TITANV", &[]),
    kind(Nvidia, "TITANXp", &[]),
    // Names that `amd-smi` shows: `MI300X-O`, `AMD INSTINCT MI250 (MCM) OAM AC MBA`.
    kind(Amd, "MI25", &[]),
    sized(Amd, "MI50", &[]),
    kind(Amd, "MI60", &[]),
    kind(Amd, "MI100", &[]),
    kind(Amd, "MI210", &[]),
    kind(Amd, "MI250", &["MI250 MCM AC MBA"]),
    kind(Amd, "MI250X", &[]),
    kind(Amd, "MI300A", &[]),
    kind(Amd, "MI300X", &["MI300X O"]),
    kind(Amd, "MI308X", &[]),
    kind(Amd, "MI325X", &[]),
    kind(Amd, "MI350X", &[]),
    kind(Amd, "MI355X", &[]),
    // EC2's G4ad instances have Radeon Pro V520, Azure's NVv5 Radeon Pro V710.
    kind(Amd, "V520", &["Pro V520"]),
    kind(Amd, "V620", &["Pro V620"]),
    kind(Amd, "V710", &["Pro V710"]),
    kind(Amd, "W7900", &["Pro W7900"]),
    kind(Amd, "RX7900XTX", &[]),
    // Types of Cloud TPU (`v5litepod-8`), labels of GKE (`tpu-v5-lite-podslice`), and `device_kind`
    // of JAX. JAX's `tpu_info.py` reads `TPU v5 lite` as v5e, `TPU v5` as v5p and `TPU v6 lite` as
    // v6e.
    kind(Tpu, "v2", &[]),
    kind(Tpu, "v3", &[]),
    kind(Tpu, "v4", &["v4 podslice"]),
    kind(Tpu, "v5e", &["v5 lite", "v5 litepod", "v5 lite podslice", "v5 lite device"]),
    kind(Tpu, "v5p", &["v5", "v5p slice"]),
    kind(Tpu, "v6e", &["v6 lite", "v6e slice", "Trillium"]),
    kind(Tpu, "TPU7x", &["7x", "v7x", "v7", "Ironwood"]),
    // EC2 uses these names for accelerators, and Inf1, Inf2, Trn1 and Trn2 for instance types.
    kind(Neuron, "Inferentia", &["Inferentia1", "Inf1"]),
    kind(Neuron, "Inferentia2", &["Inf2"]),
    kind(Neuron, "Trainium", &["Trainium1", "Trn1", "Trn1n"]),
    kind(Neuron, "Trainium2", &["Trn2"]),
    kind(Neuron, "Trainium3", &["Trn3"]),
    // EC2 calls the accelerator of its DL1 instances `gaudi-hl-205`; `hl-smi` calls a Gaudi3
    // `HL-325L`.
    kind(Gaudi, "Gaudi", &["Gaudi1", "HL-205", "Gaudi HL-205"]),
    kind(Gaudi, "Gaudi2", &["HL-225", "HL-225H", "Gaudi2 HL-225H"]),
    kind(Gaudi, "Gaudi3", &["HL-325", "HL-325L", "Gaudi3 HL-325L"]),
];
