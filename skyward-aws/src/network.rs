//! The network of a pool's instances: its subnets, and the security group of each pool.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::{
    IpPermission, IpRange, Ipv6Range, ResourceType, Route, RouteState, RouteTable, Subnet as Ec2Subnet, UserIdGroupPair,
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
        let subnets = with_ipv4(&vpc, subnets)?;
        let tables = clients.ec2.describe_route_tables().filters(filter("vpc-id", [vpc.as_str()])).send();
        let tables = called("DescribeRouteTables", tables.await)?.route_tables.unwrap_or_default();
        let is_usable = |subnet: &&Ec2Subnet| match options.addressing {
            Addressing::Public => is_public(subnet, &tables),
            Addressing::Private => has_way_out(subnet, &tables),
        };
        let mut usable: Vec<Ec2Subnet> = subnets.iter().filter(is_usable).cloned().collect();
        if usable.is_empty() && options.addressing == Addressing::Private && has_endpoint(clients, &vpc).await? {
            usable.clone_from(&subnets);
        }
        if usable.is_empty() {
            return Err(no_way_out(&vpc, &subnets, options.addressing));
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
        Ok(Self { vpc, subnets: by_zone(&usable, &options.subnets), blocks })
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
    allow(clients, &group, among).await?;
    let_in(clients, &group, port, from).await?;
    Ok(group)
}

/// Lets these networks log in to the machines of a group. May be called again.
///
/// # Errors
///
/// [`ErrorKind::Provider`].
pub(crate) async fn let_in(clients: &Clients, group: &str, port: u16, from: &[IpNet]) -> Result<()> {
    allow(clients, group, ssh(port, from)).await
}

/// Lets a network no longer log in to the machines of a group. May be called again.
///
/// # Errors
///
/// [`ErrorKind::Provider`].
pub(crate) async fn shut_out(clients: &Clients, group: &str, port: u16, from: IpNet) -> Result<()> {
    let rule = ssh(port, &[from]);
    let revoked = clients.ec2.revoke_security_group_ingress().group_id(group).ip_permissions(rule).send().await;
    match revoked.map_err(|error| Failure::of("RevokeSecurityGroupIngress", error)) {
        Err(failure) if failure.class != Class::NotFound => Err(failure.into_error()),
        _ => Ok(()),
    }
}

async fn allow(clients: &Clients, group: &str, permission: IpPermission) -> Result<()> {
    let allowed =
        clients.ec2.authorize_security_group_ingress().group_id(group).ip_permissions(permission).send().await;
    let Err(error) = allowed else { return Ok(()) };
    let failure = Failure::of("AuthorizeSecurityGroupIngress", error);
    match failure.class {
        Class::Duplicate => Ok(()),
        // Parts of EC2 may not know yet a group that was made a moment ago.
        Class::NotFound => Err(failure.into_error().temporary()),
        _ => Err(failure.into_error()),
    }
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

/// The name of the security group that is made for a pool. A pool's name has letters, digits and
/// `-`.
pub(crate) fn group_name(pool: &PoolId) -> String {
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

/// The subnets with IPv4 addresses, by which the client and the machines reach each other.
fn with_ipv4(vpc: &str, subnets: Vec<Ec2Subnet>) -> Result<Vec<Ec2Subnet>> {
    let (without, with): (Vec<_>, Vec<_>) = subnets.into_iter().partition(|subnet| subnet.ipv6_native() == Some(true));
    if with.is_empty() {
        let message = format!("the subnets of {vpc} have IPv6 addresses alone: {}", ids(&without));
        return Err(Error::refused(Refusal::Misconfigured, message)
            .with_hint("name subnets with IPv4 addresses, `.subnets([…])`: the pool reaches machines by IPv4"));
    }
    Ok(with)
}

fn ids(subnets: &[Ec2Subnet]) -> String {
    subnets.iter().filter_map(Ec2Subnet::subnet_id).collect::<Vec<_>>().join(", ")
}

/// The error for a network whose machines could load no packages.
fn no_way_out(vpc: &str, subnets: &[Ec2Subnet], addressing: Addressing) -> Error {
    let named = ids(subnets);
    let (message, hint) = match addressing {
        Addressing::Public => (
            format!("no subnet of {vpc} has a route to the internet: {named}"),
            "give a subnet whose route table has an internet gateway, `.subnets([…])`; or reach the instances by their private addresses, `.addressing(Addressing::Private)`",
        ),
        Addressing::Private => (
            format!(
                "no subnet of {vpc} has a way out of the network for machines without a public address, which load packages: {named}"
            ),
            "add a route to a NAT gateway or a transit gateway, or an endpoint in the network: an internet gateway serves only machines with a public address. Or give the machines one, `.addressing(Addressing::Public)`",
        ),
    };
    Error::refused(Refusal::Misconfigured, message).with_hint(hint)
}

/// Whether the network has an endpoint, by which machines may reach a mirror of packages.
/// Credentials that may not list endpoints do not know, and nothing is refused.
async fn has_endpoint(clients: &Clients, vpc: &str) -> Result<bool> {
    let found = clients.ec2.describe_vpc_endpoints().filters(filter("vpc-id", [vpc])).send().await;
    match found.map_err(|error| Failure::of("DescribeVpcEndpoints", error)) {
        Ok(found) => Ok(!found.vpc_endpoints.unwrap_or_default().is_empty()),
        Err(failure) if failure.class == Class::Denied => Ok(true),
        Err(failure) => Err(failure.into_error()),
    }
}

/// Whether machines without a public address reach anything outside of the network: an internet
/// gateway serves only those with one. See
/// <https://docs.aws.amazon.com/vpc/latest/userguide/route-table-options.html>.
fn has_way_out(subnet: &Ec2Subnet, tables: &[RouteTable]) -> bool {
    let leads_out = |route: &Route| {
        let gateway = route.gateway_id().is_some_and(|id| id != "local" && !id.starts_with("igw-"));
        let others = [
            route.nat_gateway_id(),
            route.transit_gateway_id(),
            route.vpc_peering_connection_id(),
            route.network_interface_id(),
            route.instance_id(),
            route.local_gateway_id(),
            route.carrier_gateway_id(),
            route.core_network_arn(),
        ];
        route.state() != Some(&RouteState::Blackhole) && (gateway || others.iter().any(Option::is_some))
    };
    table_of(subnet, tables).is_some_and(|table| table.routes().iter().any(leads_out))
}

/// Whether a subnet's route table leads to an internet gateway.
fn is_public(subnet: &Ec2Subnet, tables: &[RouteTable]) -> bool {
    table_of(subnet, tables).is_some_and(|table| {
        table.routes().iter().any(|route| {
            route.destination_cidr_block() == Some("0.0.0.0/0")
                && route.gateway_id().is_some_and(|gateway| gateway.starts_with("igw-"))
        })
    })
}

/// A subnet's own route table, or the network's main one.
fn table_of<'a>(subnet: &Ec2Subnet, tables: &'a [RouteTable]) -> Option<&'a RouteTable> {
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
    tables.iter().find(of).or_else(|| tables.iter().find(main))
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
    use aws_sdk_ec2::types::RouteTableAssociation;

    use skyward_core::provider::{Provider, Requirements};

    use super::*;
    use crate::loopback::{Loopback, ec2};
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
    fn machines_without_a_public_address_need_a_route_that_is_not_to_an_internet_gateway() {
        let a = subnet("subnet-a", "z", 1);
        let main = |routes: Vec<Route>| {
            let main = RouteTableAssociation::builder().main(true).build();
            RouteTable::builder().vpc_id("vpc-1").associations(main).set_routes(Some(routes)).build()
        };
        let to = || Route::builder().destination_cidr_block("0.0.0.0/0");
        let inside = [to().gateway_id("local").build(), to().gateway_id("igw-1").build()];
        assert!(!has_way_out(&a, &[]) && !has_way_out(&a, &[main(inside.to_vec())]));
        for route in [
            to().nat_gateway_id("nat-1"),
            to().transit_gateway_id("tgw-1"),
            to().vpc_peering_connection_id("pcx-1"),
            to().network_interface_id("eni-1"),
            to().gateway_id("vgw-1"),
            to().gateway_id("vpce-1"),
        ] {
            let with = |route: Route| has_way_out(&a, &[main(inside.iter().cloned().chain([route]).collect())]);
            assert!(with(route.clone().build()), "{route:?}");
            assert!(!with(route.clone().state(RouteState::Blackhole).build()), "{route:?}");
        }
        let error = no_way_out("vpc-1", &[a], Addressing::Private);
        assert!(error.message().contains("subnet-a") && error.hint().unwrap().contains("NAT gateway"), "{error}");
    }

    #[tokio::test]
    async fn a_network_without_a_way_out_is_refused_before_a_launch_unless_it_has_an_endpoint() {
        let no = (403, ec2::error("UnauthorizedOperation", "You are not authorized."));
        let endpoints = |items: &str| {
            format!(
                "<DescribeVpcEndpointsResponse><vpcEndpointSet>{items}</vpcEndpointSet></DescribeVpcEndpointsResponse>"
            )
        };
        for (answer, is_refused) in [
            ((200, endpoints("")), true),
            ((200, endpoints("<item><vpcEndpointId>vpce-1</vpcEndpointId></item>")), false),
            // Whoever may not list endpoints does not know.
            (no, false),
        ] {
            let service = Loopback::start(move |body| match body.contains("Action=DescribeVpcEndpoints&") {
                true => answer.clone(),
                false => {
                    let (status, text) = ec2::answer(body);
                    (status, text.replace("<natGatewayId>nat-1</natGatewayId>", "<gatewayId>igw-1</gatewayId>"))
                }
            });
            match service.aws().offers(&Requirements::default()).await {
                Ok(offers) => assert!(!is_refused && !offers.is_empty(), "{offers:?}"),
                Err(error) => {
                    assert!(is_refused && error.message().contains("way out"), "{error}");
                    assert_eq!(error.refusal(), Some(&Refusal::Misconfigured));
                }
            }
        }
    }

    #[test]
    fn subnets_without_ipv4_addresses_are_left_out_and_refused_where_there_are_no_others() {
        let new = Ec2Subnet::builder().subnet_id("subnet-6").ipv6_native(true).build();
        let with = with_ipv4("vpc-1", vec![subnet("subnet-a", "z", 1), new.clone()]).unwrap();
        assert_eq!(ids(&with), "subnet-a");
        let error = with_ipv4("vpc-1", vec![new]).unwrap_err();
        assert!(error.message().contains("subnet-6") && error.hint().unwrap().contains("IPv4"), "{error}");
        assert_eq!(error.refusal(), Some(&Refusal::Misconfigured));
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
