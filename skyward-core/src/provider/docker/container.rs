//! A machine as a container: what it is made with, and what is read of it.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bollard::models::{
    ContainerCreateBody, ContainerSummary, ContainerSummaryStateEnum, DeviceRequest, HostConfig, Mount, MountType,
    MountVolumeOptions,
};

use super::image::ImageFacts;
use super::{cache, network};
use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
use crate::provider::keeper;
use crate::provider::{
    Facts, Keeper, Labels, LaunchRequest, Machine, MachineReport, MachineState, Offer, Place, PoolRecord,
};

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

    /// Whether nodes read a cache that pools share. One in memory is the node's own.
    pub(super) fn shares_cache(&self) -> bool {
        !self.is_in_memory(CACHE)
    }

    fn is_in_memory(&self, target: &str) -> bool {
        self.tmpfs.iter().any(|(other, _)| other == target)
    }

    /// The cache that pools share: the volume, unless a folder of the host takes its place.
    fn cache(&self, image: &ImageFacts, read_only: bool) -> Mount {
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
    fn mounts(&self, image: &ImageFacts) -> Vec<Mount> {
        let bound = |target: &str| self.binds.iter().any(|(_, other)| other == target);
        // On the engine's own disk: what is written often is slow to write into a container's layers.
        let folder = (!bound(FOLDER) && !self.is_in_memory(FOLDER)).then(|| mount(MountType::VOLUME, FOLDER));
        let cache = self.shares_cache().then(|| self.cache(image, true));
        let binds = self.binds.iter().filter(|(_, target)| target != CACHE);
        let binds =
            binds.map(|(source, target)| Mount { source: Some(source.clone()), ..mount(MountType::BIND, target) });
        folder.into_iter().chain(cache).chain(binds).collect()
    }

    /// What all containers of a pool have in common.
    fn host(&self, pool: &PoolId, memory_gib: u32) -> HostConfig {
        let memory = self.memory_mib.map(bytes);
        HostConfig {
            auto_remove: Some(true),
            // Reaps what is left behind by what has ended.
            init: Some(true),
            network_mode: Some(network::name(pool)),
            nano_cpus: self.cpus.map(|cpus| (cpus * 1e9) as i64),
            memory,
            // No more than the memory: a node that swaps is slower than one that fails.
            memory_swap: memory,
            shm_size: self
                .shm_mib
                .or_else(|| Some((self.memory_mib.unwrap_or(u64::from(memory_gib) << 10) / 2).max(64)))
                .map(bytes),
            tmpfs: Some(self.tmpfs()),
            ..HostConfig::default()
        }
    }

    /// Folders in memory, in which programs may run as elsewhere.
    fn tmpfs(&self) -> HashMap<String, String> {
        let options = |mebibytes: u64| format!("rw,exec,nosuid,nodev,mode=1777,size={mebibytes}m");
        self.tmpfs.iter().map(|(target, mebibytes)| (target.clone(), options(*mebibytes))).collect()
    }
}

fn mount(typ: MountType, target: &str) -> Mount {
    Mount { typ: Some(typ), target: Some(target.to_owned()), ..Mount::default() }
}

/// What the engine is asked to make for a node.
pub(super) fn body(
    options: &Options,
    offer: &Offer,
    request: &LaunchRequest,
    owner: Option<&str>,
    image: &ImageFacts,
    devices: &[String],
) -> ContainerCreateBody {
    let mut labels = self::labels(&request.labels);
    labels.extend(options.labels.iter().cloned());
    labels.extend(pool_labels(&request.pool, owner));
    labels.extend([
        (LAUNCH.into(), request.launch.to_string()),
        (NODE.into(), request.number.to_string()),
        (RUN_AS.into(), image.user.clone()),
        (IMAGE.into(), image.id.clone()),
        (LEASE.into(), request.lease.as_millis().to_string()),
    ]);
    if let Some(ends_in) = request.ends_in {
        labels.insert(ENDS_IN.into(), ends_in.as_millis().to_string());
    }
    if !devices.is_empty() {
        labels.insert(DEVICES.into(), devices.join(","));
    }
    let mut env = environment(options, devices);
    if options.shares_cache() {
        env.push("SKYWARD_CACHE_MODE=read".into());
    }
    let gpus = DeviceRequest {
        device_ids: Some(devices.to_vec()),
        capabilities: Some(vec![vec!["gpu".into()]]),
        ..DeviceRequest::default()
    };
    let host = HostConfig {
        mounts: Some(options.mounts(image)),
        device_requests: (!devices.is_empty()).then(|| vec![gpus]),
        ..options.host(&request.pool, offer.memory_gib)
    };
    ContainerCreateBody {
        hostname: Some(format!("node-{}", request.number)),
        labels: Some(labels),
        host_config: Some(host),
        // It is there at once, and so is the first renewal.
        ..kept(image, OWN, env, &Keeper::of(request, FOLDER).boot(request.lease))
    }
}

/// What the engine is asked to make to build environments for a node: like the node, but with a cache that can be written to, and without accelerators. The node's folder is its folder,
/// and the node's lease its lease.
pub(super) fn builder_body(options: &Options, node: &Node) -> ContainerCreateBody {
    let mut labels = node.labels.clone();
    labels.extend(options.labels.iter().cloned());
    labels.extend(pool_labels(&node.pool, None));
    labels.extend([(BUILDS_FOR.into(), node.launch.to_string()), (NODE.into(), node.number.to_string())]);
    let mut mounts = vec![options.cache(&node.image, false)];
    let mut lease = node.lease;
    if options.is_in_memory(FOLDER) {
        // That is shared with nobody, nor is the lease in it.
        mounts.push(mount(MountType::VOLUME, FOLDER));
        lease = LONGEST_BUILD;
    }
    let host = HostConfig {
        mounts: Some(mounts),
        volumes_from: Some(vec![name(&node.launch)]),
        tmpfs: Some(HashMap::new()),
        ..options.host(&node.pool, 0)
    };
    let mut env = environment(options, &[]);
    env.push("SKYWARD_CACHE_MODE=build".into());
    ContainerCreateBody {
        labels: Some(labels),
        host_config: Some(host),
        ..kept(&node.image, OWN_CACHE, env, &Keeper::new(FOLDER, lease))
    }
}

/// The variables of a container with these accelerators. The user's come after what they may change.
fn environment(options: &Options, devices: &[String]) -> Vec<String> {
    let none = devices.is_empty().then(|| NO_ACCELERATORS.to_owned());
    let own = format!("SKYWARD_CACHE_DIR={CACHE}");
    none.into_iter().chain(options.env.iter().cloned()).chain([own]).collect()
}

/// What the container runtime of NVIDIA shows to a container that is to have none; the image may ask for all.
const NO_ACCELERATORS: &str = "NVIDIA_VISIBLE_DEVICES=void";

/// A container whose first process is a keeper, after the script `make`, which is run once.
fn kept(image: &ImageFacts, make: &str, env: Vec<String>, keeper: &Keeper) -> ContainerCreateBody {
    let (user, script) = (quoted(&image.user), Keeper::script());
    let script = format!("owner={user}\nif [ -z \"${{{}+set}}\" ]; then\n{make}fi\n{script}", keeper::AGAIN);
    ContainerCreateBody {
        image: Some(image.id.clone()),
        // The keeper alone: everything else runs as the image's user.
        user: Some("0:0".into()),
        entrypoint: Some(["sh", "-c", keeper::START, &script].map(str::to_owned).into()),
        cmd: Some(keeper.arguments()),
        env: Some(env),
        ..ContainerCreateBody::default()
    }
}

/// The container of a launch: the same for whoever asks for it again.
pub(super) fn name(launch: &LaunchId) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    format!("{PREFIX}{}", launch.as_str().chars().map(plain).collect::<String>())
}

/// The container that builds environments for a machine.
pub(super) fn builder_of(machine: &MachineId) -> String {
    format!("{machine}{BUILDER}")
}

/// Whether a machine's id can be that of a container of this provider.
pub(super) fn is_ours(machine: &MachineId) -> bool {
    machine.as_str().starts_with(PREFIX)
}

/// The name of a container, for people.
pub(super) fn own_name(container: &ContainerSummary) -> Option<&str> {
    container.names.iter().flatten().next().map(|name| name.trim_start_matches('/'))
}

pub(super) fn is_named(container: &ContainerSummary, name: &str) -> bool {
    container.names.iter().flatten().any(|other| other.strip_prefix('/') == Some(name))
}

/// What a node's container says of itself to who makes another one beside it.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) pool: PoolId,
    pub(super) launch: LaunchId,
    number: MachineNumber,
    pub(super) image: ImageFacts,
    lease: Duration,
    /// Those that all of the pool has.
    labels: HashMap<String, String>,
}

impl Node {
    /// None for a container that an older version made.
    pub(super) fn of(container: &ContainerSummary) -> Option<Self> {
        let labels = container.labels.as_ref()?;
        let shared = labels.iter().filter(|(name, _)| *name == OWNER || name.starts_with(LABEL));
        let image = ImageFacts { id: labels.get(IMAGE)?.clone(), user: labels.get(RUN_AS)?.clone() };
        Some(Self {
            pool: PoolId::new(labels.get(POOL)?),
            launch: LaunchId::new(labels.get(LAUNCH)?),
            number: MachineNumber(labels.get(NODE)?.parse().ok()?),
            image,
            lease: milliseconds(labels, LEASE)?,
            labels: shared.map(|(name, value)| (name.clone(), value.clone())).collect(),
        })
    }
}

/// The machine that a container is, or the one that it builds for.
pub(super) fn machine(container: &ContainerSummary) -> Option<Machine> {
    let labels = container.labels.as_ref()?;
    let launch = labels.get(LAUNCH).or_else(|| labels.get(BUILDS_FOR))?;
    let (pool, launch) = (PoolId::new(labels.get(POOL)?), LaunchId::new(launch));
    let number = MachineNumber(labels.get(NODE)?.parse().ok()?);
    let (id, offer) = (MachineId::new(name(&launch)), OfferId::new(OFFER));
    Some(Machine { id, launch, pool, number, offer, facts: Facts::new() })
}

/// What is reported of a container.
pub(super) fn report(container: &ContainerSummary, engine: Option<SystemTime>) -> MachineReport {
    let mut report = MachineReport::new(state(container));
    if report.state == MachineState::Running {
        let left = |(ends_in, now)| Duration::saturating_sub(ends_in, age(container, now));
        report.ends_in = ends_in(container).zip(engine).map(left);
    }
    match address(container) {
        Some(address) if report.state == MachineState::Running => report.at(Place::new(address, FOLDER)),
        // The engine shows it before it has joined its network.
        None if report.state == MachineState::Running => {
            MachineReport::new(MachineState::Starting).saying("it runs, and has no address in the network of its pool")
        }
        _ => report,
    }
}

/// After which time from its start the container ends, whatever its lease.
pub(super) fn ends_in(container: &ContainerSummary) -> Option<Duration> {
    milliseconds(container.labels.as_ref()?, ENDS_IN)
}

/// How long ago it was made, by the engine's time.
fn age(container: &ContainerSummary, engine: SystemTime) -> Duration {
    let made = Duration::from_secs(container.created.and_then(|made| u64::try_from(made).ok()).unwrap_or(0));
    engine.duration_since(SystemTime::UNIX_EPOCH + made).unwrap_or_default()
}

fn milliseconds(labels: &HashMap<String, String>, name: &str) -> Option<Duration> {
    labels.get(name)?.parse().ok().map(Duration::from_millis)
}

/// The address in the pool's network.
fn address(container: &ContainerSummary) -> Option<String> {
    let pool = PoolId::new(container.labels.as_ref()?.get(POOL)?);
    let networks = container.network_settings.as_ref()?.networks.as_ref()?;
    networks.get(&network::name(&pool))?.ip_address.clone().filter(|address| !address.is_empty())
}

/// The containers of a list that has states which Docker does not have: Podman's engine speaks Docker's API, and has some of its own.
pub(super) fn listed(json: &str) -> Option<Vec<ContainerSummary>> {
    let mut list: Vec<serde_json::Value> = serde_json::from_str(json).ok()?;
    for container in &mut list {
        let Some(state) = container.get_mut("State").filter(|state| state.is_string()) else { continue };
        let known = match state.as_str().unwrap_or_default() {
            "configured" | "initialized" => "created",
            "stopped" => "exited",
            other if other.parse::<ContainerSummaryStateEnum>().is_ok() => continue,
            // Nothing is concluded from what is not known.
            _ => "",
        };
        *state = known.into();
    }
    serde_json::from_value(list.into()).ok()
}

pub(super) fn state(container: &ContainerSummary) -> MachineState {
    use ContainerSummaryStateEnum as State;
    match container.state {
        Some(State::CREATED) => MachineState::Starting,
        Some(State::EXITED | State::REMOVING | State::DEAD | State::STOPPING) => MachineState::Ending,
        Some(State::RUNNING | State::PAUSED | State::RESTARTING) => MachineState::Running,
        // A state that this version does not know.
        Some(State::EMPTY) | None => MachineState::Unknown,
    }
}

/// Whether a container builds for a node, and is none itself.
pub(super) fn is_builder(container: &ContainerSummary) -> bool {
    container.labels.as_ref().is_some_and(|labels| labels.contains_key(BUILDS_FOR))
}

/// The labels of all that belongs to a pool, with its owner where that is known.
pub(super) fn pool_labels(pool: &PoolId, owner: Option<&str>) -> HashMap<String, String> {
    let client = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    let owner = owner.map(|owner| (OWNER.to_owned(), owner.to_owned()));
    [(POOL.to_owned(), pool.to_string()), (CLIENT.to_owned(), client)].into_iter().chain(owner).collect()
}

/// The pool's own labels, apart from those of the provider.
pub(super) fn labels(labels: &Labels) -> HashMap<String, String> {
    labels.iter().map(|(name, value)| (format!("{LABEL}{name}"), value.clone())).collect()
}

/// What there is of a pool, by the labels of a part of it that was made or known to live so long ago; `now` is the client's time.
pub(super) fn record(labels: &HashMap<String, String>, now: SystemTime, age: Duration) -> Option<PoolRecord> {
    let lease = milliseconds(labels, LEASE).unwrap_or(UNSAID_LEASE).min(LONGEST_LEASE);
    let expires = (now + lease).checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let owner = labels.get(OWNER).cloned().unwrap_or_default();
    Some(PoolRecord::new(PoolId::new(labels.get(POOL)?), expires).owner(owner))
}

/// The pool of a container. It expires a lease from now while the container lives, whose first process is its keeper, and where its state is not known.
pub(super) fn pool(container: &ContainerSummary, now: SystemTime, engine: SystemTime) -> Option<PoolRecord> {
    let lives = matches!(state(container), MachineState::Running | MachineState::Unknown);
    let age = if lives { Duration::ZERO } else { age(container, engine) };
    record(container.labels.as_ref()?, now, age)
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

/// The node's folder, which the engine makes, for the user. The line before this one sets: owner.
const OWN: &str = r#"
: >"$1/lease"
chmod 700 "$1"
[ -z "$owner" ] || chown -R "$owner" "$1"
[ "${SKYWARD_CACHE_MODE:-}" = read ] || [ -z "$owner" ] || chown "$owner" "$SKYWARD_CACHE_DIR"
"#;
/// The cache, which the engine makes, for the user.
const OWN_CACHE: &str = r#"
[ -z "$owner" ] || chown "$owner" "$1" "$SKYWARD_CACHE_DIR"
"#;
/// The one offer of an engine.
pub(super) const OFFER: &str = "container";
const PREFIX: &str = "skyward-";
/// At the end of the name of a container that builds.
const BUILDER: &str = "-builder";
/// What a builder may take that does not see the lease of its node.
const LONGEST_BUILD: Duration = Duration::from_secs(3600);
/// The machine's folder in each container.
const FOLDER: &str = "/skyward/node";
const CACHE: &str = "/skyward/cache";
/// The label with the pool.
pub(super) const POOL: &str = "skyward.pool";
const LAUNCH: &str = "skyward.launch";
/// The label with the launch whose node a container builds for.
const BUILDS_FOR: &str = "skyward.builds-for";
/// The label with the image, by its content.
const IMAGE: &str = "skyward.image";
/// The label with the lease, in milliseconds.
pub(super) const LEASE: &str = "skyward.lease";
/// The label with the time from its start after which the container ends, in milliseconds.
const ENDS_IN: &str = "skyward.ends-in";
/// The label with who started the pool, as the pool says.
const OWNER: &str = "skyward.owner";
/// Before the names of the pool's own labels.
const LABEL: &str = "skyward.label.";
/// The lease of what an older version made.
const UNSAID_LEASE: Duration = Duration::from_secs(3600);
/// More than anybody waits, and less than a clock can count.
const LONGEST_LEASE: Duration = Duration::from_secs(366 * 24 * 3600);
const NODE: &str = "skyward.node";
/// The label with who started it.
const CLIENT: &str = "skyward.client";
const RUN_AS: &str = "skyward.run-as";
/// The label with the accelerators that the container has.
pub(super) const DEVICES: &str = "skyward.devices";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Attempt;

    fn request() -> LaunchRequest {
        let (pool, number) = (PoolId::new("p-x"), MachineNumber(1));
        LaunchRequest::new(LaunchId::of(&pool, number, Attempt(2)), pool, number, Duration::from_secs(8))
    }

    fn offer() -> Offer {
        Offer::new(OFFER, "here", 1, 1)
    }

    fn image() -> ImageFacts {
        ImageFacts { id: "sha256:00".into(), user: "1:1".into() }
    }

    /// The container of a node, and that of its builder.
    fn bodies(options: &Options) -> (ContainerCreateBody, ContainerCreateBody) {
        let body = body(options, &offer(), &request(), Some("ada"), &image(), &[]);
        let summary = ContainerSummary { labels: body.labels.clone(), ..ContainerSummary::default() };
        let builder = builder_body(options, &Node::of(&summary).unwrap());
        (body, builder)
    }

    fn at<'a>(body: &'a ContainerCreateBody, target: &str) -> Option<&'a Mount> {
        let mounts = body.host_config.as_ref().unwrap().mounts.as_ref().unwrap();
        let mut found = mounts.iter().filter(|mount| mount.target.as_deref() == Some(target));
        let first = found.next();
        assert!(found.next().is_none(), "{target} is mounted twice");
        first
    }

    fn variable<'a>(body: &'a ContainerCreateBody, name: &str) -> Option<&'a str> {
        // The engine takes the last one.
        let mut env = body.env.iter().flatten().rev().filter_map(|line| line.split_once('='));
        env.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    #[test]
    fn a_node_reads_the_cache_and_its_builder_writes_it() {
        let mut bound = Options::new("i".into());
        bound.binds.push(("/srv/cache".into(), CACHE.into()));
        for options in [Options::new("i".into()), bound] {
            let (node, builder) = bodies(&options);
            let (read, written) = (at(&node, CACHE).unwrap(), at(&builder, CACHE).unwrap());
            assert_eq!((read.read_only, written.read_only), (Some(true), Some(false)));
            assert_eq!((&read.source, read.typ), (&written.source, written.typ));
            assert_eq!(variable(&node, "SKYWARD_CACHE_MODE"), Some("read"));
            assert_eq!(variable(&builder, "SKYWARD_CACHE_MODE"), Some("build"));
            assert_eq!((&node.image, &node.cmd), (&builder.image, &builder.cmd));
            let host = builder.host_config.unwrap();
            assert_eq!(host.volumes_from.unwrap(), ["skyward-p-x-n1-a2"]);
            assert!(host.device_requests.is_none());
        }
        let mut alone = Options::new("i".into());
        alone.tmpfs.push((CACHE.into(), 1));
        assert!(!alone.shares_cache());
        let own = body(&alone, &offer(), &request(), Some("ada"), &image(), &[]);
        assert!(at(&own, CACHE).is_none() && variable(&own, "SKYWARD_CACHE_MODE").is_none());
    }

    #[test]
    fn a_container_sees_the_accelerators_that_it_was_given_and_no_others() {
        const NAME: &str = "NVIDIA_VISIBLE_DEVICES";
        let options = Options::new("i".into());
        assert_eq!(variable(&body(&options, &offer(), &request(), Some("ada"), &image(), &[]), NAME), Some("void"));
        let given = body(&options, &offer(), &request(), Some("ada"), &image(), &["0".to_owned(), "3".to_owned()]);
        // The engine sets it, by what it is asked for.
        assert_eq!(variable(&given, NAME), None);
        assert_eq!(
            given.host_config.unwrap().device_requests.unwrap()[0].device_ids,
            Some(vec!["0".into(), "3".into()])
        );
        let mut all = options;
        all.env.push(format!("{NAME}=all"));
        assert_eq!(variable(&body(&all, &offer(), &request(), Some("ada"), &image(), &[]), NAME), Some("all"));
    }

    #[test]
    fn each_state_of_docker_and_of_podman_is_read() {
        let states = [
            ("created", MachineState::Starting),
            ("configured", MachineState::Starting),
            ("initialized", MachineState::Starting),
            ("running", MachineState::Running),
            ("paused", MachineState::Running),
            ("restarting", MachineState::Running),
            ("something new", MachineState::Unknown),
            ("stopping", MachineState::Ending),
            ("stopped", MachineState::Ending),
            ("exited", MachineState::Ending),
            ("dead", MachineState::Ending),
            ("removing", MachineState::Ending),
        ];
        for (text, status) in states {
            let json = format!(r#"[{{"Id":"a","Names":["/x"],"State":{text:?}}},{{"Id":"b","State":"running"}}]"#);
            let found = listed(&json).unwrap();
            assert_eq!((state(&found[0]), is_named(&found[0], "x"), found.len()), (status, true, 2), "{text}");
        }
        assert!(listed("[{").is_none() && listed(r#"[{"Id":3}]"#).is_none());
    }

    #[test]
    fn a_builder_belongs_to_its_machine_and_is_none_itself() {
        let (node, builder) = bodies(&Options::new("i".into()));
        let of = |body: ContainerCreateBody| ContainerSummary { labels: body.labels, ..ContainerSummary::default() };
        let (node, builder) = (of(node), of(builder));
        assert!(is_builder(&builder) && !is_builder(&node));
        let ids = [&node, &builder].map(|found| machine(found).unwrap().id);
        assert_eq!(ids[0], ids[1]);
        assert_eq!(builder_of(&ids[0]), "skyward-p-x-n1-a2-builder");
        // A launch is looked for by its label, and finds its node alone.
        assert!(!builder.labels.as_ref().unwrap().contains_key(LAUNCH));
    }
}
