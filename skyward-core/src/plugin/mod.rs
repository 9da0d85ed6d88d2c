//! Plugins prepare the environment and wrap the workers.

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

/// Prepares the environment and wraps the workers, so that a framework is ready when a payload
/// runs.
///
/// Plugins apply in the order given: the first is the outermost. The pool does not reorder them. A
/// wrong order, a duplicate, a missing requirement or a conflict is an error before any machine
/// exists.
///
/// # Contract
///
/// The feature `testkit` has one test function for each clause, in
/// `skyward::testkit::plugin_suite`. Call them from the tests of your plugin.
///
/// - `name` never changes, and is one word in lower case.
/// - `workers_per_node`, `requires`, `conflicts_with`, `joins_world`, `world`, `transform`,
///   `bootstrap`, `around_app`, `around_task` and `launcher` are pure: they return the same result
///   for the same cluster.
/// - `workers_per_node` does not return 0.
/// - `requires` and `conflicts_with` name other plugins, each with a reason. No plugin is in both.
/// - `transform` only adds to the image: it does not remove what the user or an earlier plugin
///   asked for. For a valid image it returns a valid image.
/// - `bootstrap` returns scripts that a POSIX shell can parse.
/// - `launcher` puts words before the command line, and keeps the command line unchanged at the
///   end.
/// - `around_app` and `around_task` return hooks of their kind: valid Python that defines the
///   factory, and a map as its argument.
/// - The context manager of a hook releases on exit what it acquired on entry.
///
/// # Example
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::Result;
/// use skyward::plugin::Plugin;
/// use skyward::spec::{ClusterInfo, Image};
///
/// /// Limits the threads of OpenMP to one.
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no plugin",
    note = "those that come with Skyward are functions, `plugins::jax()`; `plugin(\"name\")` makes one from values"
)]
pub trait Plugin: fmt::Debug + Send + Sync + 'static {
    /// The plugin's name, for other plugins and messages.
    fn name(&self) -> &str;

    /// The Rust expression that makes the plugin, for messages that show a corrected list of
    /// plugins. The default is correct for plugins made by [`plugin`].
    fn constructor(&self) -> String {
        format!("plugin({:?})", self.name())
    }

    /// The number of workers that each node should have, if the user does not set it. `None`: the
    /// plugin has no preference. The other methods receive a cluster with the chosen number.
    fn workers_per_node(&self, accelerator: Option<&Accelerator>) -> Option<u32> {
        let _ = accelerator;
        None
    }

    /// The plugins that must come before this one on this cluster, each with the reason.
    fn requires(&self, cluster: &ClusterInfo) -> Vec<Relation> {
        let _ = cluster;
        Vec::new()
    }

    /// The plugins that must not be used together with this one on this cluster, each with the
    /// reason.
    fn conflicts_with(&self, cluster: &ClusterInfo) -> Vec<Relation> {
        let _ = cluster;
        Vec::new()
    }

    /// Whether the plugin joins all workers of this cluster into one world, so that a broadcast
    /// must run on all workers at the same time.
    fn joins_world(&self, cluster: &ClusterInfo) -> bool {
        let _ = cluster;
        false
    }

    /// The framework whose world the workers join, if the plugin [joins them](Plugin::joins_world).
    /// Several plugins may serve one framework. The decorator of a payload may join the same world,
    /// and no other one.
    fn world(&self) -> &str {
        self.name()
    }

    /// Returns the image with the plugin's additions.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`](crate::error::ErrorKind::InvalidSpec) if the plugin cannot work
    /// on this cluster or with this image.
    fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        let _ = cluster;
        Ok(image)
    }

    /// Shell commands that run on each machine after its environment was built, each in `sh -eu`. A
    /// command may run more than once on one machine.
    fn bootstrap(&self, cluster: &ClusterInfo) -> Vec<String> {
        let _ = cluster;
        Vec::new()
    }

    /// A context manager that each worker enters once before its first task, and exits at the
    /// worker's end.
    fn around_app(&self, cluster: &ClusterInfo) -> Option<Hook> {
        let _ = cluster;
        None
    }

    /// A context manager that a worker enters and exits around every task.
    fn around_task(&self, cluster: &ClusterInfo) -> Option<Hook> {
        let _ = cluster;
        None
    }

    /// Rewrites the command line that starts a worker process. A launcher must pass on standard
    /// input and inherited file descriptors.
    fn launcher(&self, command: Vec<String>, cluster: &ClusterInfo) -> Vec<String> {
        let _ = cluster;
        command
    }

    /// Runs on the client before the pool starts anything. The pool drops the returned value after
    /// its end.
    ///
    /// # Errors
    ///
    /// If this method fails, the pool does not start.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any await point, while nothing of the pool exists yet.
    async fn around_pool(&self, cluster: &ClusterInfo) -> Result<Option<Box<dyn std::any::Any + Send + Sync>>> {
        let _ = cluster;
        Ok(None)
    }
}

/// Another plugin that a plugin requires before it, or conflicts with, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relation {
    /// The other plugin's name.
    pub plugin: String,
    /// The reason, as a clause that follows "because": "it initialises the distributed runtime
    /// whose devices keras lists".
    pub reason: String,
    /// The Rust expression that makes the other plugin, for the corrected list of a message.
    pub constructor: String,
}

impl Relation {
    /// A relation to the plugin of this name, with the reason as a clause that follows "because".
    pub fn new(plugin: impl Into<String>, reason: impl Into<String>) -> Self {
        let plugin = plugin.into();
        Self { constructor: format!("plugin({plugin:?})"), plugin, reason: reason.into() }
    }

    /// The same relation, with the Rust expression that makes the other plugin: `plugins::jax()`.
    #[must_use]
    pub fn written(mut self, constructor: impl Into<String>) -> Self {
        self.constructor = constructor.into();
        self
    }
}
