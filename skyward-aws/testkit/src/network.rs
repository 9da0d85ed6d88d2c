//! Networks for clouds: addresses of this machine that no other cloud has, and a VPC of EC2 on
//! them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;

use anyhow::{Context as _, Result, bail};
use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{Filter, ResourceType, Tag, TagSpecification};

use crate::firewall::Network;

/// Addresses that no other cloud has while this one lives.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// The second number of the addresses of its VPC.
    number: u8,
    _lock: File,
}

/// A VPC whose subnets reach the internet.
#[derive(Debug, Clone)]
pub(crate) struct Vpc {
    pub(crate) id: String,
    /// Subnets by their zones.
    pub(crate) subnets: BTreeMap<String, String>,
}

impl Addresses {
    /// Takes the first network that no other cloud on this machine has.
    pub(crate) fn take() -> Result<Self> {
        for number in FIRST..FIRST + CLOUDS {
            if let Some(lock) = lock(number)? {
                return Ok(Self { number, _lock: lock });
            }
        }
        bail!("all {CLOUDS} networks are taken by other clouds on this machine")
    }

    /// The addresses of its VPC.
    pub(crate) fn cidr(&self) -> String {
        format!("127.{}.0.0/16", self.number)
    }

    /// The prefix of its public addresses.
    pub(crate) fn public(&self) -> String {
        format!("127.{}", self.number + CLOUDS)
    }

    /// An address that no instance gets.
    pub(crate) fn service(&self) -> Ipv4Addr {
        self.network().service()
    }

    /// Its addresses, as the firewall knows them.
    pub(crate) fn network(&self) -> Network {
        Network { private: self.number, public: self.number + CLOUDS }
    }

    /// The name of its table in the kernel.
    pub(crate) fn table(&self) -> String {
        format!("{TABLE}{}", self.number)
    }

    /// Those of the tables that belong to no cloud which lives, each with a lock that keeps others
    /// from its network.
    pub(crate) fn abandoned_tables(tables: &[String]) -> Vec<(String, File)> {
        let abandoned = tables.iter().filter_map(|table| {
            let number = table.strip_prefix(TABLE)?.parse().ok()?;
            Some((table.clone(), lock(number).ok()??))
        });
        abandoned.collect()
    }

    /// A port that is free on all of its addresses.
    pub(crate) fn free_port(&self) -> Result<u16> {
        free_port(Ipv4Addr::new(127, self.number, 0, 4))
    }
}

/// The lock of a network, which no living cloud has.
fn lock(number: u8) -> Result<Option<File>> {
    let path = std::env::temp_dir().join(format!("skyward-ec2-network-{number}.lock"));
    let lock = OpenOptions::new().create(true).write(true).truncate(false).mode(0o666).open(&path);
    let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
    Ok(lock.try_lock().is_ok().then_some(lock))
}

/// A port that is free on an address of this machine. It is outside of the range from which the
/// system picks ports for listeners and clients, so it stays free on all addresses of the cloud.
pub(crate) fn free_port(address: Ipv4Addr) -> Result<u16> {
    let free = PORTS.into_iter().find(|port| TcpListener::bind((address, *port)).is_ok());
    free.with_context(|| format!("{address} is not an address of this machine, or has no free port in {PORTS:?}"))
}

/// Ports below 32768, where Linux's own range begins.
const PORTS: std::ops::Range<u16> = 22_000..22_100;

/// Makes a VPC with a gateway and a subnet in each zone.
pub(crate) async fn make(client: &Client, addresses: &Addresses, zones: &[String]) -> Result<Vpc> {
    let vpc =
        client.create_vpc().cidr_block(addresses.cidr()).tag_specifications(named(ResourceType::Vpc)).send().await?;
    let id = vpc.vpc().and_then(|vpc| vpc.vpc_id()).context("the VPC has no id")?.to_owned();
    let mut subnets = BTreeMap::new();
    for (number, zone) in zones.iter().enumerate() {
        let cidr = format!("127.{}.{}.0/20", addresses.number, 16 * number);
        let subnet = client.create_subnet().vpc_id(&id).cidr_block(cidr).availability_zone(zone).send().await?;
        let subnet = subnet.subnet().and_then(|subnet| subnet.subnet_id()).context("the subnet has no id")?;
        subnets.insert(zone.clone(), subnet.to_owned());
    }
    let table = open(client, &id).await?;
    // The way out of machines without a public address, whom the gateway does not serve.
    let transit = client.create_transit_gateway().send().await?;
    let transit = transit.transit_gateway().and_then(|gateway| gateway.transit_gateway_id());
    let transit = transit.context("the transit gateway has no id")?;
    let route = client.create_route().route_table_id(table).destination_cidr_block(BEHIND).transit_gateway_id(transit);
    route.send().await?;
    Ok(Vpc { id, subnets })
}

/// Completes the default VPC with what moto leaves out: a gateway, and the route to it.
pub(crate) async fn open_default(client: &Client) -> Result<Vpc> {
    let id = default(client).await?.context("there is no default VPC any more")?;
    let gateways = client.describe_internet_gateways();
    let gateways = gateways.filters(filter("attachment.vpc-id", &id)).send().await?;
    if gateways.internet_gateways().is_empty() {
        open(client, &id).await?;
    }
    let subnets = subnets(client, &id).await?;
    Ok(Vpc { id, subnets })
}

/// Removes the default VPC, as some accounts do.
pub(crate) async fn remove_default(client: &Client) -> Result<()> {
    let Some(id) = default(client).await? else { return Ok(()) };
    for subnet in subnets(client, &id).await?.into_values() {
        client.delete_subnet().subnet_id(subnet).send().await.context("cannot delete a default subnet")?;
    }
    client.delete_vpc().vpc_id(&id).send().await.context("cannot delete the default VPC")?;
    Ok(())
}

async fn default(client: &Client) -> Result<Option<String>> {
    let vpcs = client.describe_vpcs().filters(filter("is-default", "true")).send().await?;
    Ok(vpcs.vpcs().first().and_then(|vpc| vpc.vpc_id()).map(str::to_owned))
}

async fn subnets(client: &Client, vpc: &str) -> Result<BTreeMap<String, String>> {
    let subnets = client.describe_subnets().filters(filter("vpc-id", vpc)).send().await?;
    let pairs = subnets
        .subnets()
        .iter()
        .filter_map(|subnet| Some((subnet.availability_zone()?.to_owned(), subnet.subnet_id()?.to_owned())));
    Ok(pairs.collect())
}

/// A gateway, and the main table's route to it. Returns the table.
async fn open(client: &Client, vpc: &str) -> Result<String> {
    let gateway = client.create_internet_gateway().send().await?;
    let gateway = gateway.internet_gateway().and_then(|gateway| gateway.internet_gateway_id());
    let gateway = gateway.context("the gateway has no id")?;
    client.attach_internet_gateway().internet_gateway_id(gateway).vpc_id(vpc).send().await?;
    let tables = client.describe_route_tables().filters(filter("vpc-id", vpc)).send().await?;
    let table =
        tables.route_tables().first().and_then(|table| table.route_table_id()).context("the VPC has no routes")?;
    let route = client.create_route().route_table_id(table).destination_cidr_block("0.0.0.0/0").gateway_id(gateway);
    route.send().await?;
    Ok(table.to_owned())
}

fn filter(name: &str, value: &str) -> Filter {
    Filter::builder().name(name).values(value).build()
}

fn named(kind: ResourceType) -> TagSpecification {
    let tag = Tag::builder().key("Name").value("loopback").build();
    TagSpecification::builder().resource_type(kind).tags(tag).build()
}

/// The network behind the transit gateway.
const BEHIND: &str = "10.0.0.0/8";
/// The networks of clouds: 127.10 to 127.59, and as many for public addresses from 127.60.
const FIRST: u8 = 10;
const CLOUDS: u8 = 50;
const TABLE: &str = "skyward_ec2_";
