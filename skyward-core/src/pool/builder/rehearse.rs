//! Running a call on this host before the machines are paid for.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::PoolBuilder;
use crate::error::{Error, ErrorKind, Result};
use crate::payload::PendingCompute;
use crate::pool::rehearsal::{Rehearsal, RehearsalLimits, Rehearsed, play};
use crate::provider::{Labels, Local, Requirements};
use crate::spec::{Budget, Limits, Nodes};

impl PoolBuilder {
    /// Runs a call on this host (Linux) as the pool would, before that is paid for: on `ranks`
    /// nodes of one worker each, with `devices` CPU devices for JAX in each worker and no
    /// accelerator, so that plugins install what runs on the CPU. Image, plugins, payloads and
    /// options of tasks are the builder's. It ends by itself, and leaves nothing.
    ///
    /// What would go wrong is a [`Finding`](crate::pool::Finding): plugins, image or mesh that do
    /// not fit the pool itself or the rehearsed one, an environment that cannot be built, a hook or
    /// a rank that raises, ranks that wait for each other for ever, with where each is, a worker
    /// that ends, a result that does not fit `T`. Give the call little data and a few steps.
    ///
    /// What it cannot show: what depends on the accelerator or its memory, on the network between
    /// machines, or on the provider. A generator cannot be rehearsed.
    ///
    /// ```no_run
    /// # use skyward_core::{payload::PendingCompute, plugin::plugin, pool::Pool};
    /// # async fn example(train: impl Fn(u32) -> PendingCompute<f64>) -> skyward_core::Result<()> {
    /// let builder = Pool::builder().nodes(16).plugin(plugin("world").joins_world());
    /// let rehearsal = builder.rehearse(train(2), 2, 4).await?;
    /// if !rehearsal.is_clean() {
    ///     eprintln!("{rehearsal}");
    ///     return Ok(());
    /// }
    /// let losses = builder.scope(async |pool| train(1000).broadcast(pool).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] for what cannot be rehearsed at all: no rank, no device, more
    /// ranks than nodes may be, another system than Linux.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, what was started is ended in the background.
    pub async fn rehearse<T>(&self, call: PendingCompute<T>, ranks: u32, devices: u32) -> Result<Rehearsal<T>>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.rehearse_within(call, ranks, devices, RehearsalLimits::default()).await
    }

    /// The same with other limits.
    ///
    /// ```no_run
    /// # use skyward_core::{payload::PendingCompute, pool::{Pool, RehearsalLimits}};
    /// # async fn example(train: impl Fn(u32) -> PendingCompute<f64>) -> skyward_core::Result<()> {
    /// let mut limits = RehearsalLimits::default();
    /// limits.stall = std::time::Duration::from_secs(300); // it compiles for minutes
    /// println!("{}", Pool::builder().rehearse_within(train(2), 2, 4, limits).await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`rehearse`](Self::rehearse), and for limits of less than a second.
    ///
    /// # Cancel safety
    ///
    /// As [`rehearse`](Self::rehearse).
    pub async fn rehearse_within<T>(
        &self,
        call: PendingCompute<T>,
        ranks: u32,
        devices: u32,
        limits: RehearsalLimits,
    ) -> Result<Rehearsal<T>>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let limits = limits.checked()?;
        check(ranks, devices)?;
        let rehearsed = Rehearsed { builder: self.rehearsed(ranks, devices, &limits), ranks, devices, limits };
        // Boxed: it is as large as all that a start can come to, and callers hold it in their own futures.
        Ok(Box::pin(play::<T>(rehearsed, call, self.check().err())).await)
    }

    /// Whether all workers of the pool are one world.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub(in crate::pool) fn is_joined(&self) -> Result<bool> {
        Ok(self.blueprint()?.declared.joined)
    }

    /// The pool in which this one is rehearsed.
    fn rehearsed(&self, ranks: u32, devices: u32, limits: &RehearsalLimits) -> Self {
        let stall = limits.stall;
        Self {
            provider: Arc::new(Local::default()),
            nodes: Nodes::fixed(ranks),
            workers_per_node: Some(1),
            requirements: Requirements::default(),
            labels: Labels::new(),
            limits: Limits {
                start: self.limits.start.min(limits.start),
                hooks: self.limits.hooks.min(limits.start),
                // What the real pool may wait for is its own matter: this one ends soon on any host.
                grace: self.limits.grace.min(GRACE),
                shutdown: self.limits.shutdown.min(SHUTDOWN),
                stall: Some(stall),
                stall_report: (stall / 2).max(Duration::from_millis(1)),
                ..self.limits
            },
            budget: Budget::default(),
            assumed: None,
            id: None,
            cpu_devices: Some(devices),
            ..self.clone()
        }
    }
}

/// Whether there can be such a rehearsal on this host.
fn check(ranks: u32, devices: u32) -> Result<()> {
    let refuse = |what: String, hint: &str| Err(Error::new(ErrorKind::InvalidSpec, what).with_hint(hint));
    if !cfg!(target_os = "linux") {
        let system = std::env::consts::OS;
        return refuse(
            format!("a rehearsal runs on this host, and {system} is not Linux"),
            "call it from a Linux host or container",
        );
    }
    if ranks == 0 || devices == 0 {
        return refuse(
            format!("a rehearsal on {ranks} ranks with {devices} devices each runs nothing"),
            "two ranks of one device show most of what goes wrong between ranks: `.rehearse(call, 2, 1)`",
        );
    }
    if ranks > Nodes::MOST {
        return refuse(
            format!("a rehearsal on {ranks} ranks has more than {} nodes", Nodes::MOST),
            "two ranks of one device show most of what goes wrong between ranks: `.rehearse(call, 2, 1)`",
        );
    }
    Ok(())
}

/// What the payload gets to end by itself, at most.
const GRACE: Duration = Duration::from_secs(5);
/// What the end of a rehearsal may take, at most.
const SHUTDOWN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Args, Source};
    use crate::plugin::Plugin;
    use crate::pool::{Finding, FindingKind, Pool};
    use crate::spec::{Accelerator, ClusterInfo, Image};

    fn call() -> PendingCompute<u32> {
        PendingCompute::new(Arc::new(Source::file("a.py", "def f(): ...", "f")), Args::new())
    }

    /// Serves such clusters, and no others.
    #[derive(Debug)]
    struct Picky(fn(&ClusterInfo) -> bool);

    impl Plugin for Picky {
        fn name(&self) -> &str {
            "picky"
        }

        fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
            let devices = image.env.get("JAX_NUM_CPU_DEVICES").map_or("none", String::as_str);
            let what = format!("{} nodes with {devices} CPU devices", cluster.nodes);
            let refused = || Error::new(ErrorKind::InvalidSpec, what).with_hint("another cluster");
            // Later plugins may set variables too.
            (self.0)(cluster).then(|| image.env("JAX_NUM_CPU_DEVICES", "99")).ok_or_else(refused)
        }
    }

    async fn refusals(builder: PoolBuilder) -> Vec<(FindingKind, String)> {
        let rehearsal = builder.rehearse(call(), 3, 2).await.unwrap();
        assert!(!rehearsal.is_clean() && rehearsal.results.is_none() && rehearsal.start_took.is_none());
        assert!(rehearsal.to_string().contains("nothing ran"), "{rehearsal}");
        assert!(rehearsal.findings.iter().all(|finding: &Finding| !finding.hint.is_empty()));
        rehearsal.findings.into_iter().map(|finding| (finding.kind, finding.message)).collect()
    }

    #[tokio::test]
    async fn what_cannot_be_rehearsed_at_all_is_an_error() {
        for (ranks, devices, what) in [(0, 1, "0 ranks"), (2, 0, "0 devices"), (20_000, 1, "10000 nodes")] {
            let error = Pool::builder().rehearse(call(), ranks, devices).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert!(error.message().contains(what) && error.hint().is_some(), "{error}");
        }
        let short = RehearsalLimits { call: Duration::from_millis(3), ..RehearsalLimits::default() };
        let error = Pool::builder().rehearse_within(call(), 2, 1, short).await.unwrap_err();
        assert!(error.message().contains("RehearsalLimits::call"), "{error}");
    }

    #[tokio::test]
    async fn what_the_pool_or_the_rehearsal_is_refused_with_is_a_finding_and_starts_nothing() {
        let builder = |serves| Pool::builder().nodes(16).plugin(Picky(serves));
        let rehearsed = "the rehearsal is refused before anything starts: 3 nodes with 2 CPU devices (plugin: picky)";
        let declared =
            "the pool would be refused before anything starts: 16 nodes with none CPU devices (plugin: picky)";
        let refused = |message: &str| (FindingKind::Refused, message.to_owned());
        assert_eq!(refusals(builder(|cluster| cluster.nodes == 16)).await, [refused(rehearsed)]);
        assert_eq!(refusals(builder(|_| false)).await, [refused(declared), refused(rehearsed)]);
        // The same for both is told once.
        let twice = Pool::builder().nodes(3).plugin(crate::plugin::plugin("a").requires("b", "it is so"));
        let found = refusals(twice).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.contains("`a` needs `b` before it"), "{found:?}");
    }

    #[test]
    fn the_rehearsed_pool_is_on_this_host_without_accelerators_and_has_the_devices() {
        let builder = Pool::builder()
            .nodes(Nodes::elastic(1, 16))
            .workers_per_node(8)
            .accelerator(Accelerator::new("H100", 8))
            .budget(Budget::usd_per_hour(0.0))
            .image(Image::new().env("XLA_FLAGS", "--xla_force_host_platform_device_count=64 --xla_a"))
            .plugin(Picky(|_| true));
        let rehearsed = builder.rehearsed(3, 2, &RehearsalLimits::default());
        let blueprint = rehearsed.blueprint().unwrap();
        assert_eq!(crate::provider::Provider::name(&blueprint.provider), "local");
        assert_eq!((blueprint.nodes, blueprint.cluster.workers_per_node), (Nodes::fixed(3), 1));
        assert!(blueprint.cluster.accelerator.is_none() && blueprint.requirements.accelerator.is_none());
        assert_eq!(blueprint.image.env["JAX_NUM_CPU_DEVICES"], "2", "whatever plugins say");
        assert_eq!(blueprint.image.env["XLA_FLAGS"], "--xla_a --xla_force_host_platform_device_count=2");
        let limits = rehearsed.limits;
        assert_eq!((limits.stall, limits.stall_report), (Some(Duration::from_secs(60)), Duration::from_secs(30)));
        assert_eq!(limits.environment, Limits::default().environment);
    }

    #[test]
    fn a_rehearsal_ends_soon_whatever_the_pool_may_wait_for() {
        let of = |change: fn(&mut Limits)| {
            let mut limits = Limits::default();
            change(&mut limits);
            let limits = Pool::builder().limits(limits).rehearsed(2, 1, &RehearsalLimits::default()).limits;
            (limits.grace, limits.shutdown)
        };
        let seconds = Duration::from_secs;
        let endless = |limits: &mut Limits| (limits.grace, limits.shutdown) = (Duration::MAX, Duration::MAX);
        assert_eq!(of(endless), (seconds(5), seconds(60)));
        let short = |limits: &mut Limits| (limits.grace, limits.shutdown) = (Duration::ZERO, Duration::from_secs(7));
        assert_eq!(of(short), (Duration::ZERO, seconds(7)), "what is shorter counts");
    }

    #[tokio::test]
    async fn a_rehearsal_can_be_spawned() {
        let builder = Pool::builder().plugin(Picky(|_| false));
        let spawned = tokio::spawn(async move { builder.rehearse(call(), 1, 1).await });
        assert!(!spawned.await.unwrap().unwrap().is_clean());
    }
}
