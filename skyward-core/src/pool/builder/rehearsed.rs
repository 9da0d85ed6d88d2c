//! Derives the pool of a rehearsal, which runs on this host, from the builder of the real pool.

use std::sync::Arc;
use std::time::Duration;

use super::PoolBuilder;
use crate::error::Result;
use crate::provider::{Labels, Local, Requirements};
use crate::spec::{Budget, Limits, Nodes};
use crate::storage::Storage;

impl PoolBuilder {
    /// Whether all workers of the pool form one world.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub(in crate::pool) fn is_joined(&self) -> Result<bool> {
        Ok(self.blueprint()?.declared.joined)
    }

    /// The builder of the pool in which the pool of this builder is rehearsed.
    pub(in crate::pool) fn rehearsed(&self, ranks: u32, devices: u32, start: Duration, stall: Duration) -> Self {
        Self {
            provider: Arc::new(Local::default()),
            nodes: Nodes::fixed(ranks),
            workers_per_node: Some(1),
            requirements: Requirements::default(),
            labels: Labels::new(),
            limits: Limits {
                start: self.limits.start.min(start),
                hooks: self.limits.hooks.min(start),
                // The real pool may have long limits; a rehearsal ends soon on any host.
                grace: self.limits.grace.min(LONGEST_GRACE),
                shutdown: self.limits.shutdown.min(LONGEST_SHUTDOWN),
                stall: Some(stall),
                stall_report: (stall / 2).max(Duration::from_millis(1)),
                ..self.limits
            },
            // What a rehearsal saves is no checkpoint of the training.
            storage: self.storage.as_ref().map(|_| Storage::scratch()),
            budget: Budget::default(),
            assumed: None,
            id: None,
            cpu_devices: Some(devices),
            ..self.clone()
        }
    }
}

/// The longest time that a payload gets to end by itself.
const LONGEST_GRACE: Duration = Duration::from_secs(5);
/// The longest time that the end of a rehearsal may take.
const LONGEST_SHUTDOWN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Plugin;
    use crate::pool::Pool;
    use crate::provider::Provider;
    use crate::spec::{Accelerator, ClusterInfo, Image};

    const START: Duration = Duration::from_secs(600);
    const STALL: Duration = Duration::from_secs(60);

    /// A plugin that sets the variable with the number of devices.
    #[derive(Debug)]
    struct Devices;

    impl Plugin for Devices {
        fn name(&self) -> &str {
            "devices"
        }

        fn transform(&self, image: Image, _: &ClusterInfo) -> Result<Image> {
            Ok(image.env("JAX_NUM_CPU_DEVICES", "99"))
        }
    }

    #[test]
    fn the_rehearsed_pool_runs_on_this_host_without_accelerators_and_with_the_devices() {
        let builder = Pool::builder()
            .nodes(Nodes::elastic(1, 16))
            .workers_per_node(8)
            .accelerator(Accelerator::new("H100", 8))
            .budget(Budget::usd_per_hour(0.0))
            .image(Image::new().env("XLA_FLAGS", "--xla_force_host_platform_device_count=64 --xla_a"))
            .plugin(Devices);
        let rehearsed = builder.rehearsed(3, 2, START, STALL);
        let blueprint = rehearsed.blueprint().unwrap();
        assert_eq!(Provider::name(&blueprint.provider), "local");
        assert_eq!(blueprint.nodes, Nodes::fixed(3));
        assert_eq!(blueprint.cluster.workers_per_node, 1);
        assert!(blueprint.cluster.accelerator.is_none() && blueprint.requirements.accelerator.is_none());
        assert_eq!(blueprint.image.env["JAX_NUM_CPU_DEVICES"], "2", "whatever plugins set");
        assert_eq!(blueprint.image.env["XLA_FLAGS"], "--xla_a --xla_force_host_platform_device_count=2");
        let limits = rehearsed.limits;
        assert_eq!(limits.stall, Some(Duration::from_secs(60)));
        assert_eq!(limits.stall_report, Duration::from_secs(30));
        assert_eq!(limits.environment, Limits::default().environment);
    }

    #[test]
    fn a_rehearsal_ends_soon_whatever_the_pool_may_wait_for() {
        let of = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            let limits = Pool::builder().limits(limits).rehearsed(2, 1, START, STALL).limits;
            (limits.grace, limits.shutdown)
        };
        let seconds = Duration::from_secs;
        let endless = |limits: &mut Limits| (limits.grace, limits.shutdown) = (Duration::MAX, Duration::MAX);
        assert_eq!(of(endless), (seconds(5), seconds(60)));
        let short = |limits: &mut Limits| (limits.grace, limits.shutdown) = (Duration::ZERO, Duration::from_secs(7));
        assert_eq!(of(short), (Duration::ZERO, seconds(7)), "shorter limits are kept");
    }
}
