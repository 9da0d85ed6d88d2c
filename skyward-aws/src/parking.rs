//! The security group into which the interfaces of ending instances are moved.
//!
//! An instance shuts down for seconds or minutes, and its interface uses the security group of its
//! pool until then: EC2 does not delete a group that is used. In a group of another owner, the
//! interface keeps nothing from being deleted. That group has no rule, so it opens nothing, and all
//! pools of a network share it.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{IpPermission, IpRange, NetworkInterface, ResourceType, SecurityGroup, Tag};
use futures_util::stream::{self, StreamExt};
use skyward_core::error::{Error, ErrorKind, Result};
use skyward_core::ids::{MachineId, PoolId};
use tokio::time::timeout;

use crate::client::Clients;
use crate::describe::MOST_VALUES;
use crate::errors::{Class, Failure, called};
use crate::network::group_name;
use crate::tags::{self, filter};
use crate::timing::{PARKING, PARKING_KEPT};

/// Moves the interfaces of instances that are about to end out of the groups of their pools. Where
/// that fails or takes long, and where more than [`MOST_PARKED`] instances end together, the groups
/// are deleted when the instances have ended.
///
/// # Cancel safety
///
/// May be called again.
pub(crate) async fn park(clients: &Clients, machines: &[MachineId]) {
    let why = if machines.len() > MOST_PARKED {
        format!("{} end together, and each would need a call of its own", machines.len())
    } else {
        match timeout(PARKING, move_all(clients, machines)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("EC2 did not move them within {PARKING:?}"),
        }
    };
    tracing::debug!(?machines, why, "interfaces of ending instances keep the group of their pool");
}

async fn move_all(clients: &Clients, machines: &[MachineId]) -> Result<()> {
    let mut networks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for interface in interfaces(clients, machines).await? {
        if let (true, Some(vpc), Some(id)) =
            (is_in_own_group(&interface), interface.vpc_id, interface.network_interface_id)
        {
            networks.entry(vpc).or_default().push(id);
        }
    }
    for (vpc, interfaces) in networks {
        let group = group(clients, &vpc).await?;
        let moves = interfaces.into_iter().map(|interface| {
            let call = clients.ec2.modify_network_interface_attribute().network_interface_id(interface).groups(&group);
            async { called("ModifyNetworkInterfaceAttribute", call.send().await).map(drop) }
        });
        let moved: Vec<Result<()>> = stream::iter(moves).buffer_unordered(AT_ONCE).collect().await;
        moved.into_iter().collect::<Result<()>>()?;
    }
    Ok(())
}

/// The interfaces of instances.
async fn interfaces(clients: &Clients, machines: &[MachineId]) -> Result<Vec<NetworkInterface>> {
    let mut all = Vec::new();
    for some in machines.chunks(MOST_VALUES) {
        let of = filter("attachment.instance-id", some.iter().map(MachineId::as_str));
        let mut pages = clients.ec2.describe_network_interfaces().filters(of).into_paginator().send();
        while let Some(page) = pages.next().await {
            all.extend(called("DescribeNetworkInterfaces", page)?.network_interfaces.unwrap_or_default());
        }
    }
    Ok(all)
}

/// Whether an interface uses the group that was made for its pool.
fn is_in_own_group(interface: &NetworkInterface) -> bool {
    let own = tags::value(interface.tag_set(), tags::POOL).map(|pool| group_name(&PoolId::new(pool)));
    own.is_some_and(|own| interface.groups().iter().any(|group| group.group_name() == Some(own.as_str())))
}

/// The group without rules in a network; makes it if it does not exist. Its tags say that it is used.
async fn group(clients: &Clients, vpc: &str) -> Result<String> {
    let pool = pool();
    let expires = tags::seconds(clients.clock.now() + PARKING_KEPT);
    if let Some(found) = find(clients, vpc).await? {
        let id = found.group_id.clone().unwrap_or_default();
        close(clients, &id, found).await?;
        let tag = Tag::builder().key(tags::EXPIRES).value(expires).build();
        called("CreateTags", clients.ec2.create_tags().resources(&id).tags(tag).send().await)?;
        return Ok(id);
    }
    let mut all = tags::common(&pool, OWNER, &BTreeMap::new());
    all.insert(tags::EXPIRES.to_owned(), expires);
    let made = clients
        .ec2
        .create_security_group()
        .group_name(group_name(&pool))
        .description("Interfaces of instances that end; no rule")
        .vpc_id(vpc)
        .tag_specifications(tags::specification(ResourceType::SecurityGroup, &all))
        .send()
        .await;
    match made.map_err(|error| Failure::of("CreateSecurityGroup", error)) {
        Ok(made) => {
            let id = made.group_id.unwrap_or_default();
            // EC2 gives each new group a rule that allows all outgoing traffic:
            // <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateSecurityGroup.html>.
            let out =
                IpPermission::builder().ip_protocol("-1").ip_ranges(IpRange::builder().cidr_ip("0.0.0.0/0").build());
            close(clients, &id, SecurityGroup::builder().ip_permissions_egress(out.build()).build()).await?;
            Ok(id)
        }
        Err(failure) if failure.class == Class::Duplicate => {
            let found = find(clients, vpc).await?.and_then(|group| group.group_id);
            found.ok_or_else(|| Error::new(ErrorKind::Provider, failure.to_string()).temporary())
        }
        Err(failure) => Err(failure.into_error()),
    }
}

async fn find(clients: &Clients, vpc: &str) -> Result<Option<SecurityGroup>> {
    let found = clients.ec2.describe_security_groups().filters(tags::of_pool(&pool())).filters(filter("vpc-id", [vpc]));
    Ok(called("DescribeSecurityGroups", found.send().await)?.security_groups.unwrap_or_default().into_iter().next())
}

/// Removes the rules of a group.
async fn close(clients: &Clients, id: &str, group: SecurityGroup) -> Result<()> {
    if let Some(rules) = group.ip_permissions_egress.filter(|rules| !rules.is_empty()) {
        let call = clients.ec2.revoke_security_group_egress().group_id(id).set_ip_permissions(Some(rules));
        called("RevokeSecurityGroupEgress", call.send().await)?;
    }
    if let Some(rules) = group.ip_permissions.filter(|rules| !rules.is_empty()) {
        let call = clients.ec2.revoke_security_group_ingress().group_id(id).set_ip_permissions(Some(rules));
        called("RevokeSecurityGroupIngress", call.send().await)?;
    }
    Ok(())
}

/// The name under which the group is listed like a pool, so that `reap_expired` removes it when it
/// has not been used for a while.
fn pool() -> PoolId {
    PoolId::new("parking")
}

const OWNER: &str = "instances that end";
/// How many instances may end together and still have their interfaces moved. A call moves one, and
/// an account has 50 calls that change something, and 5 more in each second:
/// <https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html>. These calls must be
/// left for other pools, which start and end meanwhile.
const MOST_PARKED: usize = 16;
/// How many interfaces are moved at the same time.
const AT_ONCE: usize = 8;
