//! The network of a pool.

use std::collections::HashMap;
use std::time::SystemTime;

use bollard::models::{Network, NetworkCreateRequest};
use bollard::query_parameters::ListNetworksOptionsBuilder;
use tokio::time::Instant;

use super::clock;
use super::container::{self, POOL};
use crate::error::Result;
use crate::ids::PoolId;
use crate::provider::{PoolRecord, PoolRequest};
use crate::remote::docker::{Engine, Fault, fault, reason};

/// The name of a pool's network.
pub(super) fn name(pool: &PoolId) -> String {
    format!("skyward-{pool}")
}

/// Creates the network, unless it exists.
pub(super) async fn make(engine: &Engine, request: &PoolRequest, deadline: Instant) -> Result<()> {
    let pool = &request.pool;
    // An engine allows several networks of one name.
    if !labelled(engine, &format!("{POOL}={pool}"), deadline).await?.is_empty() {
        return Ok(());
    }
    let request = NetworkCreateRequest {
        name: name(pool),
        driver: Some("bridge".into()),
        labels: Some(labels(request)),
        ..NetworkCreateRequest::default()
    };
    match engine.api().await?.create_network(request).await {
        Ok(_) => Ok(()),
        Err(error) if fault(&error) == Fault::Busy => Ok(()),
        Err(error) => {
            let failed = engine.failed("create a network", &error).with_context("network", name(pool));
            Err(if reason(&error).contains("address pool") {
                failed.with_hint("the engine has no address range left for another network: `docker network prune` removes unused ones, `default-address-pools` in daemon.json gives it more")
            } else {
                failed
            })
        }
    }
}

/// The labels of the network of a pool.
pub(super) fn labels(request: &PoolRequest) -> HashMap<String, String> {
    let mut labels = container::labels(&request.labels);
    labels.extend(container::pool_labels(&request.pool));
    labels.insert(container::OWNER.to_owned(), request.owner.clone());
    labels.insert(container::LEASE.to_owned(), request.lease.as_millis().to_string());
    labels
}

/// Removes the network.
pub(super) async fn remove(engine: &Engine, pool: &PoolId, deadline: Instant) -> Result<()> {
    let there = labelled(engine, &format!("{POOL}={pool}"), deadline).await?;
    for id in there.into_iter().filter_map(|network| network.id) {
        match engine.api().await?.remove_network(&id).await {
            Ok(()) => {}
            Err(error) if fault(&error) == Fault::Gone => {}
            Err(error) => {
                let failed = engine.failed("remove a network", &error).with_context("network", name(pool));
                // A container that is being removed still holds the network.
                return Err(if reason(&error).contains("active endpoints") { failed.temporary() } else { failed });
            }
        }
    }
    Ok(())
}

/// The pools that have a network. One without a container expires one lease after the network was
/// created, by the engine's time.
pub(super) async fn pools(
    engine: &Engine,
    now: SystemTime,
    engine_time: SystemTime,
    deadline: Instant,
) -> Result<Vec<PoolRecord>> {
    let part = |network: Network| {
        let made = clock::parse(network.created.as_deref()?)?;
        container::record(&network.labels?, now, engine_time.duration_since(made).unwrap_or_default())
    };
    Ok(labelled(engine, POOL, deadline).await?.into_iter().filter_map(part).collect())
}

async fn labelled(engine: &Engine, label: &str, deadline: Instant) -> Result<Vec<Network>> {
    let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
    let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
    let listed = engine.ask("list its networks", deadline, |docker| {
        let options = options.clone();
        async move { docker.list_networks(Some(options)).await }
    });
    listed.await
}

/// Whether an engine's error says that the network of a pool does not exist.
pub(super) fn is_missing(reason: &str, pool: &PoolId) -> bool {
    reason.contains(&name(pool)) && (reason.contains("not found") || reason.contains("no such network"))
}
