//! Accelerators: which the engine's host has, and which of them are free.

use std::collections::BTreeSet;

use bollard::models::ContainerSummary;

use super::container::{self, DEVICES};
use crate::error::{Error, ErrorKind, Result};
use crate::provider::local::{ACCELERATORS_TAKEN, host};
use crate::provider::models::{UnsaidMemory, serves};
use crate::provider::{LaunchRequest, MachineState, Offer};
use crate::spec::Accelerator;

/// The offer with the requested accelerators, if the engine's host has them. Where they are not
/// declared, the engine's host is assumed to be this host.
pub(super) async fn offers(plain: Offer, wanted: &Accelerator, declared: Option<&Accelerator>) -> Vec<Offer> {
    let has = match declared {
        Some(declared) => vec![declared.clone()],
        None => found().await,
    };
    let Some(has) = has.iter().find(|has| serves(has, wanted, UnsaidMemory::TooLittle)) else { return Vec::new() };
    let mut given = has.clone();
    given.count = wanted.count;
    vec![Offer { accelerator: Some(given), ..plain }]
}

/// The ids of the accelerators of the engine's host.
pub(super) async fn all(declared: Option<&Accelerator>) -> Vec<String> {
    match declared {
        Some(declared) => (0..declared.count).map(|index| index.to_string()).collect(),
        None => blocking(host::devices).await.unwrap_or_default(),
    }
}

/// Chooses accelerators that no other container of a pool has. Returns those of the launch's own
/// container, where it exists.
pub(super) fn choose(
    request: &LaunchRequest,
    wanted: u32,
    all: &[String],
    containers: &[ContainerSummary],
) -> Result<Vec<String>> {
    let own = container::name(&request.launch);
    if let Some(own) = containers.iter().find(|container| container::is_named(container, &own)) {
        return Ok(devices(own).map(str::to_owned).collect());
    }
    let holders: Vec<_> = containers.iter().filter(|container| devices(container).next().is_some()).collect();
    let taken: BTreeSet<&str> = holders.iter().flat_map(|container| devices(container)).collect();
    let free: Vec<String> = all.iter().filter(|device| !taken.contains(device.as_str())).cloned().collect();
    free.get(..wanted as usize).map(<[String]>::to_vec).ok_or_else(|| {
        let (number, has, left) = (request.number, all.len(), free.len());
        let message = format!(
            "machine {number} needs {wanted} accelerators; the engine's host has {has}, of which {left} are free"
        );
        let error = Error::new(ErrorKind::Provider, message);
        if wanted as usize > has {
            return error.with_hint("ask for fewer accelerators on each node");
        }
        let names: Vec<_> = holders.iter().filter_map(|container| container::own_name(container)).collect();
        // A container that has them may be ending.
        error.temporary().with_context("held by", names.join(", ")).with_hint(ACCELERATORS_TAKEN)
    })
}

/// The stage of a container when its client checks whether another one has its accelerators too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Created, but not running.
    Made,
    /// Running, but not returned from `launch` yet.
    Started,
}

/// Whether another container has an accelerator of this one and keeps it. Each client checks twice:
/// after its container is created, and after it is started.
///
/// Of two containers the older one stays; of the same second, the one with the smaller id. A
/// container that runs also stays when another one becomes visible only afterwards, even an older
/// one: its client may have checked for the last time. So at most one of the two stays.
pub(super) fn is_taken(name: &str, containers: &[ContainerSummary], stage: Stage) -> bool {
    let Some(own) = containers.iter().find(|container| container::is_named(container, name)) else { return false };
    let wanted: BTreeSet<&str> = devices(own).collect();
    let age = |container: &ContainerSummary| (container.created, container.id.clone());
    containers.iter().filter(|other| other.id != own.id).any(|other| {
        let state = container::state(other);
        let runs_already = stage == Stage::Made && state == MachineState::Running;
        state != MachineState::Ending
            && devices(other).any(|device| wanted.contains(device))
            && (runs_already || age(other) < age(own))
    })
}

fn devices(container: &ContainerSummary) -> impl Iterator<Item = &str> {
    let label = container.labels.as_ref().and_then(|labels| labels.get(DEVICES));
    label.into_iter().flat_map(|devices| devices.split(','))
}

async fn found() -> Vec<Accelerator> {
    let offers = blocking(|| host::offers(host::Look::Close)).await.unwrap_or_default();
    offers.into_iter().filter_map(|offer| offer.accelerator).collect()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::*;
    use crate::ids::{Attempt, LaunchId, MachineNumber, PoolId};

    #[tokio::test]
    async fn declared_accelerators_are_offered_where_they_fit() {
        let plain = Offer::new("container", "here", 8, 32);
        let has = Accelerator::new("A100", 4);
        let offered = |kind: &str, count| {
            let (plain, has) = (plain.clone(), has.clone());
            let wanted = Accelerator::new(kind, count);
            async move { offers(plain, &wanted, Some(&has)).await.len() }
        };
        assert_eq!(offered("a100", 4).await, 1);
        assert_eq!(offered("A100", 5).await, 0);
        assert_eq!(offered("H100", 1).await, 0);
        assert_eq!(offered("NVIDIA A100-SXM4", 2).await, 1);
        // Their memory is not declared.
        assert_eq!(offered("A100-80GB", 1).await, 0);
    }

    fn request(node: u32) -> LaunchRequest {
        let pool = PoolId::new("p");
        let launch = LaunchId::of(&pool, MachineNumber(node), Attempt(1));
        LaunchRequest::new(launch, pool, MachineNumber(node), Duration::ZERO)
    }

    /// A container of a node, created at this second.
    fn holding(node: u32, devices: &str, created: i64, state: &str) -> ContainerSummary {
        let name = container::name(&request(node).launch);
        ContainerSummary {
            id: Some(format!("id{node}")),
            names: Some(vec![format!("/{name}")]),
            labels: Some(HashMap::from([(DEVICES.into(), devices.into())])),
            created: Some(created),
            state: state.parse().ok(),
            ..ContainerSummary::default()
        }
    }

    #[test]
    fn accelerators_are_given_once() {
        let all = ["0", "1", "2"].map(str::to_owned);
        let others = [holding(7, "0,2", 1, "running")];
        assert_eq!(choose(&request(1), 1, &all, &others).unwrap(), ["1"]);
        let error = choose(&request(1), 2, &all, &others).unwrap_err();
        assert_eq!(error.message(), "machine 1 needs 2 accelerators; the engine's host has 3, of which 1 are free");
        assert_eq!(error.context(), [("held by", "skyward-p-n7-a1".to_owned())]);
        // A container that has them may be ending, but a host does not get more accelerators.
        assert!(error.is_temporary());
        assert!(!choose(&request(1), 4, &all, &[]).unwrap_err().is_temporary());
    }

    #[test]
    fn a_repeated_launch_keeps_the_accelerators_of_its_container() {
        let all = ["0", "1"].map(str::to_owned);
        let containers = [holding(1, "0,1", 1, "created")];
        assert_eq!(choose(&request(1), 2, &all, &containers).unwrap(), ["0", "1"]);
        assert!(choose(&request(2), 1, &all, &containers).is_err());
    }

    #[test]
    fn the_older_of_two_containers_keeps_an_accelerator() {
        use Stage::{Made, Started};
        // The other's devices, second and state; the own second and stage; whether the own
        // container is removed. Ids are id1 (own) and id2.
        let cases = [
            ("1", 5, "running", 9, Made, false),
            ("0", 5, "created", 9, Made, true),
            ("0", 5, "running", 9, Started, true),
            ("1,0", 9, "created", 5, Made, false),
            ("0", 9, "running", 5, Started, false),
            ("0", 5, "created", 5, Made, false),
            // Its client may have checked for the last time before this container was visible.
            ("0", 9, "running", 5, Made, true),
            ("0", 5, "exited", 9, Made, false),
            ("0", 5, "removing", 9, Started, false),
        ];
        for case in cases {
            let (devices, second, state, own, stage, goes) = case;
            let containers = [holding(1, "0", own, "created"), holding(2, devices, second, state)];
            assert_eq!(is_taken("skyward-p-n1-a1", &containers, stage), goes, "{case:?}");
        }
    }

    /// Two clients choose at once: each creates its container, checks, starts it, and checks again.
    /// In each order of these steps at most one keeps the accelerator.
    #[test]
    fn no_order_of_steps_lets_two_containers_keep_one_accelerator() {
        for order in 0_u32..1 << 8 {
            if order.count_ones() != 4 {
                continue;
            }
            // The engine knows which of the two is older before it lists them.
            for older in [1, 2] {
                let mut shown: [Option<&str>; 2] = [None, None];
                let mut at = [0; 2];
                for step in 0..8 {
                    let me = (order >> step & 1) as usize;
                    let list = |shown: &[Option<&str>; 2]| -> Vec<ContainerSummary> {
                        let nodes = (1..).zip(shown).filter_map(|(node, state)| Some((node, (*state)?)));
                        nodes.map(|(node, state)| holding(node, "0", i64::from(node != older), state)).collect()
                    };
                    let name = format!("skyward-p-n{}-a1", me + 1);
                    match at[me] {
                        0 => shown[me] = Some("created"),
                        1 if is_taken(&name, &list(&shown), Stage::Made) => (shown[me], at[me]) = (None, 9),
                        2 => shown[me] = Some("running"),
                        3 if is_taken(&name, &list(&shown), Stage::Started) => shown[me] = None,
                        _ => {}
                    }
                    at[me] += 1;
                }
                assert!(shown.contains(&None), "both keep it: order {order:08b}, older {older}");
            }
        }
    }
}
