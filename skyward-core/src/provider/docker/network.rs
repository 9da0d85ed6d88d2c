//! The network of a pool.

use std::collections::HashMap;

use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::ListNetworksOptionsBuilder;
use tokio::time::Instant;

use super::container::{POOL, pool_labels};
use crate::error::Result;
use crate::ids::PoolId;
use crate::remote::docker::{Engine, Fault, fault, reason};

/// The name of a pool's network.
pub(super) fn name(pool: &PoolId) -> String {
    format!("skyward-{pool}")
}

/// Makes it, unless it is there.
pub(super) async fn make(engine: &Engine, pool: &PoolId, deadline: Instant) -> Result<()> {
    // Names of networks are not unique for an engine.
    if !ids(engine, pool, deadline).await?.is_empty() {
        return Ok(());
    }
    let request = NetworkCreateRequest {
        name: name(pool),
        driver: Some("bridge".into()),
        labels: Some(pool_labels(pool)),
        ..NetworkCreateRequest::default()
    };
    match engine.api().await?.create_network(request).await {
        Ok(_) => Ok(()),
        Err(error) if fault(&error) == Fault::Busy => Ok(()),
        Err(error) => {
            let told = engine.told("make a network", &error);
            Err(if reason(&error).contains("address pool") {
                told.with_hint("the engine has no address range left for another network: `docker network prune` removes unused ones, `default-address-pools` in daemon.json gives it more")
            } else {
                told
            })
        }
    }
}

/// Removes it.
pub(super) async fn remove(engine: &Engine, pool: &PoolId, deadline: Instant) -> Result<()> {
    for id in ids(engine, pool, deadline).await? {
        match engine.api().await?.remove_network(&id).await {
            Ok(()) => {}
            Err(error) if fault(&error) == Fault::Gone => {}
            Err(error) => {
                let told = engine.told("remove a network", &error);
                // A container that is being removed still holds it.
                return Err(if reason(&error).contains("active endpoints") { told.temporary() } else { told });
            }
        }
    }
    Ok(())
}

async fn ids(engine: &Engine, pool: &PoolId, deadline: Instant) -> Result<Vec<String>> {
    let filters = HashMap::from([("label".to_owned(), vec![format!("{POOL}={pool}")])]);
    let options = ListNetworksOptionsBuilder::new().filters(&filters).build();
    let listed = engine.ask("list its networks", deadline, |docker| {
        let options = options.clone();
        async move { docker.list_networks(Some(options)).await }
    });
    Ok(listed.await?.into_iter().filter_map(|network| network.id).collect())
}
