//! The world that payloads join by their decorators, such as `@sky.integrations.torch`.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::payload::Source;
use crate::plugin::PluginSet;
use crate::spec::ClusterInfo;

/// The world that the payloads of a pool join by their decorators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decorated {
    /// The framework of the world: `jax`, `torch`, or [`UNKNOWN`].
    framework: String,
    /// The payload that joins the world, for messages.
    payload: String,
}

impl Decorated {
    /// Returns the world that the declared payloads join; `None` if no payload joins one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidSpec`] when two payloads join different worlds.
    pub(crate) fn find(sources: &[Arc<Source>]) -> Result<Option<Self>> {
        let mut found: Option<Self> = None;
        for source in sources {
            let Some(framework) = source.joins() else { continue };
            let payload = format!("`{}` ({})", source.entry(), source.main());
            match &found {
                // This payload's framework is not known before it runs; the first payload's is.
                Some(first) if first.framework != UNKNOWN && framework == UNKNOWN => {}
                Some(first) if first.framework != UNKNOWN && first.framework != framework => {
                    return Err(Error::new(
                        ErrorKind::InvalidSpec,
                        format!(
                            "the payload {} joins the workers into the world of {} and {payload} into that of {framework}, and a \
                             pool has one rendezvous",
                            first.payload, first.framework
                        ),
                    )
                    .with_hint("start a pool for each of them"));
                }
                Some(first) if first.framework == framework => {}
                _ => found = Some(Self { framework: framework.to_owned(), payload }),
            }
        }
        Ok(found)
    }

    /// Whether all workers form one world: because of a plugin or because of a payload's decorator.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub(crate) fn joined(decorated: Option<&Self>, plugins: &PluginSet, cluster: &ClusterInfo) -> Result<bool> {
        decorated.map_or(Ok(()), |decorated| decorated.check(plugins, cluster))?;
        Ok(plugins.joins_world(cluster) || (decorated.is_some() && cluster.may_be_many()))
    }

    /// Checks that the world is compatible with the plugins and with the pool's size.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Plugins`] when a plugin joins the workers into another world;
    /// [`ErrorKind::InvalidSpec`] when the number of nodes may change.
    fn check(&self, plugins: &PluginSet, cluster: &ClusterInfo) -> Result<()> {
        if !cluster.may_be_many() {
            return Ok(());
        }
        let Self { framework, payload } = self;
        let is_other = |name: &str| framework != UNKNOWN && framework != name;
        let other = plugins.iter().find(|plugin| plugin.joins_world(cluster) && is_other(plugin.world()));
        if let Some(other) = other {
            return Err(Error::new(
                ErrorKind::Plugins,
                format!(
                    "the decorator of the payload {payload} joins the workers into the world of {framework}, and the plugin \
                     `{}` into another one; a pool has one rendezvous",
                    other.name()
                ),
            )
            .with_hint("remove the decorator or the plugin, or start a pool for each"));
        }
        if cluster.elastic {
            return Err(Error::new(
                ErrorKind::InvalidSpec,
                format!(
                    "the decorator of the payload {payload} joins all workers into one world of fixed size, and the number \
                     of nodes of this pool may change"
                ),
            )
            .with_hint(format!("give the pool a fixed number of nodes: `.nodes({})`", cluster.nodes)));
        }
        Ok(())
    }
}

/// Stands for a framework that is chosen when the payload runs, so it cannot be compared with
/// another framework before.
const UNKNOWN: &str = "unknown";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::{Plugin, plugin};

    fn source(name: &str, framework: Option<&'static str>) -> Arc<Source> {
        let source = Source::file(format!("{name}.py"), "def f(): ...\n", "f");
        Arc::new(match framework {
            Some(framework) => source.joining(framework),
            None => source,
        })
    }

    /// A plugin whose name differs from the name of the framework whose world it joins.
    #[derive(Debug)]
    struct OfTorch;

    impl Plugin for OfTorch {
        fn name(&self) -> &str {
            "of_torch"
        }

        fn joins_world(&self, _: &ClusterInfo) -> bool {
            true
        }

        fn world(&self) -> &str {
            "torch"
        }
    }

    fn found(sources: &[Arc<Source>]) -> Option<Decorated> {
        Decorated::find(sources).unwrap()
    }

    #[test]
    fn payloads_of_one_framework_share_a_world() {
        assert_eq!(found(&[source("a", None)]), None);
        let both = found(&[source("a", None), source("b", Some("torch")), source("c", Some("torch"))]);
        assert_eq!(both.unwrap().framework, "torch");
        let error = Decorated::find(&[source("a", Some("jax")), source("b", Some("torch"))]).unwrap_err();
        assert_eq!(
            error.message(),
            "the payload `f` (a.py) joins the workers into the world of jax and `f` (b.py) into that of torch, and a pool \
             has one rendezvous"
        );
    }

    #[test]
    fn a_framework_that_is_chosen_at_run_time_is_compatible_with_every_world() {
        let unknown = || source("k", Some("unknown"));
        let (one, two) = (ClusterInfo::new(1, 1), ClusterInfo::new(2, 1));
        for (sources, framework) in [
            (vec![unknown()], "unknown"),
            (vec![unknown(), source("a", None), unknown()], "unknown"),
            (vec![unknown(), source("a", Some("torch")), unknown()], "torch"),
            (vec![source("a", Some("jax")), unknown(), source("b", Some("jax"))], "jax"),
        ] {
            assert_eq!(found(&sources).unwrap().framework, framework);
        }
        let error = Decorated::find(&[unknown(), source("a", Some("jax")), source("b", Some("torch"))]).unwrap_err();
        assert!(error.message().starts_with("the payload `f` (a.py) joins"), "{error}");
        let decorated = found(&[unknown()]).unwrap();
        for name in ["jax", "torch", "horovod"] {
            let mut plugins = PluginSet::default();
            plugins.push(Arc::new(plugin(name).joins_world()));
            decorated.check(&plugins, &two).unwrap();
        }
        let joined = |cluster| Decorated::joined(Some(&decorated), &PluginSet::default(), cluster).unwrap();
        assert!(joined(&two) && !joined(&one));
        assert!(decorated.check(&PluginSet::default(), &two.elastic(true)).is_err());
    }

    #[test]
    fn a_plugin_that_joins_another_world_is_refused_and_so_is_an_elastic_pool() {
        let decorated = found(&[source("a", Some("torch"))]).unwrap();
        let (one, two) = (ClusterInfo::new(1, 1), ClusterInfo::new(2, 1));
        let mut plugins = PluginSet::default();
        plugins.push(Arc::new(plugin("torch").joins_world()));
        decorated.check(&plugins, &two).unwrap();
        plugins.push(Arc::new(OfTorch));
        decorated.check(&plugins, &two).unwrap();
        plugins.push(Arc::new(plugin("horovod").joins_world()));
        decorated.check(&plugins, &one).unwrap();
        let error = decorated.check(&plugins, &two).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Plugins);
        assert!(error.message().contains("the plugin `horovod` into another one"), "{error}");
        let joined = |cluster| Decorated::joined(Some(&decorated), &PluginSet::default(), cluster).unwrap();
        assert!(joined(&two) && !joined(&one));
        let error = decorated.check(&PluginSet::default(), &two.elastic(true)).unwrap_err();
        assert_eq!(error.hint(), Some("give the pool a fixed number of nodes: `.nodes(2)`"));
    }
}
