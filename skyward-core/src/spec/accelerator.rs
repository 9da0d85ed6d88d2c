//! The accelerators of a node.

use serde::{Deserialize, Serialize};

/// Accelerators of one kind on each node of a pool.
///
/// ```
/// use skyward_core::spec::Accelerator;
///
/// let eight = Accelerator::new("H100", 8).with_memory_gib(80);
/// assert_eq!(eight.to_string(), "8× H100");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Accelerator {
    /// The field's name for it: `H100`, `A100`, `T4`, `L4`, `MI300X`, `v5e`.
    pub kind: String,
    /// How many on each node.
    pub count: u32,
    /// Memory of each, in GiB, where it matters.
    pub memory_gib: Option<u32>,
}

impl Accelerator {
    /// So many accelerators of this kind on each node.
    pub fn new(kind: impl Into<String>, count: u32) -> Self {
        Self { kind: kind.into(), count, memory_gib: None }
    }

    /// The same, with at least so much memory each.
    #[must_use]
    pub fn with_memory_gib(mut self, memory_gib: u32) -> Self {
        self.memory_gib = Some(memory_gib);
        self
    }
}

impl std::fmt::Display for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}× {}", self.count, self.kind)
    }
}
