//! Families of accelerators.

use std::fmt;

/// Accelerators that the same builds of a framework run on; see [`Accelerator::family`](super::Accelerator::family).
///
/// ```
/// use skyward_core::spec::AcceleratorFamily;
///
/// assert_eq!(AcceleratorFamily::Neuron.to_string(), "AWS Neuron");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcceleratorFamily {
    /// NVIDIA's GPUs, which run CUDA.
    Nvidia,
    /// AMD's GPUs, which run ROCm.
    Amd,
    /// Google's TPUs.
    Tpu,
    /// AWS's Trainium and Inferentia, which run Neuron.
    Neuron,
    /// Intel's (formerly Habana's) Gaudi.
    Gaudi,
}

impl fmt::Display for AcceleratorFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Tpu => "Google TPU",
            Self::Neuron => "AWS Neuron",
            Self::Gaudi => "Intel Gaudi",
        })
    }
}
