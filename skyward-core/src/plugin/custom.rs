//! Plugins made from values, without a type of their own.

use std::collections::BTreeMap;

use super::{Hook, HookKind, Plugin, Relation};
use crate::error::Result;
use crate::spec::{ClusterInfo, Image};

/// A plugin made from values; see [`plugin`].
#[derive(Debug, Clone)]
pub struct CustomPlugin {
    name: String,
    pip: Vec<String>,
    apt: Vec<String>,
    env: BTreeMap<String, String>,
    bootstrap: Vec<String>,
    around_app: Option<String>,
    around_task: Option<String>,
    config: serde_json::Value,
    requires: Vec<Relation>,
    conflicts: Vec<Relation>,
    joins_world: bool,
}

/// A small plugin made from values. Implement [`Plugin`] for a plugin that depends on the cluster.
///
/// ```
/// # use skyward_core as skyward;
/// use skyward::plugin::{HookKind, Plugin, plugin};
/// use skyward::spec::{ClusterInfo, Image};
///
/// let timing = plugin("timing")
///     .pip(["psutil>=6"])
///     .env("TIMING", "1")
///     .config(serde_json::json!({"unit": "ms"}))
///     .around_task(
///         "
///         import time
///
///         def around_task(config):
///             start = time.perf_counter()
///             yield
///             print('took', time.perf_counter() - start, config['unit'])
///         ",
///     );
///
/// let cluster = ClusterInfo::new(1, 1);
/// let timing: &dyn Plugin = &timing;
/// assert_eq!(timing.transform(Image::new(), &cluster)?.pip, ["psutil>=6"]);
/// assert_eq!(timing.around_task(&cluster).unwrap().kind, HookKind::Task);
/// # Ok::<(), skyward::Error>(())
/// ```
pub fn plugin(name: impl Into<String>) -> CustomPlugin {
    CustomPlugin {
        name: name.into(),
        pip: Vec::new(),
        apt: Vec::new(),
        env: BTreeMap::new(),
        bootstrap: Vec::new(),
        around_app: None,
        around_task: None,
        config: serde_json::Value::Object(serde_json::Map::new()),
        requires: Vec::new(),
        conflicts: Vec::new(),
        joins_world: false,
    }
}

impl CustomPlugin {
    /// Adds requirements (PEP 508) to the image.
    #[must_use]
    pub fn pip<S: Into<String>>(mut self, requirements: impl IntoIterator<Item = S>) -> Self {
        self.pip.extend(requirements.into_iter().map(Into::into));
        self
    }

    /// Adds Debian packages to the image.
    #[must_use]
    pub fn apt<S: Into<String>>(mut self, packages: impl IntoIterator<Item = S>) -> Self {
        self.apt.extend(packages.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable of the workers.
    #[must_use]
    pub fn env(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(key.into(), value.into());
        self
    }

    /// Adds a shell command that runs on each machine after its environment was built, in `sh -eu`.
    /// The command may run more than once on one machine.
    #[must_use]
    pub fn bootstrap(mut self, command: impl Into<String>) -> Self {
        self.bootstrap.push(command.into());
        self
    }

    /// Sets the Python source of a context manager that each worker enters once before its first
    /// task, and exits at the worker's end.
    ///
    /// The source is a module that defines `around_app(config)`: a generator function that yields
    /// once, or a function that returns a context manager. Indentation that is common to all lines
    /// is removed.
    #[must_use]
    pub fn around_app(mut self, source: impl AsRef<str>) -> Self {
        self.around_app = Some(dedent(source.as_ref()));
        self
    }

    /// Sets the Python source of a context manager that a worker enters and exits around every
    /// task: like [`around_app`](Self::around_app), with a function `around_task(config)`.
    #[must_use]
    pub fn around_task(mut self, source: impl AsRef<str>) -> Self {
        self.around_task = Some(dedent(source.as_ref()));
        self
    }

    /// Sets the `config` that the Python functions receive. The default is an empty map.
    #[must_use]
    pub fn config(mut self, config: serde_json::Value) -> Self {
        self.config = config;
        self
    }

    /// Requires another plugin before this one. The reason is a clause that follows "because".
    #[must_use]
    pub fn requires(mut self, plugin: impl Into<String>, reason: impl Into<String>) -> Self {
        self.requires.push(Relation::new(plugin, reason));
        self
    }

    /// Refuses another plugin in the same pool. The reason is a clause that follows "because".
    #[must_use]
    pub fn conflicts_with(mut self, plugin: impl Into<String>, reason: impl Into<String>) -> Self {
        self.conflicts.push(Relation::new(plugin, reason));
        self
    }

    /// Declares that the plugin joins all workers into one world if there is more than one, so that
    /// a broadcast runs on all workers at the same time.
    #[must_use]
    pub fn joins_world(mut self) -> Self {
        self.joins_world = true;
        self
    }

    fn hook(&self, kind: HookKind, source: Option<&String>) -> Option<Hook> {
        let factory = match kind {
            HookKind::App => "around_app",
            HookKind::Task => "around_task",
        };
        let filename = format!("{}/{factory}.py", self.name);
        Some(Hook::new(kind, filename, source?, factory).config(self.config.clone()))
    }
}

impl Plugin for CustomPlugin {
    fn name(&self) -> &str {
        &self.name
    }

    fn requires(&self, _: &ClusterInfo) -> Vec<Relation> {
        self.requires.clone()
    }

    fn conflicts_with(&self, _: &ClusterInfo) -> Vec<Relation> {
        self.conflicts.clone()
    }

    fn joins_world(&self, cluster: &ClusterInfo) -> bool {
        self.joins_world && cluster.may_be_many()
    }

    fn transform(&self, image: Image, _: &ClusterInfo) -> Result<Image> {
        let image = image.pip(self.pip.iter().cloned()).apt(self.apt.iter().cloned());
        Ok(self.env.iter().fold(image, |image, (key, value)| image.env(key, value)))
    }

    fn bootstrap(&self, _: &ClusterInfo) -> Vec<String> {
        self.bootstrap.clone()
    }

    fn around_app(&self, _: &ClusterInfo) -> Option<Hook> {
        self.hook(HookKind::App, self.around_app.as_ref())
    }

    fn around_task(&self, _: &ClusterInfo) -> Option<Hook> {
        self.hook(HookKind::Task, self.around_task.as_ref())
    }
}

/// Removes the indentation that all lines have, so that indented Rust may contain Python. Line
/// numbers do not change.
fn dedent(source: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let common = source.lines().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let lines: Vec<_> = source.lines().map(|line| line.get(common..).unwrap_or("")).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_given_reaches_the_image_and_the_hooks() {
        let cluster = ClusterInfo::new(2, 1);
        let made = plugin("mine")
            .pip(["a>=1", "b"])
            .pip(["c"])
            .apt(["git"])
            .env("K", "V")
            .bootstrap("true")
            .config(serde_json::json!({"n": 1}))
            .around_app("\n    def around_app(config):\n        yield\n")
            .requires("jax", "it starts the runtime")
            .conflicts_with("torch", "both want the port")
            .joins_world();
        let made: &dyn Plugin = &made;
        let image = made.transform(Image::new().pip(["z"]).env("A", "B"), &cluster).unwrap();
        assert_eq!(image.pip, ["z", "a>=1", "b", "c"]);
        assert_eq!(image.apt, ["git"]);
        assert_eq!(image.env.into_iter().collect::<Vec<_>>(), [("A".into(), "B".into()), ("K".into(), "V".into())]);
        assert_eq!(made.bootstrap(&cluster), ["true"]);
        let hook = made.around_app(&cluster).unwrap();
        assert_eq!(hook.source, "\ndef around_app(config):\n    yield\n");
        assert_eq!(&*hook.filename, "mine/around_app.py");
        assert_eq!(&*hook.factory, "around_app");
        assert_eq!(hook.config, serde_json::json!({"n": 1}));
        hook.validate().unwrap();
        assert_eq!(made.around_task(&cluster), None);
        assert_eq!(made.requires(&cluster), [Relation::new("jax", "it starts the runtime")]);
        assert_eq!(made.conflicts_with(&cluster), [Relation::new("torch", "both want the port")]);
        assert!(made.joins_world(&cluster));
        assert!(!made.joins_world(&ClusterInfo::new(1, 1)));
    }

    #[test]
    fn dedent_removes_the_common_indentation() {
        for (source, expected) in [
            ("", "\n"),
            ("a\n  b", "a\n  b\n"),
            ("  a\n\n    b\n ", "a\n\n  b\n\n"),
            ("\n\ta\n\t\tb", "\na\n\tb\n"),
            ("  é\n", "é\n"),
        ] {
            assert_eq!(dedent(source), expected, "{source:?}");
        }
    }
}
