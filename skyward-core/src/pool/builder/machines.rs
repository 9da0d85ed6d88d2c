//! What the machines of a pool must have.

use super::PoolBuilder;
use crate::provider::{Architecture, Market};
use crate::spec::Accelerator;

impl PoolBuilder {
    /// The accelerators of each node.
    pub fn accelerator(mut self, accelerator: Accelerator) -> Self {
        self.requirements.accelerator = Some(accelerator);
        self
    }

    /// CPU cores of each node, at least.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.requirements.cpus = Some(cpus);
        self
    }

    /// Memory of each node in GiB, at least.
    pub fn memory_gib(mut self, memory: u32) -> Self {
        self.requirements.memory_gib = Some(memory);
        self
    }

    /// Disk of each node in GiB, at least.
    pub fn disk_gib(mut self, disk: u32) -> Self {
        self.requirements.disk_gib = Some(disk);
        self
    }

    /// The architecture of each node's processor.
    pub fn architecture(mut self, architecture: Architecture) -> Self {
        self.requirements.architecture = Some(architecture);
        self
    }

    /// How the machines are paid for; on demand, unless it is said.
    pub fn market(mut self, market: Market) -> Self {
        self.requirements.market = market;
        self
    }

    /// US dollars per hour for one machine, at most.
    pub fn most_usd_per_hour(mut self, most: f64) -> Self {
        self.requirements.most_usd_per_hour = Some(most);
        self
    }

    /// The places that machines may be in, by the provider's names; any, unless it is said.
    pub fn places(mut self, places: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.requirements.places = places.into_iter().map(Into::into).collect();
        self
    }

    /// Labels everything that the provider makes for the pool, where the provider has labels.
    ///
    /// ```
    /// # use skyward_core::pool::Pool;
    /// let builder = Pool::builder().label("team", "vision");
    /// ```
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }
}
