//! A machine as a container: how it is created, and what its description says.

mod create;
mod labels;
mod options;

use std::time::{Duration, SystemTime};

use bollard::models::{ContainerState, ContainerSummary, ContainerSummaryStateEnum};

pub(super) use self::create::{body, builder_body};
use self::labels::{BUILDS_FOR, ENDS_IN, LAUNCH, NODE, milliseconds};
pub(super) use self::labels::{
    DEVICES, LEASE, Node, OWNER, POOL, builder_of, is_ours, labels, launch_label, name, pool_labels, record,
};
use self::options::FOLDER;
pub(super) use self::options::Options;
use super::{clock, network};
use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
use crate::provider::{Facts, Machine, MachineReport, MachineState, Place, PoolRecord};

/// The name of a container, for people.
pub(super) fn own_name(container: &ContainerSummary) -> Option<&str> {
    container.names.iter().flatten().next().map(|name| name.trim_start_matches('/'))
}

pub(super) fn is_named(container: &ContainerSummary, name: &str) -> bool {
    container.names.iter().flatten().any(|other| other.strip_prefix('/') == Some(name))
}

/// The machine that a container is, or that it builds for.
pub(super) fn machine(container: &ContainerSummary) -> Option<Machine> {
    let labels = container.labels.as_ref()?;
    let launch = labels.get(LAUNCH).or_else(|| labels.get(BUILDS_FOR))?;
    let (pool, launch) = (PoolId::new(labels.get(POOL)?), LaunchId::new(launch));
    let number = MachineNumber(labels.get(NODE)?.parse().ok()?);
    let (id, offer) = (MachineId::new(name(&launch)), OfferId::new(OFFER));
    Some(Machine { id, launch, pool, number, offer, facts: Facts::new() })
}

/// The report of a container.
pub(super) fn report(container: &ContainerSummary, engine: Option<SystemTime>) -> MachineReport {
    let mut report = MachineReport::new(state(container));
    if report.state == MachineState::Running {
        let left = |(ends_in, now)| Duration::saturating_sub(ends_in, age(container, now));
        report.ends_in = ends_in(container).zip(engine).map(left);
    }
    match address(container) {
        Some(address) if report.state == MachineState::Running => report.at(Place::new(address, FOLDER)),
        // The engine shows a container before it has joined its network.
        None if report.state == MachineState::Running => MachineReport::new(MachineState::Starting)
            .saying("it runs, but has no address in the network of its pool yet"),
        _ => report,
    }
}

/// The time after its start at which the container ends, whether its lease is renewed or not.
pub(super) fn ends_in(container: &ContainerSummary) -> Option<Duration> {
    milliseconds(container.labels.as_ref()?, ENDS_IN)
}

/// How long ago it was created, by the engine's time.
fn age(container: &ContainerSummary, engine: SystemTime) -> Duration {
    let made = Duration::from_secs(container.created.and_then(|made| u64::try_from(made).ok()).unwrap_or(0));
    engine.duration_since(SystemTime::UNIX_EPOCH + made).unwrap_or_default()
}

/// Whether it has ended, and is still there.
pub(super) fn has_ended(container: &ContainerSummary) -> bool {
    matches!(container.state, Some(ContainerSummaryStateEnum::EXITED | ContainerSummaryStateEnum::DEAD))
}

/// How long it lived, by the engine's times of its creation and its end; none while it lives.
pub(super) fn lived(container: &ContainerSummary, state: &ContainerState) -> Option<Duration> {
    container.created?;
    let end = clock::parse(state.finished_at.as_deref()?)?;
    has_ended(container).then(|| age(container, end))
}

/// The address in the pool's network.
fn address(container: &ContainerSummary) -> Option<String> {
    let pool = PoolId::new(container.labels.as_ref()?.get(POOL)?);
    let networks = container.network_settings.as_ref()?.networks.as_ref()?;
    networks.get(&network::name(&pool))?.ip_address.clone().filter(|address| !address.is_empty())
}

/// Parses a list of containers that has states unknown to Docker: Podman's engine has Docker's API,
/// with some states of its own.
pub(super) fn listed(json: &str) -> Option<Vec<ContainerSummary>> {
    let mut list: Vec<serde_json::Value> = serde_json::from_str(json).ok()?;
    for container in &mut list {
        let Some(state) = container.get_mut("State").filter(|state| state.is_string()) else { continue };
        let known = match state.as_str().unwrap_or_default() {
            "configured" | "initialized" => "created",
            "stopped" => "exited",
            other if other.parse::<ContainerSummaryStateEnum>().is_ok() => continue,
            // An unknown state concludes nothing.
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

/// Whether a container builds for a node, and so is no node itself.
pub(super) fn is_builder(container: &ContainerSummary) -> bool {
    container.labels.as_ref().is_some_and(|labels| labels.contains_key(BUILDS_FOR))
}

/// The record of the pool of a container. It expires one lease from now while the container, whose
/// first process is its keeper, lives or is in an unknown state.
pub(super) fn pool(container: &ContainerSummary, now: SystemTime, engine: SystemTime) -> Option<PoolRecord> {
    let lives = matches!(state(container), MachineState::Running | MachineState::Unknown);
    let age = if lives { Duration::ZERO } else { age(container, engine) };
    record(container.labels.as_ref()?, now, age)
}

/// The hint for a container that does not start.
pub(super) fn start_hint(reason: &str) -> Option<&'static str> {
    if reason.contains("\"sh\"") || reason.contains("executable file not found") {
        Some("the image needs a POSIX shell, `sh`, with the usual tools")
    } else if reason.contains("device driver") || reason.contains("nvidia") {
        Some(
            "the engine cannot give accelerators to containers: install the NVIDIA Container Toolkit, and run `nvidia-ctk runtime configure --runtime=docker`",
        )
    } else if reason.contains("docker-init") {
        Some("the engine has no `docker-init`: install its package, `tini` or `docker-ce`")
    } else {
        None
    }
}

/// The one offer of an engine.
pub(super) const OFFER: &str = "container";

#[cfg(test)]
mod tests;
