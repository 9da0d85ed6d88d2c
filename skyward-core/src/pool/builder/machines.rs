//! Options of the builder for the machines of a pool: hardware, price, zone, labels.

use super::PoolBuilder;
use crate::provider::{Architecture, Market};
use crate::spec::Accelerator;

impl PoolBuilder {
    /// Sets the accelerators of each node.
    pub fn accelerator(mut self, accelerator: Accelerator) -> Self {
        self.requirements.accelerator = Some(accelerator);
        self
    }

    /// Sets the least number of CPU cores of each node.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.requirements.cpus = Some(cpus);
        self
    }

    /// Sets the least memory of each node, in GiB.
    pub fn memory_gib(mut self, memory: u32) -> Self {
        self.requirements.memory_gib = Some(memory);
        self
    }

    /// Sets the least disk space of each node, in GiB.
    pub fn disk_gib(mut self, disk: u32) -> Self {
        self.requirements.disk_gib = Some(disk);
        self
    }

    /// Sets the architecture of each node's processor.
    pub fn architecture(mut self, architecture: Architecture) -> Self {
        self.requirements.architecture = Some(architecture);
        self
    }

    /// Sets how the machines are paid for. Default: on demand.
    pub fn market(mut self, market: Market) -> Self {
        self.requirements.market = market;
        self
    }

    /// Sets the most that one machine may cost, in US dollars per hour.
    pub fn most_usd_per_hour(mut self, most: f64) -> Self {
        self.requirements.most_usd_per_hour = Some(most);
        self
    }

    /// Sets the zones that machines may be in, by the provider's names. Default: any zone.
    pub fn zones(mut self, zones: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.requirements.zones = zones.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a label to everything that the provider makes for the pool, if the provider supports
    /// labels.
    ///
    /// ```
    /// # use skyward_core as skyward;
    /// use skyward::pool::Pool;
    ///
    /// let builder = Pool::builder().label("team", "vision");
    /// ```
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }
}
