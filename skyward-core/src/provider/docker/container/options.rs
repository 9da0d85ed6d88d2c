//! What the user has chosen for all containers of a provider, and how it appears in a request to
//! create one: mounts, folders in memory, and limits.

use std::collections::HashMap;

use bollard::models::{HostConfig, Mount, MountType, MountVolumeOptions};

use crate::ids::PoolId;
use crate::provider::docker::image::ImageFacts;
use crate::provider::docker::{cache, network};

/// What all containers of a provider are created with.
#[derive(Debug, Clone)]
pub(in crate::provider::docker) struct Options {
    pub(in crate::provider::docker) image: String,
    pub(in crate::provider::docker) user: Option<String>,
    pub(in crate::provider::docker) cpus: Option<f64>,
    pub(in crate::provider::docker) memory_mib: Option<u64>,
    pub(in crate::provider::docker) shm_mib: Option<u64>,
    pub(in crate::provider::docker) env: Vec<String>,
    pub(in crate::provider::docker) binds: Vec<(String, String)>,
    pub(in crate::provider::docker) tmpfs: Vec<(String, u64)>,
    pub(in crate::provider::docker) labels: Vec<(String, String)>,
}

impl Options {
    pub(in crate::provider::docker) fn new(image: String) -> Self {
        Self {
            image,
            user: None,
            cpus: None,
            memory_mib: None,
            shm_mib: None,
            env: Vec::new(),
            binds: Vec::new(),
            tmpfs: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Whether nodes read a cache that pools share. A cache in memory is the node's own.
    pub(in crate::provider::docker) fn shares_cache(&self) -> bool {
        !self.is_in_memory(CACHE)
    }

    pub(super) fn is_in_memory(&self, target: &str) -> bool {
        self.tmpfs.iter().any(|(other, _)| other == target)
    }

    /// The cache that pools share: a volume, or the folder of the host that is bound in its place.
    pub(super) fn cache(&self, image: &ImageFacts, read_only: bool) -> Mount {
        let bound = self.binds.iter().find(|(_, target)| target == CACHE);
        let mount = match bound {
            Some((source, _)) => Mount { source: Some(source.clone()), ..mount(MountType::BIND, CACHE) },
            None => {
                let label = HashMap::from([(cache::LABEL.to_owned(), self.image.clone())]);
                let labelled = MountVolumeOptions { labels: Some(label), ..MountVolumeOptions::default() };
                let source = Some(cache::volume(image));
                Mount { source, volume_options: Some(labelled), ..mount(MountType::VOLUME, CACHE) }
            }
        };
        Mount { read_only: Some(read_only), ..mount }
    }

    /// The mounts of a node.
    pub(super) fn mounts(&self, image: &ImageFacts) -> Vec<Mount> {
        let bound = |target: &str| self.binds.iter().any(|(_, other)| other == target);
        // On the engine's own disk: frequent writes into a container's layers are slow.
        let folder = (!bound(FOLDER) && !self.is_in_memory(FOLDER)).then(|| mount(MountType::VOLUME, FOLDER));
        let cache = self.shares_cache().then(|| self.cache(image, true));
        let binds = self.binds.iter().filter(|(_, target)| target != CACHE);
        let binds =
            binds.map(|(source, target)| Mount { source: Some(source.clone()), ..mount(MountType::BIND, target) });
        folder.into_iter().chain(cache).chain(binds).collect()
    }

    /// What all containers of a pool have in common.
    pub(super) fn host(&self, pool: &PoolId, memory_gib: u32) -> HostConfig {
        let memory = self.memory_mib.map(bytes);
        HostConfig {
            auto_remove: Some(true),
            // Reaps orphaned processes.
            init: Some(true),
            network_mode: Some(network::name(pool)),
            // At least the hundredth that engines take: 0 is no bound at all.
            nano_cpus: self.cpus.map(|cpus| (cpus * 1e9).max(1e7) as i64),
            memory,
            // Without swap: a node that swaps is worse than one that fails.
            memory_swap: memory,
            shm_size: self
                .shm_mib
                .or_else(|| Some((self.memory_mib.unwrap_or(u64::from(memory_gib) << 10) / 2).max(64)))
                .map(bytes),
            tmpfs: Some(self.tmpfs()),
            ..HostConfig::default()
        }
    }

    /// Folders in memory, from which programs may be executed.
    fn tmpfs(&self) -> HashMap<String, String> {
        let options = |mebibytes: u64| format!("rw,exec,nosuid,nodev,mode=1777,size={mebibytes}m");
        self.tmpfs.iter().map(|(target, mebibytes)| (target.clone(), options(*mebibytes))).collect()
    }
}

pub(super) fn mount(typ: MountType, target: &str) -> Mount {
    Mount { typ: Some(typ), target: Some(target.to_owned()), ..Mount::default() }
}

fn bytes(mebibytes: u64) -> i64 {
    i64::try_from(mebibytes.saturating_mul(1 << 20)).unwrap_or(i64::MAX)
}

/// The machine's folder in each container.
pub(super) const FOLDER: &str = "/skyward/node";
pub(super) const CACHE: &str = "/skyward/cache";
