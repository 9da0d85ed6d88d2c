//! What the user asks for: plain data, checked before anything starts.

mod accelerator;
mod budget;
mod image;
mod image_check;
mod limits;
mod nodes;
mod requirement;
mod secret;

pub(crate) use accelerator::distance;
pub use accelerator::{Accelerator, AcceleratorFamily};
pub(crate) use budget::seconds;
pub use budget::{Budget, Spent};
pub(crate) use image::hex;
pub use image::{Image, IncludedFile, IndexCredentials, PackageIndex, Python};
pub(crate) use image_check::OLDEST;
pub use limits::Limits;
pub use nodes::Nodes;
pub(crate) use requirement::{normalised, requirement_name, satisfies};
pub use secret::Secret;
pub(crate) use secret::Secrets;

/// The cluster as plugins see it: what is asked for, before any machine exists.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterInfo {
    /// How many nodes the pool has when it is ready.
    pub nodes: u32,
    /// Worker processes on each node.
    pub workers_per_node: u32,
    /// The accelerators of each node; none: the node has only its CPU.
    pub accelerator: Option<Accelerator>,
    /// Whether the number of nodes may change during the pool's life.
    pub elastic: bool,
}

impl ClusterInfo {
    /// A cluster of so many nodes with so many workers on each, without accelerators and of fixed size.
    pub fn new(nodes: u32, workers_per_node: u32) -> Self {
        Self { nodes, workers_per_node, accelerator: None, elastic: false }
    }

    /// The same with accelerators on each node.
    #[must_use]
    pub fn with_accelerator(mut self, accelerator: Option<Accelerator>) -> Self {
        self.accelerator = accelerator;
        self
    }

    /// The same, of changing size or not.
    #[must_use]
    pub fn with_elastic(mut self, elastic: bool) -> Self {
        self.elastic = elastic;
        self
    }

    /// Whether it has, or may come to have, more than one worker.
    pub fn may_be_many(&self) -> bool {
        self.elastic || self.total_workers() > 1
    }

    /// All workers of the pool.
    pub fn total_workers(&self) -> u32 {
        self.nodes * self.workers_per_node
    }
}
