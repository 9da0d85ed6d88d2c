//! The requests to create the container of a node, and the container that builds environments for
//! a node.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, DeviceRequest, HostConfig, MountType};

use super::labels::{
    self, BUILDS_FOR, DEVICES, ENDS_IN, IMAGE, LAUNCH, LEASE, NODE, Node, OWNER, RUN_AS, name, pool_labels,
};
use super::options::{CACHE, FOLDER, Options, mount};
use crate::provider::docker::image::ImageFacts;
use crate::provider::docker::timing::BUILDER_LEASE;
use crate::provider::{Keeper, LaunchRequest, Offer, keeper};
use crate::remote::quoted;

/// The request to create a node's container.
pub(in crate::provider::docker) fn body(
    options: &Options,
    offer: &Offer,
    request: &LaunchRequest,
    image: &ImageFacts,
    devices: &[String],
) -> ContainerCreateBody {
    let mut labels = labels::labels(&request.labels);
    labels.extend(options.labels.iter().cloned());
    labels.extend(pool_labels(&request.pool));
    labels.extend([
        (OWNER.into(), request.owner.clone()),
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
        // The container starts at once, and so does the first renewal.
        ..kept(image, OWN, env, &Keeper::of(request, FOLDER).boot(request.lease))
    }
}

/// The request to create a container that builds environments for a node: like the node's, but with
/// a writable cache and without accelerators. It shares the node's folder, and so the node's lease.
pub(in crate::provider::docker) fn builder_body(options: &Options, node: &Node) -> ContainerCreateBody {
    let mut labels = node.labels.clone();
    labels.extend(options.labels.iter().cloned());
    labels.extend(pool_labels(&node.pool));
    labels.extend([(BUILDS_FOR.into(), node.launch.to_string()), (NODE.into(), node.number.to_string())]);
    let mut mounts = vec![options.cache(&node.image, false)];
    let mut lease = node.lease;
    if options.is_in_memory(FOLDER) {
        // A folder in memory is shared with no other container, nor is the lease in it.
        mounts.push(mount(MountType::VOLUME, FOLDER));
        lease = BUILDER_LEASE;
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

/// The environment variables of a container with these accelerators. The user's come after those
/// that the user may change.
fn environment(options: &Options, devices: &[String]) -> Vec<String> {
    let none = devices.is_empty().then(|| NO_ACCELERATORS.to_owned());
    let own = format!("SKYWARD_CACHE_DIR={CACHE}");
    none.into_iter().chain(options.env.iter().cloned()).chain([own]).collect()
}

/// Makes NVIDIA's container runtime show no accelerators; the image may ask for all.
const NO_ACCELERATORS: &str = "NVIDIA_VISIBLE_DEVICES=void";

/// A container whose first process is a keeper, after the script `make`, which runs once.
fn kept(image: &ImageFacts, make: &str, env: Vec<String>, keeper: &Keeper) -> ContainerCreateBody {
    let (user, script) = (quoted(&image.user), Keeper::script());
    let script = format!("owner={user}\nif [ -z \"${{{}+set}}\" ]; then\n{make}fi\n{script}", keeper::AGAIN);
    ContainerCreateBody {
        image: Some(image.id.clone()),
        // Only the keeper: everything else runs as the image's user.
        user: Some("0:0".into()),
        entrypoint: Some(keeper::start(&script)),
        cmd: Some(keeper.arguments()),
        env: Some(env),
        ..ContainerCreateBody::default()
    }
}

/// Gives the node's folder, which the engine creates, to the user. A line before this script sets
/// `owner`.
const OWN: &str = r#"
: >"$1/lease"
chmod 700 "$1"
[ -z "$owner" ] || chown -R "$owner" "$1"
[ "${SKYWARD_CACHE_MODE:-}" = read ] || [ -z "$owner" ] || chown "$owner" "$SKYWARD_CACHE_DIR"
"#;
/// Gives the cache, which the engine creates, to the user.
const OWN_CACHE: &str = r#"
[ -z "$owner" ] || chown "$owner" "$1" "$SKYWARD_CACHE_DIR"
"#;
