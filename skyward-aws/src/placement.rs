//! The placement group of a pool whose machines are near each other.

use aws_sdk_ec2::types::{Filter, PlacementGroup, PlacementStrategy, ResourceType};
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
    let groups = all(clients, tags::of_pool(pool)).await?;
    Ok(groups.into_iter().filter_map(|group| group.group_name).collect())
}

/// The placement groups that match a filter. None where the credentials may not list placement
/// groups.
///
/// # Errors
///
/// [`ErrorKind::Provider`](skyward_core::error::ErrorKind::Provider).
pub(crate) async fn all(clients: &Clients, filter: Filter) -> Result<Vec<PlacementGroup>> {
    let found = clients.ec2.describe_placement_groups().filters(filter).send().await;
    match found.map_err(|error| Failure::of("DescribePlacementGroups", error)) {
        Ok(found) => Ok(found.placement_groups.unwrap_or_default()),
        Err(failure) if failure.class == Class::Denied => Ok(Vec::new()),
        Err(failure) => Err(failure.into_error()),
    }
}

#[cfg(test)]
mod tests {
    use skyward_core::provider::Provider;

    use crate::loopback::{Loopback, ec2};
    use crate::tags;

    #[tokio::test]
    async fn a_pool_of_which_a_placement_group_alone_is_left_is_listed_where_the_credentials_may_see_it() {
        let group = format!(
            "<DescribePlacementGroupsResponse><placementGroupSet><item><groupName>skyward-p-left</groupName><tagSet>\
             <item><key>{}</key><value>p-left</value></item></tagSet></item></placementGroupSet>\
             </DescribePlacementGroupsResponse>",
            tags::POOL
        );
        for (answer, pools) in [
            ((200, group), vec!["p-left".to_owned()]),
            ((403, ec2::error("UnauthorizedOperation", "You are not authorized.")), Vec::new()),
        ] {
            let service = Loopback::start(move |body| match body.contains("Action=DescribePlacementGroups&") {
                true => answer.clone(),
                false => ec2::answer(body),
            });
            let listed = service.aws().pools().await.unwrap();
            assert_eq!(listed.into_iter().map(|record| record.pool.to_string()).collect::<Vec<_>>(), pools);
        }
    }
}
