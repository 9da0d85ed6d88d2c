//! The network of a pool's instances: its subnets, and the security group of each pool.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{
    IpPermission, IpRange, Ipv6Range, ResourceType, RouteTable, Subnet as Ec2Subnet, UserIdGroupPair,
};
use ipnet::IpNet;
use skyward_core::error::{Error, ErrorKind, Refusal, Result};
use skyward_core::ids::PoolId;

use crate::client::Clients;
use crate::errors::{Class, Failure, called};
use crate::options::{Addressing, Options};
use crate::tags::{self, Tags, filter};

/// A network with the subnets that instances may be in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) vpc: String,
    /// The subnet of each zone.
    pub(crate) subnets: BTreeMap<String, String>,
    /// The addresses of the network itself.
    pub(crate) blocks: Vec<String>,
}

impl Network {
    /// The subnets that the user named, or those of the default network.
    ///
    /// # Errors
    ///
    /// [`Refusal::Misconfigured`] when there are none that can be used, with what to do.
    pub(crate) async fn find(clients: &Clients, options: &Options) -> Result<Self> {
        let subnets = match options.subnets.as_slice() {
            [] => Self::default_subnets(clients).await?,
            given => {
                let answer = clients.ec2.describe_subnets().set_subnet_ids(Some(given.to_vec())).send().await;
                let answer = answer.map_err(|error| Failure::of("DescribeSubnets", error).into_error());
                answer?.subnets.unwrap_or_default()
            }
        };
        let vpc = one_vpc(&subnets, &clients.region)?;
        let public = match options.addressing {
            Addressing::Private => subnets.clone(),
            Addressing::Public => {
                let tables = clients.ec2.describe_route_tables().filters(filter("vpc-id", [vpc.as_str()])).send();
                let tables = called("DescribeRouteTables", tables.await)?.route_tables.unwrap_or_default();
                subnets.iter().filter(|subnet| is_public(subnet, &tables)).cloned().collect()
            }
        };
        if public.is_empty() {
            let named: Vec<&str> = subnets.iter().filter_map(Ec2Subnet::subnet_id).collect();
            let message = format!("no subnet of {vpc} has a route to the internet: {}", named.join(", "));
            return Err(Error::refused(Refusal::Misconfigured, message).with_hint(
                "give a subnet whose route table has an internet gateway, `.subnets([…])`; or reach the instances by their private addresses, `.addressing(Addressing::Private)`",
            ));
        }
        let described = clients.ec2.describe_vpcs().vpc_ids(&vpc).send().await;
        let described = called("DescribeVpcs", described)?.vpcs.unwrap_or_default();
        let blocks = described.iter().flat_map(|vpc| {
            let more = vpc.cidr_block_association_set().iter().filter_map(|block| block.cidr_block());
            vpc.cidr_block().into_iter().chain(more)
        });
        let mut blocks: Vec<String> = blocks.map(str::to_owned).collect();
        blocks.sort();
        blocks.dedup();
        Ok(Self { vpc, subnets: by_zone(&public, &options.subnets), blocks })
    }

    async fn default_subnets(clients: &Clients) -> Result<Vec<Ec2Subnet>> {
        let vpcs = clients.ec2.describe_vpcs().filters(filter("is-default", ["true"])).send().await;
        let vpcs = called("DescribeVpcs", vpcs)?.vpcs.unwrap_or_default();
        let none = |what: &str| {
            let message = format!("account {} has no default {what} in {}", clients.account, clients.region);
            Error::refused(Refusal::Misconfigured, message)
                .with_hint(format!("make one: `aws ec2 create-default-{what} --region {}`; or name subnets of another network: `.subnets([\"subnet-…\"])`", clients.region))
        };
        let vpc = vpcs.first().and_then(|vpc| vpc.vpc_id()).ok_or_else(|| none("vpc"))?;
        let subnets = clients.ec2.describe_subnets().filters(filter("vpc-id", [vpc])).send().await;
        let subnets = called("DescribeSubnets", subnets)?.subnets.unwrap_or_default();
        if subnets.is_empty() { Err(none("subnet")) } else { Ok(subnets) }
    }
}

/// The security group of a pool: SSH from the client alone, and everything among its machines.
///
/// May be called again: an existing group is found.
///
/// # Errors
///
/// [`ErrorKind::Provider`].
pub(crate) async fn make_group(
    clients: &Clients,
    network: &Network,
    pool: &PoolId,
    tags: &Tags,
    port: u16,
    from: &[IpNet],
) -> Result<String> {
    let name = group_name(pool);
    let made = clients
        .ec2
        .create_security_group()
        .group_name(&name)
        .description(format!("Machines of the pool {pool}"))
        .vpc_id(&network.vpc)
        .tag_specifications(tags::specification(ResourceType::SecurityGroup, tags))
        .send()
        .await;
    let group = match made {
        Ok(made) => made.group_id.unwrap_or_default(),
        Err(error) => match Failure::of("CreateSecurityGroup", error) {
            failure if failure.class == Class::Duplicate => {
                let missing = || {
                    Error::new(
                        ErrorKind::Provider,
                        format!("the security group {name} exists, and EC2 does not list it yet"),
                    )
                    .temporary()
                };
                find_groups(clients, pool).await?.into_iter().next().ok_or_else(missing)?
            }
            failure => return Err(failure.into_error()),
        },
    };
    let among = IpPermission::builder()
        .ip_protocol("-1")
        .user_id_group_pairs(UserIdGroupPair::builder().group_id(&group).build())
        .build();
    // One call for each rule: one of them may exist without the other.
    for permission in [among, ssh(port, from)] {
        let allowed = clients.ec2.authorize_security_group_ingress().group_id(&group).ip_permissions(permission).send();
        if let Err(error) = allowed.await {
            let failure = Failure::of("AuthorizeSecurityGroupIngress", error);
            // Parts of EC2 may not know yet a group that was made a moment ago.
            match failure.class {
                Class::Duplicate => {}
                Class::NotFound => return Err(failure.into_error().temporary()),
                _ => return Err(failure.into_error()),
            }
        }
    }
    Ok(group)
}

/// The security groups of a pool.
///
/// # Errors
///
/// [`ErrorKind::Provider`].
pub(crate) async fn find_groups(clients: &Clients, pool: &PoolId) -> Result<Vec<String>> {
    let found = clients.ec2.describe_security_groups().filters(tags::of_pool(pool)).send().await;
    let found = called("DescribeSecurityGroups", found)?.security_groups.unwrap_or_default();
    Ok(found.into_iter().filter_map(|group| group.group_id).collect())
}

fn ssh(port: u16, from: &[IpNet]) -> IpPermission {
    let (v6, v4): (Vec<&IpNet>, Vec<&IpNet>) = from.iter().partition(|from| matches!(from, IpNet::V6(_)));
    let v4 = v4.into_iter().map(|from| IpRange::builder().cidr_ip(from.to_string()).description(SSH).build());
    let v6 = v6.into_iter().map(|from| Ipv6Range::builder().cidr_ipv6(from.to_string()).description(SSH).build());
    let (v4, v6): (Vec<_>, Vec<_>) = (v4.collect(), v6.collect());
    IpPermission::builder()
        .ip_protocol("tcp")
        .from_port(port.into())
        .to_port(port.into())
        .set_ip_ranges((!v4.is_empty()).then_some(v4))
        .set_ipv6_ranges((!v6.is_empty()).then_some(v6))
        .build()
}

/// A pool's name has letters, digits and `-`.
fn group_name(pool: &PoolId) -> String {
    format!("skyward-{pool}")
}

fn one_vpc(subnets: &[Ec2Subnet], region: &str) -> Result<String> {
    let mut vpcs: Vec<&str> = subnets.iter().filter_map(Ec2Subnet::vpc_id).collect();
    vpcs.sort_unstable();
    vpcs.dedup();
    match vpcs.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(Error::refused(Refusal::Misconfigured, format!("none of the subnets is in {region}"))
            .with_hint("name subnets of this region, `.subnets([…])`, or another region, `.region(\"…\")`")),
        several => Err(Error::refused(
            Refusal::Misconfigured,
            format!("the subnets are in several networks: {}", several.join(", ")),
        )
        .with_hint("machines of one pool must be in one network: name subnets of one network")),
    }
}

/// Whether a subnet's own route table, or the network's main one, leads to an internet gateway.
fn is_public(subnet: &Ec2Subnet, tables: &[RouteTable]) -> bool {
    let of = |table: &&RouteTable| {
        table
            .associations()
            .iter()
            .any(|association| association.subnet_id().is_some() && association.subnet_id() == subnet.subnet_id())
    };
    let main = |table: &&RouteTable| {
        table.vpc_id() == subnet.vpc_id()
            && table.associations().iter().any(|association| association.main() == Some(true))
    };
    let table = tables.iter().find(of).or_else(|| tables.iter().find(main));
    table.is_some_and(|table| {
        table.routes().iter().any(|route| {
            route.destination_cidr_block() == Some("0.0.0.0/0")
                && route.gateway_id().is_some_and(|gateway| gateway.starts_with("igw-"))
        })
    })
}

/// One subnet for each zone: the first one that the user named, or else the one with the most free
/// addresses.
fn by_zone(subnets: &[Ec2Subnet], given: &[String]) -> BTreeMap<String, String> {
    let mut sorted: Vec<&Ec2Subnet> = subnets.iter().collect();
    let place = |subnet: &Ec2Subnet| given.iter().position(|id| subnet.subnet_id() == Some(id.as_str()));
    sorted.sort_by_key(|subnet| (place(subnet), std::cmp::Reverse(subnet.available_ip_address_count())));
    let mut zones = BTreeMap::new();
    for subnet in sorted {
        if let (Some(zone), Some(id)) = (subnet.availability_zone(), subnet.subnet_id()) {
            zones.entry(zone.to_owned()).or_insert_with(|| id.to_owned());
        }
    }
    zones
}

/// The description of a rule in the console.
const SSH: &str = "SSH from the client of the pool";

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{Route, RouteTableAssociation};

    use super::*;
    use crate::options;

    fn subnet(id: &str, zone: &str, free: i32) -> Ec2Subnet {
        Ec2Subnet::builder()
            .subnet_id(id)
            .vpc_id("vpc-1")
            .availability_zone(zone)
            .available_ip_address_count(free)
            .build()
    }

    fn table(association: RouteTableAssociation, gateway: &str) -> RouteTable {
        let route = Route::builder().destination_cidr_block("0.0.0.0/0").gateway_id(gateway).build();
        RouteTable::builder().vpc_id("vpc-1").associations(association).routes(route).build()
    }

    #[test]
    fn a_subnet_is_public_by_its_own_table_and_without_one_by_the_main_one() {
        let main = |gateway| table(RouteTableAssociation::builder().main(true).build(), gateway);
        let own = |gateway| table(RouteTableAssociation::builder().subnet_id("subnet-a").build(), gateway);
        let a = subnet("subnet-a", "z", 1);
        assert!(is_public(&a, &[main("igw-1")]));
        assert!(!is_public(&a, &[main("igw-1"), own("nat-1")]));
        assert!(is_public(&a, &[main("nat-1"), own("igw-1")]));
        assert!(!is_public(&a, &[main("local")]));
        assert!(!is_public(&a, &[]));
    }

    #[test]
    fn each_zone_has_the_subnet_that_was_named_first_or_has_most_room() {
        let subnets = [subnet("subnet-a", "z1", 5), subnet("subnet-b", "z1", 50), subnet("subnet-c", "z2", 0)];
        let zones = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|id| (*id).to_owned()).collect();
            by_zone(&subnets, &given).into_values().collect::<Vec<_>>()
        };
        assert_eq!(zones(&[]), ["subnet-b", "subnet-c"]);
        assert_eq!(zones(&["subnet-a", "subnet-b", "subnet-c"]), ["subnet-a", "subnet-c"]);
    }

    #[test]
    fn ssh_is_open_to_those_that_were_named_alone() {
        let rule = ssh(2222, &["203.0.113.7", "2001:db8::/48"].map(|from| options::network(from).unwrap()));
        assert_eq!(rule.from_port(), Some(2222));
        assert_eq!(rule.to_port(), Some(2222));
        assert_eq!(rule.ip_protocol(), Some("tcp"));
        assert_eq!(rule.ip_ranges()[0].cidr_ip(), Some("203.0.113.7/32"));
        assert_eq!(rule.ipv6_ranges()[0].cidr_ipv6(), Some("2001:db8::/48"));
        assert!(one_vpc(&[], "eu-west-1").unwrap_err().hint().is_some());
    }
}
