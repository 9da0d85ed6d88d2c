//! The plugins of a pool, in the user's order, and the checks of the whole list.

use std::sync::Arc;

use super::{Hook, Plugin, Relation};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Accelerator, ClusterInfo, Image};

/// The plugins of a pool, in the order given: the first is the outermost.
///
/// ```
/// # use skyward_core as skyward;
/// use std::sync::Arc;
///
/// use skyward::plugin::{PluginSet, plugin};
/// use skyward::spec::ClusterInfo;
///
/// let mut set = PluginSet::default();
/// set.push(Arc::new(plugin("metrics").requires("storage", "it writes there")));
/// set.push(Arc::new(plugin("storage")));
///
/// let error = set.check(&ClusterInfo::new(1, 1)).unwrap_err();
/// assert_eq!(
///     error.message(),
///     "`metrics` needs `storage` before it, because it writes there; `storage` comes after it"
/// );
/// let corrected = "    .plugin(plugin(\"storage\"))\n    .plugin(plugin(\"metrics\"))";
/// assert_eq!(error.hint(), Some(&*format!("the corrected list:\n{corrected}")));
/// ```
#[derive(Debug, Clone, Default)]
pub struct PluginSet(Vec<Arc<dyn Plugin>>);

impl PluginSet {
    /// Adds a plugin after the others.
    pub fn push(&mut self, plugin: Arc<dyn Plugin>) {
        self.0.push(plugin);
    }

    /// The plugins in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<dyn Plugin>> {
        self.0.iter()
    }

    /// The number of workers that the plugins ask for on each node. `None` if no plugin has a
    /// preference.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Plugins`] if two plugins ask for different numbers.
    pub fn workers_per_node(&self, accelerator: Option<&Accelerator>) -> Result<Option<u32>> {
        let mut wishes =
            self.0.iter().filter_map(|plugin| Some((plugin.name(), plugin.workers_per_node(accelerator)?)));
        let Some((first, wish)) = wishes.next() else { return Ok(None) };
        match wishes.find(|(_, other)| *other != wish) {
            None => Ok(Some(wish)),
            Some((second, other)) => Err(Error::new(
                ErrorKind::Plugins,
                format!("`{first}` asks for {wish} workers on each node, and `{second}` for {other}"),
            )
            .with_hint(format!("choose one: `.workers_per_node({wish})`"))),
        }
    }

    /// Checks names, order, duplicates, requirements, conflicts and hooks for this cluster.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Plugins`] with every problem, the names of both plugins, the reasons, and a
    /// corrected list.
    pub fn check(&self, cluster: &ClusterInfo) -> Result<()> {
        let mut problems = self.bad_names();
        problems.extend(self.duplicates());
        problems.extend(self.unmet_requirements(cluster));
        problems.extend(self.clashes(cluster).into_iter().map(|clash| clash.message));
        let relations = problems.len();
        problems.extend(self.worlds_on_elastic(cluster));
        if problems.is_empty() {
            return self
                .hooks(cluster)
                .iter()
                .try_for_each(|(plugin, hook)| hook.validate().map_err(|error| error.with_context("plugin", plugin)));
        }
        let mut hints = Vec::new();
        if let Some(list) = (relations > 0).then(|| self.corrected(cluster)).flatten() {
            hints.push(format!("the corrected list:\n{list}"));
        }
        if problems.len() > relations {
            hints.push(format!("give the pool a fixed number of nodes: `.nodes({})`", cluster.nodes));
        }
        let message = match &problems[..] {
            [one] => one.clone(),
            many => format!("the plugins do not fit together:\n- {}", many.join("\n- ")),
        };
        let error = Error::new(ErrorKind::Plugins, message);
        Err(if hints.is_empty() { error } else { error.with_hint(hints.join("\n")) })
    }

    /// Returns the image with the additions of all plugins, in order.
    ///
    /// # Errors
    ///
    /// The error of the first plugin that fails.
    pub fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        self.iter().try_fold(image, |image, plugin| {
            plugin.transform(image, cluster).map_err(|error| error.with_context("plugin", plugin.name()))
        })
    }

    /// Whether any plugin joins all workers into one world.
    pub fn joins_world(&self, cluster: &ClusterInfo) -> bool {
        self.iter().any(|plugin| plugin.joins_world(cluster))
    }

    /// The hooks, each with the name of its plugin, in the order in which workers enter them: first
    /// the hooks around the app, then the hooks around each task.
    #[doc(hidden)]
    pub fn hooks(&self, cluster: &ClusterInfo) -> Vec<(String, Hook)> {
        let named = |plugin: &Arc<dyn Plugin>, hook| Some((plugin.name().to_owned(), hook?));
        let app = self.iter().filter_map(|plugin| named(plugin, plugin.around_app(cluster)));
        let task = self.iter().filter_map(|plugin| named(plugin, plugin.around_task(cluster)));
        app.chain(task).collect()
    }

    /// The shell commands for each machine, in order.
    pub fn bootstrap(&self, cluster: &ClusterInfo) -> Vec<String> {
        self.iter().flat_map(|plugin| plugin.bootstrap(cluster)).collect()
    }

    /// The command line that starts a worker, as the plugins rewrite it: the first plugin's
    /// launcher is the outermost.
    #[doc(hidden)]
    pub fn launcher(&self, command: Vec<String>, cluster: &ClusterInfo) -> Vec<String> {
        self.iter().rev().fold(command, |command, plugin| plugin.launcher(command, cluster))
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|plugin| plugin.name() == name)
    }

    fn bad_names(&self) -> Vec<String> {
        let good = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-')
        };
        let bad = self.0.iter().map(|plugin| plugin.name()).filter(|name| !good(name));
        bad.map(|name| format!("the plugin name {name:?} is not one word in lower case (letters, digits, `_`, `-`)"))
            .collect()
    }

    fn duplicates(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (at, plugin) in self.0.iter().enumerate() {
            let name = plugin.name();
            let places: Vec<_> =
                (1..).zip(&self.0).filter(|(_, other)| other.name() == name).map(|(place, _)| place).collect();
            if places.len() > 1 && places[0] == at + 1 {
                let times = if places.len() == 2 { "twice".into() } else { format!("{} times", places.len()) };
                let list = places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                problems.push(format!(
                    "`{name}` is listed {times} (places {list}), and each worker would enter it {times}"
                ));
            }
        }
        problems
    }

    fn unmet_requirements(&self, cluster: &ClusterInfo) -> Vec<String> {
        let mut problems = Vec::new();
        for (at, plugin) in self.firsts() {
            for Relation { plugin: other, reason, .. } in plugin.requires(cluster) {
                let state = match self.position(&other) {
                    Some(place) if place < at => continue,
                    Some(_) => "comes after it",
                    None => "is not in the list",
                };
                let name = plugin.name();
                problems.push(format!("`{name}` needs `{other}` before it, because {reason}; `{other}` {state}"));
            }
        }
        problems
    }

    /// The plugins that cannot be used together, each pair once.
    fn clashes(&self, cluster: &ClusterInfo) -> Vec<Clash> {
        let mut clashes: Vec<Clash> = Vec::new();
        for (at, plugin) in self.firsts() {
            for Relation { plugin: other, reason, .. } in plugin.conflicts_with(cluster) {
                let Some(place) = self.position(&other) else { continue };
                if !clashes.iter().any(|clash| clash.is_of(at, place)) {
                    let message = format!("`{}` cannot be used with `{other}`, because {reason}", plugin.name());
                    clashes.push(Clash { message, keep: at, drop: place });
                }
            }
        }
        let joining: Vec<_> = self.firsts().filter(|(_, plugin)| plugin.joins_world(cluster)).collect();
        for (index, (keep, first)) in joining.iter().enumerate() {
            for (drop, second) in &joining[index + 1..] {
                if !clashes.iter().any(|clash| clash.is_of(*keep, *drop)) {
                    let message = format!(
                        "`{}` cannot be used with `{}`, because each joins all workers into one world, and a pool has \
                         one rendezvous; a framework that you need only as a library goes into the image: `.pip([{:?}])`",
                        second.name(),
                        first.name(),
                        second.name()
                    );
                    clashes.push(Clash { message, keep: *keep, drop: *drop });
                }
            }
        }
        clashes
    }

    fn worlds_on_elastic(&self, cluster: &ClusterInfo) -> Vec<String> {
        let joining = self.firsts().filter(|(_, plugin)| cluster.elastic && plugin.joins_world(cluster));
        joining
            .map(|(_, plugin)| {
                format!(
                    "`{}` joins all workers into one world of fixed size, and the number of nodes of this pool may change",
                    plugin.name()
                )
            })
            .collect()
    }

    /// Each plugin with its first place, without duplicates.
    fn firsts(&self) -> impl Iterator<Item = (usize, &Arc<dyn Plugin>)> {
        self.0.iter().enumerate().filter(|(at, plugin)| self.position(plugin.name()) == Some(*at))
    }

    /// The corrected list as Rust code, if one exists: without duplicates and clashes, with the
    /// missing plugins, in an order that satisfies all requirements, and otherwise unchanged.
    fn corrected(&self, cluster: &ClusterInfo) -> Option<String> {
        let wanted: Vec<String> =
            self.firsts().flat_map(|(_, plugin)| plugin.requires(cluster)).map(|relation| relation.plugin).collect();
        let needed = |at: usize| wanted.iter().any(|name| name == self.0[at].name());
        let mut dropped: Vec<usize> = Vec::new();
        for clash in self.clashes(cluster) {
            let drop = match (needed(clash.keep), needed(clash.drop)) {
                (true, true) => return None,
                (false, true) => clash.keep,
                (_, false) => clash.drop,
            };
            dropped.push(drop);
        }
        for (at, plugin) in self.firsts() {
            let clashes =
                |relation: &Relation| self.position(&relation.plugin).is_none() && wanted.contains(&relation.plugin);
            if plugin.conflicts_with(cluster).iter().any(clashes) {
                if needed(at) {
                    return None;
                }
                dropped.push(at);
            }
        }
        let mut list = Draft { cluster, kept: Vec::new(), names: Vec::new(), lines: Vec::new() };
        for (at, plugin) in self.firsts() {
            if !dropped.contains(&at) {
                list.kept.push(plugin);
            }
        }
        for plugin in list.kept.clone() {
            list.place(plugin, 0)?;
        }
        Some(list.lines.join("\n"))
    }
}

/// Two plugins that cannot be used together.
struct Clash {
    message: String,
    /// The place of the plugin that the corrected list keeps.
    keep: usize,
    /// The place of the plugin that the corrected list drops.
    drop: usize,
}

impl Clash {
    fn is_of(&self, a: usize, b: usize) -> bool {
        (self.keep, self.drop) == (a, b) || (self.drop, self.keep) == (a, b)
    }
}

/// A corrected list under construction.
struct Draft<'a> {
    cluster: &'a ClusterInfo,
    kept: Vec<&'a Arc<dyn Plugin>>,
    names: Vec<String>,
    lines: Vec<String>,
}

impl Draft<'_> {
    /// Appends a plugin after all plugins that it requires; `None` if plugins require each other.
    fn place(&mut self, plugin: &Arc<dyn Plugin>, depth: usize) -> Option<()> {
        if self.names.iter().any(|name| name == plugin.name()) {
            return Some(());
        }
        if depth > self.kept.len() {
            return None;
        }
        for needed in plugin.requires(self.cluster) {
            if let Some(other) = self.kept.iter().copied().find(|other| other.name() == needed.plugin) {
                self.place(other, depth + 1)?;
            } else if !self.names.contains(&needed.plugin) {
                self.lines.push(format!("    .plugin({})", needed.constructor));
                self.names.push(needed.plugin);
            }
        }
        self.names.push(plugin.name().to_owned());
        self.lines.push(format!("    .plugin({})", plugin.constructor()));
        Some(())
    }
}

#[cfg(test)]
mod tests;
