//! What nodes on one host must not share: addresses and accelerators.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

use sha2::{Digest, Sha256};

use super::ACCELERATORS_TAKEN;
use crate::error::{Error, ErrorKind, Result};
use crate::provider::{LaunchRequest, Machine};

/// An address of the loopback network that no machine of this user has. The machines of a pool
/// share a block of 254 addresses where they are free.
pub(super) fn free_address(request: &LaunchRequest, others: &[Machine]) -> Result<Ipv4Addr> {
    let address = |machine: &Machine| machine.facts.get(ADDRESS)?.parse::<Ipv4Addr>().ok();
    let taken: BTreeSet<_> = others.iter().filter_map(address).collect();
    let foreign: BTreeSet<_> = others
        .iter()
        .filter(|machine| machine.pool != request.pool)
        .filter_map(address)
        .map(|address| address.octets()[..3].to_vec())
        .collect();
    let digest = Sha256::digest(request.pool.as_str());
    let block = u32::from(digest[0]) << 8 | u32::from(digest[1]);
    let (steps, host) = (request.number.0 / HOSTS, request.number.0 % HOSTS + 1);
    (0..BLOCKS)
        .map(|tries| {
            let block = (1 << 8) + (block + steps * STRIDE + tries) % BLOCKS;
            Ipv4Addr::from(127 << 24 | block << 8 | host)
        })
        .filter(|address| !taken.contains(address) && !foreign.contains(&address.octets()[..3]))
        .find(|address| TcpListener::bind((*address, 0)).is_ok())
        .ok_or_else(|| {
            Error::new(ErrorKind::Provider, "this host has no free loopback address for the machine")
                .with_context("machine", request.number)
                .with_hint("the local provider needs 127.0.0.0/8 on the interface `lo`: `ip addr show lo`")
        })
}

/// Accelerators that no other node on this host has.
pub(super) fn free_devices(
    request: &LaunchRequest,
    wanted: u32,
    devices: &[String],
    others: &[Machine],
) -> Result<String> {
    let taken: BTreeSet<&str> =
        others.iter().filter_map(|machine| machine.facts.get(DEVICES)).flat_map(|devices| devices.split(',')).collect();
    let free: Vec<_> = devices.iter().map(String::as_str).filter(|device| !taken.contains(device)).collect();
    match free.get(..wanted as usize) {
        Some(given) => Ok(given.join(",")),
        None => {
            let (number, has, left) = (request.number, devices.len(), free.len());
            let message =
                format!("machine {number} needs {wanted} accelerators; this host has {has}, of which {left} are free");
            let error = Error::new(ErrorKind::Provider, message);
            if wanted as usize > has {
                return Err(error.with_hint("ask for fewer accelerators on each node"));
            }
            let holders = others.iter().filter(|machine| machine.facts.contains_key(DEVICES));
            let names: Vec<&str> = holders.map(|machine| machine.id.as_str()).collect();
            Err(error.with_context("held by", names.join(", ")).with_hint(ACCELERATORS_TAKEN))
        }
    }
}

/// The fact with a machine's address.
pub(super) const ADDRESS: &str = "address";
/// The fact with a node's accelerators, and the variable that shows them to its processes.
pub(super) const DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// 127.1.0.0 to 127.254.255.0.
const BLOCKS: u32 = 254 << 8;
const HOSTS: u32 = 254;
/// The distance to the block of the next 254 nodes of a large pool. It has no factor in common with
/// the number of blocks.
const STRIDE: u32 = 4099;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::{Attempt, LaunchId, MachineId, MachineNumber, OfferId, PoolId};
    use crate::provider::Facts;

    fn request(pool: &str, number: u32) -> LaunchRequest {
        let (pool, number) = (PoolId::new(pool), MachineNumber(number));
        LaunchRequest::new(LaunchId::of(&pool, number, Attempt(1)), pool, number, Duration::ZERO)
    }

    fn machine(request: &LaunchRequest, address: Ipv4Addr) -> Machine {
        let (id, offer) = (MachineId::new("m"), OfferId::new("host"));
        let (launch, pool, number) = (request.launch.clone(), request.pool.clone(), request.number);
        let facts = Facts::from([(ADDRESS.to_owned(), address.to_string())]);
        Machine { id, launch, pool, number, offer, facts }
    }

    #[test]
    fn addresses_are_stable_and_neighbours_within_a_pool() {
        let [a, b, again] = [0, 1, 0].map(|node| free_address(&request("p-a", node), &[]).unwrap());
        assert_eq!(a, again);
        assert_eq!(a.octets()[3], 1);
        assert_eq!(b.octets()[3], 2);
        assert_eq!(a.octets()[..3], b.octets()[..3]);
    }

    #[test]
    fn a_block_of_another_pool_is_not_used() {
        let first = free_address(&request("p-a", 0), &[]).unwrap();
        let other = machine(&request("p-b", 9), Ipv4Addr::from(u32::from(first) + 8));
        let moved = free_address(&request("p-a", 0), std::slice::from_ref(&other)).unwrap();
        assert_ne!(moved.octets()[..3], first.octets()[..3]);
    }

    #[test]
    fn a_thousand_nodes_have_a_thousand_addresses() {
        let mut machines = Vec::new();
        for node in 0..1000 {
            let request = request("p-a", node);
            let address = free_address(&request, &machines).unwrap();
            assert!(address.is_loopback());
            machines.push(machine(&request, address));
        }
        let addresses: BTreeSet<_> = machines.iter().map(|machine| &machine.facts[ADDRESS]).collect();
        assert_eq!(addresses.len(), 1000);
    }

    #[test]
    fn accelerators_are_given_once() {
        let devices = ["0", "1", "2"].map(str::to_owned);
        let mut first = machine(&request("p-a", 0), Ipv4Addr::LOCALHOST);
        first.facts.insert(DEVICES.into(), free_devices(&request("p-a", 0), 2, &devices, &[]).unwrap());
        assert_eq!(first.facts[DEVICES], "0,1");
        let others = [first];
        assert_eq!(free_devices(&request("p-a", 1), 1, &devices, &others).unwrap(), "2");
        let error = free_devices(&request("p-b", 0), 2, &devices, &others).unwrap_err();
        assert_eq!(error.message(), "machine 0 needs 2 accelerators; this host has 3, of which 1 are free");
        assert_eq!(error.context(), [("held by", others[0].id.to_string())]);
        let error = free_devices(&request("p-b", 0), 4, &devices, &[]).unwrap_err();
        assert_eq!(error.hint(), Some("ask for fewer accelerators on each node"));
    }
}
