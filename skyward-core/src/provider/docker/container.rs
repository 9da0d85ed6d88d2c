//! A machine as a container: what it is made with, and what is read of it.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, ContainerSummary, ContainerSummaryStateEnum, DeviceRequest, HostConfig, Mount, MountType,
    MountVolumeOptions,
};

use super::image::ImageFacts;
use super::{cache, network};
use crate::ids::{LaunchId, MachineId, NodeIndex, PoolId};
use crate::provider::keeper::{self, KEEPER};
use crate::provider::{LaunchRequest, Machine, MachineStatus, Offer};

/// What all containers of a provider are made with.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) image: String,
    pub(super) user: Option<String>,
    pub(super) cpus: Option<f64>,
    pub(super) memory_mib: Option<u64>,
    pub(super) shm_mib: Option<u64>,
    pub(super) env: Vec<String>,
    pub(super) binds: Vec<(String, String)>,
    pub(super) tmpfs: Vec<(String, u64)>,
    pub(super) labels: Vec<(String, String)>,
}

impl Options {
    pub(super) fn new(image: String) -> Self {
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

    fn mounts(&self, image: &ImageFacts) -> Vec<Mount> {
        let mount = |typ, target: &str| Mount { typ: Some(typ), target: Some(target.to_owned()), ..Mount::default() };
        let label = HashMap::from([(cache::LABEL.to_owned(), self.image.clone())]);
        let own = [
            // On the engine's own disk: what is written often is slow to write into a container's layers.
            (FOLDER, mount(MountType::VOLUME, FOLDER)),
            (
                CACHE,
                Mount {
                    source: Some(cache::volume(image)),
                    volume_options: Some(MountVolumeOptions { labels: Some(label), ..MountVolumeOptions::default() }),
                    ..mount(MountType::VOLUME, CACHE)
                },
            ),
        ];
        // What is asked for takes the place of what is not.
        let taken = |target: &str| {
            let mut others = self.binds.iter().map(|(_, other)| other).chain(self.tmpfs.iter().map(|(other, _)| other));
            others.any(|other| other == target)
        };
        let binds = self
            .binds
            .iter()
            .map(|(source, target)| Mount { source: Some(source.clone()), ..mount(MountType::BIND, target) });
        own.into_iter().filter(|(target, _)| !taken(target)).map(|(_, mount)| mount).chain(binds).collect()
    }

    /// Folders in memory, in which programs may run as elsewhere.
    fn tmpfs(&self) -> HashMap<String, String> {
        let options = |mebibytes: u64| format!("rw,exec,nosuid,nodev,mode=1777,size={mebibytes}m");
        self.tmpfs.iter().map(|(target, mebibytes)| (target.clone(), options(*mebibytes))).collect()
    }
}

/// What the engine is asked to make.
pub(super) fn body(
    options: &Options,
    request: &LaunchRequest,
    image: &ImageFacts,
    devices: &[String],
) -> ContainerCreateBody {
    let mut labels = pool_labels(&request.pool);
    labels.extend(options.labels.iter().cloned());
    labels.extend([
        (LAUNCH.into(), request.launch.to_string()),
        (NODE.into(), request.node.to_string()),
        (RUN_AS.into(), image.user.clone()),
    ]);
    if !devices.is_empty() {
        labels.insert(DEVICES.into(), devices.join(","));
    }
    let mut env = options.env.clone();
    env.push(format!("SKYWARD_CACHE_DIR={CACHE}"));
    let gpus = DeviceRequest {
        device_ids: Some(devices.to_vec()),
        capabilities: Some(vec![vec!["gpu".into()]]),
        ..DeviceRequest::default()
    };
    let memory = options.memory_mib.map(bytes);
    let host = HostConfig {
        auto_remove: Some(true),
        // Reaps what is left behind by what has ended.
        init: Some(true),
        network_mode: Some(network::name(&request.pool)),
        nano_cpus: options.cpus.map(|cpus| (cpus * 1e9) as i64),
        memory,
        // No more than the memory: a node that swaps is slower than one that fails.
        memory_swap: memory,
        shm_size: options
            .shm_mib
            .or_else(|| Some((options.memory_mib.unwrap_or(u64::from(request.offer.memory_gib) << 10) / 2).max(64)))
            .map(bytes),
        mounts: Some(options.mounts(image)),
        tmpfs: Some(options.tmpfs()),
        device_requests: (!devices.is_empty()).then(|| vec![gpus]),
        ..HostConfig::default()
    };
    let script = format!("owner={}\n{MAKE}{KEEPER}", quoted(&image.user));
    ContainerCreateBody {
        image: Some(image.id.clone()),
        hostname: Some(format!("node-{}", request.node)),
        // The keeper alone: everything else runs as the image's user.
        user: Some("0:0".into()),
        entrypoint: Some(["sh", "-c", &script, "keeper"].map(str::to_owned).into()),
        cmd: Some(keeper::arguments(FOLDER, request.lease).into()),
        env: Some(env),
        labels: Some(labels),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

/// The container of a launch: the same for whoever asks for it again.
pub(super) fn name(launch: &LaunchId) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    format!("{PREFIX}{}", launch.as_str().chars().map(plain).collect::<String>())
}

/// Whether a machine's id can be that of a container of this provider.
pub(super) fn is_ours(machine: &MachineId) -> bool {
    machine.as_str().starts_with(PREFIX)
}

pub(super) fn is_named(container: &ContainerSummary, name: &str) -> bool {
    container.names.iter().flatten().any(|other| other.strip_prefix('/') == Some(name))
}

/// The machine that a container is.
pub(super) fn machine(container: &ContainerSummary) -> Option<Machine> {
    let labels = container.labels.as_ref()?;
    let (pool, launch) = (PoolId::new(labels.get(POOL)?), LaunchId::new(labels.get(LAUNCH)?));
    let node = NodeIndex(labels.get(NODE)?.parse().ok()?);
    let id = MachineId::new(name(&launch));
    let networks = container.network_settings.as_ref().and_then(|settings| settings.networks.as_ref());
    let address =
        networks.and_then(|networks| networks.get(&network::name(&pool))?.ip_address.clone()).unwrap_or_default();
    let request = LaunchRequest::new(launch, pool, node, Offer::new("container", "", 0, 0), Duration::ZERO);
    let mut machine = Machine::new(&request, id, address, FOLDER);
    machine.keeper = true;
    if let Some(user) = labels.get(RUN_AS).filter(|user| !user.is_empty()) {
        machine.facts.insert(USER.into(), user.clone());
    }
    Some(machine)
}

pub(super) fn state(container: &ContainerSummary) -> MachineStatus {
    use ContainerSummaryStateEnum as State;
    match container.state {
        Some(State::CREATED) => MachineStatus::Starting,
        Some(State::EXITED | State::REMOVING | State::DEAD | State::STOPPING) => MachineStatus::Ending,
        _ => MachineStatus::Running,
    }
}

/// The labels of all that belongs to a pool.
pub(super) fn pool_labels(pool: &PoolId) -> HashMap<String, String> {
    let client = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    HashMap::from([(POOL.to_owned(), pool.to_string()), (CLIENT.to_owned(), client)])
}

/// What to look for, to find the container of a launch.
pub(super) fn launch_label(launch: &LaunchId) -> String {
    format!("{LAUNCH}={launch}")
}

/// What to do about a container that does not start.
pub(super) fn start_hint(reason: &str) -> Option<&'static str> {
    if reason.contains("\"sh\"") || reason.contains("executable file not found") {
        Some("the image needs a POSIX shell, `sh`, with the usual tools")
    } else if reason.contains("device driver") || reason.contains("nvidia") {
        Some(
            "the engine cannot give accelerators to containers: install the NVIDIA Container Toolkit, and `nvidia-ctk runtime configure --runtime=docker`",
        )
    } else if reason.contains("docker-init") {
        Some("the engine has no `docker-init`: install its package, `tini` or `docker-ce`")
    } else {
        None
    }
}

fn bytes(mebibytes: u64) -> i64 {
    i64::try_from(mebibytes << 20).unwrap_or(i64::MAX)
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The folders, which are the engine's to make, for the user. The line before this one sets: owner.
const MAKE: &str = r#"
: >"$1/lease"
chmod 700 "$1"
[ -z "$owner" ] || chown -R "$owner" "$1"
[ -z "$owner" ] || chown "$owner" "$SKYWARD_CACHE_DIR"
"#;
const PREFIX: &str = "skyward-";
/// The machine's folder in each container.
const FOLDER: &str = "/skyward/node";
const CACHE: &str = "/skyward/cache";
/// The label with the pool.
pub(super) const POOL: &str = "skyward.pool";
const LAUNCH: &str = "skyward.launch";
const NODE: &str = "skyward.node";
/// The label with who started it.
const CLIENT: &str = "skyward.client";
const RUN_AS: &str = "skyward.run-as";
/// The label with the accelerators that the container has.
pub(super) const DEVICES: &str = "skyward.devices";
/// The fact that holds who commands run as.
pub(super) const USER: &str = "user";
