//! The names and labels of containers: what is written when a container is created, and read when
//! it is found again.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bollard::models::ContainerSummary;

use crate::ids::{LaunchId, MachineId, MachineNumber, PoolId};
use crate::provider::docker::image::ImageFacts;
use crate::provider::timing::{LONGEST_LEASE, UNRECORDED_LEASE};
use crate::provider::{Labels, PoolRecord};

/// The name of a launch's container: the same for each caller.
pub(in crate::provider::docker) fn name(launch: &LaunchId) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    format!("{PREFIX}{}", launch.as_str().chars().map(plain).collect::<String>())
}

/// The name of the container that builds environments for a machine.
pub(in crate::provider::docker) fn builder_of(machine: &MachineId) -> String {
    format!("{machine}{BUILDER}")
}

/// Whether a machine's id can be the name of a container of this provider.
pub(in crate::provider::docker) fn is_ours(machine: &MachineId) -> bool {
    machine.as_str().starts_with(PREFIX)
}

/// What a node's container declares in its labels, for the creation of another one beside it.
#[derive(Debug, Clone)]
pub(in crate::provider::docker) struct Node {
    pub(in crate::provider::docker) pool: PoolId,
    pub(in crate::provider::docker) launch: LaunchId,
    pub(super) number: MachineNumber,
    pub(in crate::provider::docker) image: ImageFacts,
    pub(super) lease: Duration,
    /// The labels that all of the pool's containers have.
    pub(super) labels: HashMap<String, String>,
}

impl Node {
    /// None for a container that an older version created.
    pub(in crate::provider::docker) fn of(container: &ContainerSummary) -> Option<Self> {
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

/// The labels of everything that belongs to a pool, besides its owner.
pub(in crate::provider::docker) fn pool_labels(pool: &PoolId) -> HashMap<String, String> {
    let client = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default();
    [(POOL.to_owned(), pool.to_string()), (CLIENT.to_owned(), client)].into()
}

/// The labels that the pool's caller chose.
pub(in crate::provider::docker) fn labels(labels: &Labels) -> HashMap<String, String> {
    labels.iter().map(|(name, value)| (format!("{LABEL}{name}"), value.clone())).collect()
}

/// The record of a pool from the labels of one part of it. `age` is how long ago that part was
/// created or known to live; `now` is the client's time.
pub(in crate::provider::docker) fn record(
    labels: &HashMap<String, String>,
    now: SystemTime,
    age: Duration,
) -> Option<PoolRecord> {
    let lease = milliseconds(labels, LEASE).unwrap_or(UNRECORDED_LEASE).min(LONGEST_LEASE);
    let expires = (now + lease).checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let owner = labels.get(OWNER).cloned().unwrap_or_default();
    Some(PoolRecord::new(PoolId::new(labels.get(POOL)?), expires).owner(owner))
}

/// The label filter that finds the container of a launch.
pub(in crate::provider::docker) fn launch_label(launch: &LaunchId) -> String {
    format!("{LAUNCH}={launch}")
}

pub(super) fn milliseconds(labels: &HashMap<String, String>, name: &str) -> Option<Duration> {
    labels.get(name)?.parse().ok().map(Duration::from_millis)
}

const PREFIX: &str = "skyward-";
/// The suffix of the name of a builder container.
const BUILDER: &str = "-builder";
/// The label with the pool.
pub(in crate::provider::docker) const POOL: &str = "skyward.pool";
pub(super) const LAUNCH: &str = "skyward.launch";
/// The label with the launch whose node a container builds for.
pub(super) const BUILDS_FOR: &str = "skyward.builds-for";
pub(super) const NODE: &str = "skyward.node";
/// The label with the image, by its content.
pub(super) const IMAGE: &str = "skyward.image";
pub(super) const RUN_AS: &str = "skyward.run-as";
/// The label with the lease, in milliseconds.
pub(in crate::provider::docker) const LEASE: &str = "skyward.lease";
/// The label with the time from its start after which the container ends, in milliseconds.
pub(super) const ENDS_IN: &str = "skyward.ends-in";
/// The label with the owner of the pool.
pub(in crate::provider::docker) const OWNER: &str = "skyward.owner";
/// The prefix of labels that the pool's caller chose.
const LABEL: &str = "skyward.label.";
/// The label with the user who started the client.
const CLIENT: &str = "skyward.client";
/// The label with the accelerators that the container has.
pub(in crate::provider::docker) const DEVICES: &str = "skyward.devices";
