//! `PoolBuilder::rehearse`: runs a call on this host before the machines of the pool are paid for.

use serde::de::DeserializeOwned;

use super::play::{Rehearsed, play};
use super::{Rehearsal, RehearsalLimits};
use crate::compute::PendingCompute;
use crate::error::{Error, ErrorKind, Result};
use crate::pool::builder::PoolBuilder;
use crate::spec::Nodes;

impl PoolBuilder {
    /// Runs a call on this host (Linux) as the pool would run it, before any machine is paid for.
    /// The rehearsed pool has `ranks` nodes of one worker each, `devices` CPU devices for JAX in
    /// each worker, and no accelerator, so plugins install the CPU builds. Image, plugins, payloads
    /// and task options are those of the builder. The rehearsal ends by itself and leaves nothing
    /// behind.
    ///
    /// Each problem is reported as a [`Finding`](crate::pool::Finding):
    ///
    /// - plugins, an image or a mesh that do not fit the real pool or the rehearsed pool
    /// - an environment that cannot be built
    /// - a hook or a rank that raises an exception
    /// - ranks that wait for each other for ever, with where each rank is
    /// - a worker that ends
    /// - a result that does not fit `T`
    /// - a layout of Keras whose pattern matches no variable
    ///
    /// Give the call little data and a few steps. A rehearsal cannot show problems that depend on
    /// the accelerator or its memory, on the network between machines, or on the provider. A
    /// generator cannot be rehearsed.
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// use skyward::compute::PendingCompute;
    /// use skyward::plugin::plugin;
    /// use skyward::pool::Pool;
    ///
    /// # async fn example(train: impl Fn(u32) -> PendingCompute<f64>) -> skyward::Result<()> {
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
    /// [`ErrorKind::InvalidSpec`] for a rehearsal that is not possible: no rank, no device, more
    /// ranks than a pool can have nodes, or another system than Linux.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the nodes and workers that were started are ended in the
    /// background.
    pub async fn rehearse<T>(&self, call: PendingCompute<T>, ranks: u32, devices: u32) -> Result<Rehearsal<T>>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.rehearse_within(call, ranks, devices, RehearsalLimits::default()).await
    }

    /// Rehearses with limits of your own; otherwise the same as [`rehearse`](Self::rehearse).
    ///
    /// ```no_run
    /// # use skyward_core as skyward;
    /// use std::time::Duration;
    ///
    /// use skyward::compute::PendingCompute;
    /// use skyward::pool::{Pool, RehearsalLimits};
    ///
    /// # async fn example(train: impl Fn(u32) -> PendingCompute<f64>) -> skyward::Result<()> {
    /// // The model compiles for minutes.
    /// let limits = RehearsalLimits::default().stall(Duration::from_secs(300));
    /// println!("{}", Pool::builder().rehearse_within(train(2), 2, 4, limits).await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`rehearse`](Self::rehearse), and [`ErrorKind::InvalidSpec`] for limits of less
    /// than a second.
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
        let rehearsed =
            Rehearsed { builder: self.rehearsed(ranks, devices, limits.start, limits.stall), ranks, devices, limits };
        // Boxed: the future is as large as everything that a start needs, and callers hold it in
        // their own futures.
        Ok(Box::pin(play::<T>(rehearsed, call, self.check().err())).await)
    }
}

/// Checks that this host can run such a rehearsal.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::payload::{Args, Source};
    use crate::plugin::Plugin;
    use crate::pool::{Finding, FindingKind, Pool};
    use crate::spec::{ClusterInfo, Image};

    fn call() -> PendingCompute<u32> {
        PendingCompute::new(Arc::new(Source::file("a.py", "def f(): ...", "f")), Args::new())
    }

    /// A plugin that serves the clusters that the function accepts, and refuses all others.
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
    async fn a_rehearsal_that_is_not_possible_is_an_error() {
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
    async fn an_error_that_refuses_the_pool_or_the_rehearsal_is_a_finding_and_nothing_is_started() {
        let builder = |serves| Pool::builder().nodes(16).plugin(Picky(serves));
        let rehearsed = "the rehearsal is refused before anything starts: 3 nodes with 2 CPU devices (plugin: picky)";
        let declared =
            "the pool would be refused before anything starts: 16 nodes with none CPU devices (plugin: picky)";
        let refused = |message: &str| (FindingKind::Refused, message.to_owned());
        assert_eq!(refusals(builder(|cluster| cluster.nodes == 16)).await, [refused(rehearsed)]);
        assert_eq!(refusals(builder(|_| false)).await, [refused(declared), refused(rehearsed)]);
        // An error that refuses both is reported once.
        let twice = Pool::builder().nodes(3).plugin(crate::plugin::plugin("a").requires("b", "it is so"));
        let found = refusals(twice).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.contains("`a` needs `b` before it"), "{found:?}");
    }

    #[tokio::test]
    async fn a_rehearsal_can_be_spawned() {
        let builder = Pool::builder().plugin(Picky(|_| false));
        let spawned = tokio::spawn(async move { builder.rehearse(call(), 1, 1).await });
        assert!(!spawned.await.unwrap().unwrap().is_clean());
    }
}
