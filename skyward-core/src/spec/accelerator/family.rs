//! Families of accelerators.

use std::fmt;

/// A family of accelerators: the same builds of a framework run on all of them. See
/// [`Accelerator::family`](super::Accelerator::family).
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::spec::AcceleratorFamily;
///
/// assert_eq!(AcceleratorFamily::Neuron.to_string(), "AWS Neuron");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcceleratorFamily {
    /// GPUs of NVIDIA, with CUDA.
    Nvidia,
    /// GPUs of AMD, with ROCm.
    Amd,
    /// TPUs of Google.
    Tpu,
    /// Trainium and Inferentia of AWS, with Neuron.
    Neuron,
    /// Gaudi of Intel (formerly of Habana).
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
