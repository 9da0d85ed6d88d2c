//! The `joblib` and `sklearn` plugins.

use serde_json::json;
use skyward_core::error::{Cause, Error, ErrorKind, Result};
use skyward_core::payload::RetryPolicy;
use skyward_core::plugin::{Hook, HookKind, Plugin, Relation};
use skyward_core::spec::{Accelerator, ClusterInfo, Image};

/// Makes joblib's `n_jobs` count workers of the pool; see [`joblib`] and [`sklearn`].
#[derive(Debug, Clone)]
pub struct Joblib {
    kind: Kind,
    concurrency: Option<u32>,
    inner_threads: Option<u32>,
    retry: Option<RetryPolicy>,
    caller_helps: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Joblib,
    Sklearn,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Joblib => "joblib",
            Self::Sklearn => "sklearn",
        }
    }
}

/// Installs joblib. With `n_jobs=-1`, its `Parallel` runs on all workers of the pool, by calls
/// within calls.
///
/// The payload needs no change. One task runs it, on one worker, and what it passes to `Parallel`
/// runs on that worker and on the others. `n_jobs` counts workers; without it joblib runs calls one
/// by one, as usual. Numeric libraries and the threads that joblib starts get as many threads as
/// the node has cores for each of its workers, unless the image sets `OMP_NUM_THREADS` and similar
/// variables.
///
/// A gang occupies all workers at the same time, so its tasks use joblib's own backend.
///
/// ```
/// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
/// use skyward::plugin::Plugin;
/// use skyward::plugins;
/// use skyward::spec::{ClusterInfo, Image};
///
/// let plugin = plugins::joblib().concurrency(4);
/// assert_eq!(plugin.workers_per_node(None), Some(4));
/// let image = plugin.transform(Image::new(), &ClusterInfo::new(2, 4))?;
/// assert_eq!(image.pip, ["joblib>=1.4", "threadpoolctl"]);
/// # Ok::<(), skyward_core::Error>(())
/// ```
pub fn joblib() -> Joblib {
    Joblib { kind: Kind::Joblib, concurrency: None, inner_threads: None, retry: None, caller_helps: true }
}

/// The same as [`joblib`], and installs scikit-learn: searches, cross-validation, ensembles,
/// whatever takes `n_jobs`.
///
/// ```
/// # mod skyward { pub use skyward_core::*; pub use skyward_plugins as plugins; }
/// use skyward::plugin::Plugin;
/// use skyward::plugins;
/// use skyward::spec::{ClusterInfo, Image};
///
/// let image = plugins::sklearn().transform(Image::new(), &ClusterInfo::new(2, 1))?;
/// assert_eq!(image.pip, ["joblib>=1.4", "threadpoolctl", "scikit-learn"]);
/// # Ok::<(), skyward_core::Error>(())
/// ```
pub fn sklearn() -> Joblib {
    Joblib { kind: Kind::Sklearn, ..joblib() }
}

impl Joblib {
    /// Sets how many workers a node has, and so how many calls it runs at a time, unless the pool
    /// sets `workers_per_node`. The default is 1.
    #[must_use]
    pub fn concurrency(mut self, workers: u32) -> Self {
        self.concurrency = Some(workers);
        self
    }

    /// Sets the number of threads of numeric libraries in each worker: OpenMP, OpenBLAS, MKL and
    /// others. The default is the node's cores divided by its workers.
    #[must_use]
    pub fn inner_threads(mut self, threads: u32) -> Self {
        self.inner_threads = Some(threads);
        self
    }

    /// Sets how often a call is tried again when its worker is lost, by cause. The default is
    /// [`RetryPolicy::for_calls`]. An exception of a call is raised in its caller at once, so a
    /// policy with retries after exceptions is refused.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Sets whether a worker whose task waits for a `Parallel` runs some of its calls meanwhile, as
    /// it does by default. If such a call ends the worker's process, for example for want of
    /// memory, it also ends the task, which is then tried again by its own retries.
    #[must_use]
    pub fn caller_helps(mut self, helps: bool) -> Self {
        self.caller_helps = helps;
        self
    }

    fn check(&self, cluster: &ClusterInfo) -> Result<()> {
        let refuse = |message: String, hint: &str| Err(Error::new(ErrorKind::InvalidSpec, message).with_hint(hint));
        let name = self.kind.name();
        match self.concurrency {
            Some(0) => {
                return refuse(
                    format!("the plugin `{name}` is given a concurrency of 0, and nothing would run"),
                    "leave `.concurrency(…)` out for one worker on each node",
                );
            }
            Some(wish) if wish != cluster.workers_per_node => {
                return refuse(
                    format!(
                        "the plugin `{name}` is given a concurrency of {wish}, and the pool {} workers on each node",
                        cluster.workers_per_node
                    ),
                    "both set the same number: leave `.concurrency(…)` or `.workers_per_node(…)` out",
                );
            }
            _ => {}
        }
        if self.inner_threads == Some(0) {
            return refuse(
                format!("the plugin `{name}` is given 0 inner threads"),
                "`.inner_threads(1)` has numeric libraries compute on the calling thread alone",
            );
        }
        if let Some(count) = self.retry.map(|policy| policy.limit(Cause::Raised)).filter(|count| *count > 0) {
            return refuse(
                format!(
                    "the plugin `{name}` does not retry calls that raise, but its retry policy sets {count} retries for them"
                ),
                "the exception of a call is raised in its caller at once: add `.raised(0)` to the policy, or retry inside \
                 the function",
            );
        }
        Ok(())
    }
}

impl Plugin for Joblib {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn constructor(&self) -> String {
        let call = |name: &str, value: Option<u32>| value.map(|value| format!(".{name}({value})"));
        let helps = (!self.caller_helps).then(|| ".caller_helps(false)".to_owned());
        let retry = self.retry.map(|_| ".retry(…)".to_owned());
        let calls = [call("concurrency", self.concurrency), call("inner_threads", self.inner_threads), retry, helps];
        format!("plugins::{}(){}", self.kind.name(), calls.into_iter().flatten().collect::<String>())
    }

    fn workers_per_node(&self, _: Option<&Accelerator>) -> Option<u32> {
        self.concurrency.filter(|workers| *workers > 0)
    }

    fn conflicts_with(&self, _: &ClusterInfo) -> Vec<Relation> {
        let other = match self.kind {
            Kind::Joblib => Kind::Sklearn,
            Kind::Sklearn => Kind::Joblib,
        };
        vec![Relation::new(other.name(), "`sklearn` is `joblib` with scikit-learn, and one of them is enough")]
    }

    fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        self.check(cluster)?;
        let image = image.pip(["joblib>=1.4", "threadpoolctl"]);
        Ok(if self.kind == Kind::Sklearn { image.pip(["scikit-learn"]) } else { image })
    }

    fn around_app(&self, _: &ClusterInfo) -> Option<Hook> {
        let hook = Hook::new(HookKind::App, "skyward_plugins/joblib.py", SOURCE, "around_app");
        Some(hook.config(json!({"inner_threads": self.inner_threads})))
    }

    fn around_task(&self, _: &ClusterInfo) -> Option<Hook> {
        let hook = Hook::new(HookKind::Task, "skyward_plugins/joblib.py", SOURCE, "around_task");
        let retry = self.retry.map(|policy| {
            json!({
                "crash": policy.limit(Cause::Crash),
                "out_of_memory": policy.limit(Cause::OutOfMemory),
                "node_lost": policy.limit(Cause::NodeLost),
                "preempted": policy.limit(Cause::Preempted),
            })
        });
        Some(hook.config(json!({"caller_helps": self.caller_helps, "retry": retry})))
    }
}

const SOURCE: &str = include_str!("../python/skyward_plugins/joblib.py");

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use skyward_core::plugin::PluginSet;

    use super::*;

    #[test]
    fn packages_are_added_to_those_that_are_there() {
        for (plugin, packages) in [
            (joblib(), vec!["numpy", "joblib>=1.4", "threadpoolctl"]),
            (sklearn(), vec!["numpy", "joblib>=1.4", "threadpoolctl", "scikit-learn"]),
            (sklearn().concurrency(4).inner_threads(1), vec!["numpy", "joblib>=1.4", "threadpoolctl", "scikit-learn"]),
        ] {
            let image = plugin.transform(Image::new().pip(["numpy"]), &ClusterInfo::new(2, 4)).unwrap();
            assert_eq!(image.pip, packages);
        }
    }

    #[test]
    fn concurrency_is_a_number_of_workers() {
        for (plugin, workers) in
            [(joblib(), None), (joblib().concurrency(0), None), (sklearn().concurrency(3), Some(3))]
        {
            assert_eq!(plugin.workers_per_node(None), workers);
        }
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        for (plugin, message, hint) in [
            (
                joblib().concurrency(0),
                "the plugin `joblib` is given a concurrency of 0, and nothing would run",
                "leave `.concurrency(…)` out for one worker on each node",
            ),
            (
                sklearn().concurrency(8),
                "the plugin `sklearn` is given a concurrency of 8, and the pool 4 workers on each node",
                "both set the same number: leave `.concurrency(…)` or `.workers_per_node(…)` out",
            ),
            (
                joblib().inner_threads(0),
                "the plugin `joblib` is given 0 inner threads",
                "`.inner_threads(1)` has numeric libraries compute on the calling thread alone",
            ),
            (
                joblib().retry(RetryPolicy::times(3)),
                "the plugin `joblib` does not retry calls that raise, but its retry policy sets 3 retries for them",
                "the exception of a call is raised in its caller at once: add `.raised(0)` to the policy, or retry inside \
                 the function",
            ),
        ] {
            let error = plugin.transform(Image::new(), &ClusterInfo::new(2, 4)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSpec);
            assert_eq!(error.message(), message);
            assert_eq!(error.hint(), Some(hint));
        }
        joblib().retry(RetryPolicy::times(3).raised(0)).transform(Image::new(), &ClusterInfo::new(2, 4)).unwrap();
    }

    #[test]
    fn the_hooks_get_the_options() {
        let cluster = ClusterInfo::new(2, 4);
        let policy = RetryPolicy::never().crash(1).out_of_memory(2).node_lost(3).preempted(4);
        for (plugin, app, task) in [
            (joblib(), json!({"inner_threads": null}), json!({"caller_helps": true, "retry": null})),
            (
                sklearn().inner_threads(2).caller_helps(false).retry(policy),
                json!({"inner_threads": 2}),
                json!({"caller_helps": false, "retry": {"crash": 1, "out_of_memory": 2, "node_lost": 3, "preempted": 4}}),
            ),
        ] {
            let (around_app, around_task) =
                (plugin.around_app(&cluster).unwrap(), plugin.around_task(&cluster).unwrap());
            assert_eq!(&around_app.config, &app);
            assert_eq!(&around_task.config, &task);
            around_app.validate().unwrap();
            around_task.validate().unwrap();
        }
    }

    #[test]
    fn it_is_written_as_it_was_made() {
        for (plugin, written) in [
            (joblib(), "plugins::joblib()"),
            (sklearn().concurrency(4).inner_threads(1), "plugins::sklearn().concurrency(4).inner_threads(1)"),
            (joblib().caller_helps(false), "plugins::joblib().caller_helps(false)"),
        ] {
            assert_eq!(plugin.constructor(), written);
        }
    }

    #[test]
    fn one_of_the_two_is_enough() {
        let mut set = PluginSet::default();
        set.push(Arc::new(joblib()));
        set.push(Arc::new(sklearn()));
        let error = set.check(&ClusterInfo::new(2, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Plugins);
        assert!(error.message().contains("one of them is enough"), "{error}");
    }
}
