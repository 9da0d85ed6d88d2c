//! The accelerators of a node.

mod family;
mod kinds;
mod name;
mod nearest;

use serde::{Deserialize, Serialize};

pub use self::family::AcceleratorFamily;
use self::name::Name;

/// Accelerators of one kind on each node of a pool.
///
/// A kind may be written as a cloud, a driver or a data sheet writes it: `V100`,
/// `Tesla V100-SXM2-16GB` and `nvidia-tesla-v100` are one kind, and so are `v5e`, `v5litepod-8` and
/// `tpu-v5-lite-podslice`.
///
/// These parts of a name are not part of the kind: case, separators, the maker's name, the form
/// factor (`SXM4`, `PCIe`, `NVL`), the type of memory (`HBM3`), and the size of a TPU slice. A kind
/// that this crate does not know is compared in the same way, so a provider can offer hardware that
/// is newer than this crate.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::spec::Accelerator;
///
/// let eight = Accelerator::new("H100", 8).memory_gib(80);
/// assert_eq!(eight.to_string(), "8× H100");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Accelerator {
    /// The name of the kind: `H100`, `A100`, `T4`, `L4`, `MI300X`, `v5e`.
    pub kind: String,
    /// The number of accelerators on each node.
    pub count: u32,
    /// The least memory of each accelerator, in GiB, if it matters; see
    /// [`least_memory_gib`](Accelerator::least_memory_gib).
    pub memory_gib: Option<u32>,
}

impl Accelerator {
    /// This number of accelerators of this kind on each node.
    pub fn new(kind: impl Into<String>, count: u32) -> Self {
        Self { kind: kind.into(), count, memory_gib: None }
    }

    /// The same, with at least this much memory each, in GiB.
    #[must_use]
    pub fn memory_gib(mut self, memory_gib: u32) -> Self {
        self.memory_gib = Some(memory_gib);
        self
    }

    /// The family of the kind, by which a plugin chooses the build of a framework.
    ///
    /// `None` for a kind that this crate does not know, unless its name contains the name of a
    /// maker: `NVIDIA X9` belongs to NVIDIA's family, even if an X9 is unknown. A name that
    /// contradicts itself, such as `AMD H100`, has no family.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::spec::{Accelerator, AcceleratorFamily};
    ///
    /// assert_eq!(Accelerator::new("V100", 1).family(), Some(AcceleratorFamily::Nvidia));
    /// assert_eq!(Accelerator::new("V520", 1).family(), Some(AcceleratorFamily::Amd));
    /// assert_eq!(Accelerator::new("v5litepod-8", 8).family(), Some(AcceleratorFamily::Tpu));
    /// assert_eq!(Accelerator::new("X9", 1).family(), None);
    /// ```
    pub fn family(&self) -> Option<AcceleratorFamily> {
        Name::read(&self.kind).family()
    }

    /// Whether both are of the same kind, however their names are written. Does not compare count
    /// and memory.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::spec::Accelerator;
    ///
    /// let v100 = Accelerator::new("V100", 1);
    /// assert!(v100.is_same_kind(&Accelerator::new("Tesla V100-SXM2-16GB", 8)));
    /// assert!(!Accelerator::new("T4", 1).is_same_kind(&Accelerator::new("T4g", 1)));
    /// ```
    pub fn is_same_kind(&self, other: &Self) -> bool {
        Name::read(&self.kind).is_same_kind(&Name::read(&other.kind))
    }

    /// The kind's plain name: `H100` for `NVIDIA H100 80GB HBM3`, `v5e` for `tpu-v5-lite-podslice`.
    /// For an unknown kind, the name without the words that are not part of a kind.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::spec::Accelerator;
    ///
    /// assert_eq!(Accelerator::new("NVIDIA GeForce RTX 4090", 1).plain_kind(), "RTX4090");
    /// assert_eq!(Accelerator::new("NVIDIA X9-SXM8-512GB", 1).plain_kind(), "X9");
    /// ```
    pub fn plain_kind(&self) -> String {
        Name::read(&self.kind).plain()
    }

    /// The least memory of each accelerator, in GiB: the size that
    /// [`memory_gib`](field@Accelerator::memory_gib) has, or else the size in the kind's name.
    ///
    /// A size in the name counts if the kind exists in several sizes, as A100 and V100 do, or if
    /// the kind is unknown. For other kinds the size is ignored, because it may differ from what a
    /// driver reports: the driver of a T4 of 16 GB reports 15 GiB, and the number in `GH200 480GB`
    /// is the size of the host's memory.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::spec::Accelerator;
    ///
    /// assert_eq!(Accelerator::new("A100-80GB", 8).least_memory_gib(), Some(80));
    /// assert_eq!(Accelerator::new("A100-80GB", 8).memory_gib(40).least_memory_gib(), Some(40));
    /// assert_eq!(Accelerator::new("GH200 480GB", 1).least_memory_gib(), None);
    /// ```
    pub fn least_memory_gib(&self) -> Option<u32> {
        self.memory_gib.or_else(|| Name::read(&self.kind).memory_gib())
    }

    /// The known kinds with the most similar names, the most similar first, for an error about an
    /// unknown kind. Empty if no name is similar.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::spec::Accelerator;
    ///
    /// assert!(Accelerator::new("MI300", 1).nearest_kinds().contains(&"MI300X"));
    /// ```
    pub fn nearest_kinds(&self) -> Vec<&'static str> {
        nearest::to(&self.plain_kind())
    }
}

impl std::fmt::Display for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}× {}", self.count, self.kind)
    }
}

#[cfg(test)]
mod tests;
