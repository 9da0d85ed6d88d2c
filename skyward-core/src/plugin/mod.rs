//! Plugins: what prepares the environment and wraps the workers.

mod custom;
mod hook;
mod set;

use std::fmt;

use async_trait::async_trait;

pub use custom::{CustomPlugin, plugin};
pub use hook::{Hook, HookKind};
pub use set::PluginSet;

use crate::error::Result;
use crate::spec::{Accelerator, ClusterInfo, Image};

/// Prepares the environment and wraps the workers, so that a framework is ready by the time a payload runs.
///
/// Plugins apply in the order given: the first is the outermost. Nothing reorders them: a wrong order, a duplicate, a missing requirement or a conflict is an error
/// before any machine exists.
///
/// # Contract
///
/// The feature `testkit` has one function for each clause, `skyward_core::testkit::plugin_suite`; a plugin's own tests call them.
///
/// - `name` never changes, and is one word in lower case.
/// - `workers_per_node`, `requires`, `conflicts_with`, `joins_world`, `world`, `transform`, `bootstrap`, `around_app`, `around_task` and `launcher` are pure: the same cluster gives
///   the same answer.
/// - `workers_per_node` is not 0. What a plugin requires or refuses are other plugins, each with a reason, and none is both.
/// - `transform` only adds to the image; it does not remove what the user or an earlier plugin asked for. Of a valid image it makes a valid one.
/// - `bootstrap` gives scripts that a POSIX shell can read. `launcher` puts words before the command line, and keeps it at the end as it is.
/// - `around_app` and `around_task` give hooks of their kind: valid Python that defines the factory, with a map for its argument.
/// - What a hook's context manager entered, it leaves.
///
/// # Example
///
/// ```
/// use skyward_core::error::Result;
/// use skyward_core::plugin::{Hook, Plugin};
/// use skyward_core::spec::{ClusterInfo, Image};
///
/// /// Limits the threads of every numeric library to one.
/// #[derive(Debug)]
/// struct OneThread;
///
/// impl Plugin for OneThread {
///     fn name(&self) -> &str {
///         "one_thread"
///     }
///
///     fn transform(&self, image: Image, _: &ClusterInfo) -> Result<Image> {
///         Ok(image.env("OMP_NUM_THREADS", "1"))
///     }
/// }
/// ```
#[async_trait]
pub trait Plugin: fmt::Debug + Send + Sync + 'static {
    /// The name by which other plugins and messages know it.
    fn name(&self) -> &str;

    /// How it is written where a pool is declared; messages that show a corrected list use it. Right as it is for plugins made by [`plugin`].
    fn constructor(&self) -> String {
        format!("plugin({:?})", self.name())
    }

    /// How many workers each node should have, where the user does not say. The cluster that the other methods get has the number that was chosen.
    fn workers_per_node(&self, accelerator: Option<&Accelerator>) -> Option<u32> {
        let _ = accelerator;
        None
    }

    /// Plugins that must come before this one on such a cluster, each with the reason.
    fn requires(&self, cluster: &ClusterInfo) -> Vec<Relation> {
        let _ = cluster;
        Vec::new()
    }

    /// Plugins that must not be there beside this one on such a cluster, each with the reason.
    fn conflicts_with(&self, cluster: &ClusterInfo) -> Vec<Relation> {
        let _ = cluster;
        Vec::new()
    }

    /// Whether it joins all workers of such a cluster into one world, so that a broadcast must run on all of them at the same time.
    fn joins_world(&self, cluster: &ClusterInfo) -> bool {
        let _ = cluster;
        false
    }

    /// The framework whose world the plugin joins the workers into, where [`joins_world`](Plugin::joins_world). Several
    /// plugins may serve one framework. The decorator of a payload may join the same world, and no other.
    fn world(&self) -> &str {
        self.name()
    }

    /// Adds to the image.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec) when the plugin cannot work on such a cluster or with such an image.
    fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        let _ = cluster;
        Ok(image)
    }

    /// Shell commands that run once on each machine after the environment is there, each in `sh -eu`. They may run more than once.
    fn bootstrap(&self, cluster: &ClusterInfo) -> Vec<String> {
        let _ = cluster;
        Vec::new()
    }

    /// A context manager entered once in each worker process before its first task, and left at its end.
    fn around_app(&self, cluster: &ClusterInfo) -> Option<Hook> {
        let _ = cluster;
        None
    }

    /// A context manager entered around every task.
    fn around_task(&self, cluster: &ClusterInfo) -> Option<Hook> {
        let _ = cluster;
        None
    }

    /// Rewrites how a worker process is started: gets its command line and gives the one to use. A launcher must pass on standard input and inherited file descriptors.
    fn launcher(&self, command: Vec<String>, cluster: &ClusterInfo) -> Vec<String> {
        let _ = cluster;
        command
    }

    /// Runs on the client before the pool starts anything. What it returns is dropped after the pool has ended.
    ///
    /// # Errors
    ///
    /// Any error keeps the pool from starting.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any await point; nothing of the pool exists yet.
    async fn around_pool(&self, cluster: &ClusterInfo) -> Result<Option<Box<dyn std::any::Any + Send + Sync>>> {
        let _ = cluster;
        Ok(None)
    }
}

/// Another plugin that a plugin needs before it, or cannot be beside, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relation {
    /// The other plugin's name.
    pub plugin: String,
    /// Why, as what follows "because": "it initialises the distributed runtime whose devices keras lists".
    pub reason: String,
    /// How the other plugin is written where a pool is declared, for the corrected list of a message.
    pub constructor: String,
}

impl Relation {
    /// The other plugin, and why.
    pub fn new(plugin: impl Into<String>, reason: impl Into<String>) -> Self {
        let plugin = plugin.into();
        Self { constructor: format!("plugin({plugin:?})"), plugin, reason: reason.into() }
    }

    /// The same, with how the other plugin is written: `plugins::jax()`.
    #[must_use]
    pub fn written(mut self, constructor: impl Into<String>) -> Self {
        self.constructor = constructor.into();
        self
    }
}
