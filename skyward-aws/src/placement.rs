//! The placement group of a pool whose machines are near each other.

use aws_sdk_ec2::types::{PlacementStrategy, ResourceType};
use skyward_core::error::Result;
use skyward_core::ids::PoolId;

use crate::client::Clients;
use crate::errors::{Class, Failure};
use crate::tags::{self, Tags};

/// Makes the placement group unless it exists, and returns its name.
///
/// # Errors
///
/// [`ErrorKind::Provider`](skyward_core::error::ErrorKind::Provider).
pub(crate) async fn make(clients: &Clients, pool: &PoolId, tags: &Tags) -> Result<String> {
    let name = format!("skyward-{pool}");
    let made = clients
        .ec2
        .create_placement_group()
        .group_name(&name)
        .strategy(PlacementStrategy::Cluster)
        .tag_specifications(tags::specification(ResourceType::PlacementGroup, tags))
        .send()
        .await;
    match made.map_err(|error| Failure::of("CreatePlacementGroup", error)) {
        Ok(_) => Ok(name),
        Err(failure) if failure.class == Class::Duplicate => Ok(name),
        Err(failure) => Err(failure.into_error()),
    }
}

/// The names of a pool's placement groups. None where the credentials may not list placement
/// groups: such credentials cannot have made one.
///
/// # Errors
///
/// [`ErrorKind::Provider`](skyward_core::error::ErrorKind::Provider).
pub(crate) async fn find(clients: &Clients, pool: &PoolId) -> Result<Vec<String>> {
    let found = clients.ec2.describe_placement_groups().filters(tags::of_pool(pool)).send().await;
    match found.map_err(|error| Failure::of("DescribePlacementGroups", error)) {
        Ok(found) => {
            let groups = found.placement_groups.unwrap_or_default();
            Ok(groups.into_iter().filter_map(|group| group.group_name).collect())
        }
        Err(failure) if failure.class == Class::Denied => Ok(Vec::new()),
        Err(failure) => Err(failure.into_error()),
    }
}
