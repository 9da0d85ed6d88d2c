//! What a user specifies for a pool: plain data, checked before anything starts.

mod accelerator;
mod budget;
mod image;
mod image_check;
mod limits;
mod nodes;
pub(crate) mod requirement;
mod secret;
pub(crate) mod unlimited;
mod uv;

pub use accelerator::{Accelerator, AcceleratorFamily};
pub(crate) use base16ct::lower::encode_string as hex;
pub(crate) use budget::seconds;
pub use budget::{Budget, Spent};
pub use image::{Image, IncludedFile, IndexCredentials, PackageIndex, Python};
pub(crate) use image_check::OLDEST;
pub use limits::Limits;
pub(crate) use limits::setters;
pub use nodes::Nodes;
pub(crate) use requirement::{normalised, requirement_name, satisfies};
pub use secret::Secret;
pub(crate) use secret::Secrets;
pub use uv::UvSettings;

use crate::layout::Layout;

/// The cluster as plugins see it: the specification of the pool, before any machine exists.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterInfo {
    /// The number of nodes that the pool has when it is ready.
    pub nodes: u32,
    /// The number of workers on each node.
    pub workers_per_node: u32,
    /// The accelerators of each node. `None`: nodes have only a CPU.
    pub accelerator: Option<Accelerator>,
    /// CPU cores that each node has at least, where the pool asks for a number.
    pub cpus: Option<u32>,
    /// Whether all nodes are on one host, and share its cores, memory, accelerators and ports.
    pub shared_host: bool,
    /// Whether the number of nodes may change during the pool's life.
    pub elastic: bool,
    /// Whether the pool has a storage, where the checkpoints of payloads are.
    pub storage: bool,
}

impl ClusterInfo {
    /// A cluster with this number of nodes and of workers on each node, of fixed size, without
    /// accelerators and without a storage.
    pub fn new(nodes: u32, workers_per_node: u32) -> Self {
        Self {
            nodes,
            workers_per_node,
            accelerator: None,
            cpus: None,
            shared_host: false,
            elastic: false,
            storage: false,
        }
    }

    /// The same cluster with these accelerators on each node; `None` for nodes without any.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::spec::{Accelerator, ClusterInfo};
    ///
    /// let cluster = ClusterInfo::new(2, 8).accelerator(Accelerator::new("H100", 8)).cpus(96);
    /// assert_eq!(cluster.cpus, Some(96));
    /// assert_eq!(cluster.accelerator(None).accelerator, None);
    /// ```
    #[must_use]
    pub fn accelerator(mut self, accelerator: impl Into<Option<Accelerator>>) -> Self {
        self.accelerator = accelerator.into();
        self
    }

    /// The same cluster with at least this number of CPU cores on each node; `None` for any number.
    #[must_use]
    pub fn cpus(mut self, cpus: impl Into<Option<u32>>) -> Self {
        self.cpus = cpus.into();
        self
    }

    /// The same cluster with all nodes on one host, or each on its own.
    #[must_use]
    pub fn shared_host(mut self, shared_host: bool) -> Self {
        self.shared_host = shared_host;
        self
    }

    /// The same cluster with a number of nodes that may change, or not.
    #[must_use]
    pub fn elastic(mut self, elastic: bool) -> Self {
        self.elastic = elastic;
        self
    }

    /// The same cluster with a storage for checkpoints, or without one.
    #[must_use]
    pub fn storage(mut self, storage: bool) -> Self {
        self.storage = storage;
        self
    }

    /// Whether the cluster has more than one worker, or may grow to have more than one.
    pub fn may_be_many(&self) -> bool {
        self.elastic || self.total_workers() > 1
    }

    /// Converts between ranks and workers of nodes.
    pub(crate) fn layout(&self) -> Layout {
        Layout::new(self.workers_per_node)
    }

    /// The number of all workers of the pool.
    pub fn total_workers(&self) -> u32 {
        self.layout().workers(self.nodes)
    }
}
