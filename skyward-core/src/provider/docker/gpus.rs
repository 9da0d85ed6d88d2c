//! Accelerators: which the engine's host has, and which of them are free.

use std::collections::BTreeSet;

use bollard::models::ContainerSummary;

use super::container::DEVICES;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::local::host;
use crate::provider::models::is_kind;
use crate::provider::{LaunchRequest, Offer};
use crate::spec::Accelerator;

/// The offer with the accelerators that are asked for, if the engine's host has them. Where nothing is said about them, it is taken for this host.
pub(super) async fn offers(plain: Offer, wanted: &Accelerator, told: Option<&Accelerator>) -> Vec<Offer> {
    let has = match told {
        Some(told) => vec![told.clone()],
        None => found().await,
    };
    let fits = |has: &&Accelerator| {
        let memory = wanted.memory_gib.is_none_or(|memory| has.memory_gib.is_some_and(|has| has >= memory));
        is_kind(&has.kind, &wanted.kind) && has.count >= wanted.count && memory
    };
    let Some(has) = has.iter().find(fits) else { return Vec::new() };
    let mut given = has.clone();
    given.kind.clone_from(&wanted.kind);
    given.count = wanted.count;
    vec![Offer { accelerator: Some(given), ..plain }]
}

/// Accelerators that no other container has that a pool started.
pub(super) async fn free(
    request: &LaunchRequest,
    wanted: u32,
    containers: &[ContainerSummary],
    told: Option<&Accelerator>,
) -> Result<Vec<String>> {
    let all: Vec<String> = match told {
        Some(told) => (0..told.count).map(|index| index.to_string()).collect(),
        None => blocking(host::devices).await.unwrap_or_default(),
    };
    choose(request, wanted, &all, containers)
}

fn choose(
    request: &LaunchRequest,
    wanted: u32,
    all: &[String],
    containers: &[ContainerSummary],
) -> Result<Vec<String>> {
    let labels = containers.iter().filter_map(|container| container.labels.as_ref()?.get(DEVICES));
    let taken: BTreeSet<&str> = labels.flat_map(|devices| devices.split(',')).collect();
    let free: Vec<String> = all.iter().filter(|device| !taken.contains(device.as_str())).cloned().collect();
    free.get(..wanted as usize).map(<[String]>::to_vec).ok_or_else(|| {
        let (node, has, left) = (request.node, all.len(), free.len());
        let message =
            format!("node {node} needs {wanted} accelerators; the engine's host has {has}, and {left} are free");
        Error::new(ErrorKind::Provider, message).with_hint("ask for fewer nodes, or fewer accelerators on each")
    })
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
    use crate::ids::{Attempt, LaunchId, NodeIndex, PoolId};

    #[tokio::test]
    async fn what_is_told_is_offered_where_it_fits() {
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
    }

    #[test]
    fn accelerators_are_given_once() {
        let pool = PoolId::new("p");
        let launch = LaunchId::of(&pool, NodeIndex(1), Attempt(1));
        let request = LaunchRequest::new(launch, pool, NodeIndex(1), Offer::new("c", "h", 1, 1), Duration::ZERO);
        let all = ["0", "1", "2"].map(str::to_owned);
        let other = ContainerSummary {
            labels: Some(HashMap::from([(DEVICES.into(), "0,2".into())])),
            ..ContainerSummary::default()
        };
        assert_eq!(choose(&request, 1, &all, std::slice::from_ref(&other)).unwrap(), ["1"]);
        let error = choose(&request, 2, &all, &[other]).unwrap_err();
        assert_eq!(error.message(), "node 1 needs 2 accelerators; the engine's host has 3, and 1 are free");
    }
}
