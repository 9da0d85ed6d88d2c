//! What the claims on a host record about machines.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::host::Host;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
use crate::provider::{Facts, Machine, Place, PoolRecord};

/// The id of the machine of a launch on a host. It contains the identity of the host.
pub(super) fn machine_id(launch: &LaunchId, host: &str) -> Result<MachineId> {
    Ok(MachineId::new(format!("{}@{host}", simple(launch.as_str())?)))
}

/// The host that a machine is on: its identity, or in ids of older versions its name.
pub(super) fn host_of(machine: &MachineId) -> Option<&str> {
    machine.as_str().split_once('@').map(|(_, host)| host)
}

/// A name that needs no quoting in a record.
pub(super) fn simple(name: &str) -> Result<&str> {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if plain && !name.is_empty() {
        return Ok(name);
    }
    Err(Error::new(ErrorKind::Provider, format!("`{name}` cannot be the name of a pool or a launch on hosts"))
        .with_hint("names are made of letters, digits, `-`, `_` and `.`"))
}

/// A machine that a script reports.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) machine: Machine,
    pub(super) place: Place,
    /// The rest of its life, if that is limited.
    pub(super) ends_in: Option<Duration>,
}

/// The machines that a script reports.
pub(super) fn machines(text: &str, host: &Host) -> Vec<Told> {
    let mut machines = Vec::new();
    let mut record = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("skyward-")) {
        if line == "end" {
            machines.extend(machine(&record, host));
            record.clear();
        } else if let Some((name, value)) = line.split_once(' ') {
            record.insert(name, value);
        }
    }
    machines
}

/// The pools that a script reports. `unsaid` is the lease of one without a lease in its record.
pub(super) fn pools(text: &str, now: SystemTime, unsaid: Duration) -> Vec<PoolRecord> {
    let mut pools = Vec::new();
    let mut record = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("skyward-")) {
        if line == "end" {
            pools.extend(pool(&record, now, unsaid));
            record.clear();
        } else if let Some((name, value)) = line.split_once(' ') {
            record.insert(name, value);
        }
    }
    pools
}

fn pool(record: &BTreeMap<&str, &str>, now: SystemTime, unsaid: Duration) -> Option<PoolRecord> {
    let text = |name| record.get(name).copied().filter(|value| !value.is_empty());
    let lease = text("lease").and_then(|lease| lease.parse().ok()).map_or(unsaid, Duration::from_millis);
    // Without an age the pool's machine lives.
    let age = text("age").map_or(Some(Duration::ZERO), |age| age.parse().ok().map(Duration::from_secs))?;
    let expires = now.checked_add(lease)?.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    Some(PoolRecord::new(PoolId::new(text("pool")?), expires).owner(text("owner").unwrap_or_default()))
}

/// A text as one line of a record.
pub(super) fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).take(LONGEST).collect::<String>().trim().to_owned()
}

fn machine(record: &BTreeMap<&str, &str>, host: &Host) -> Option<Told> {
    let text = |name| record.get(name).copied().filter(|value| !value.is_empty());
    let place = Place::new(host.address.as_deref().or(text("address"))?, text("folder")?);
    let mut facts = Facts::from([(SLOT.into(), text("slot")?.to_owned())]);
    facts.extend(text("devices").map(|devices| (DEVICES.into(), devices.to_owned())));
    let machine = Machine {
        id: MachineId::new(text("machine")?),
        launch: LaunchId::new(text("launch")?),
        pool: PoolId::new(text("pool")?),
        number: MachineNumber(text("node")?.parse().ok()?),
        offer: OfferId::new(OFFER),
        facts,
    };
    let hundredths = text("remaining").and_then(|left| left.parse::<i64>().ok());
    let ends_in = hundredths.map(|left| Duration::from_millis(u64::try_from(left).unwrap_or(0).saturating_mul(10)));
    Some(Told { machine, place, ends_in })
}

/// The one offer of a list of hosts.
pub(super) const OFFER: &str = "host";
/// The fact with the slot of a machine on its host.
pub(super) const SLOT: &str = "slot";
/// The fact with a node's accelerators, and the variable that shows them to its processes.
pub(super) const DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// The longest text in a record, in characters.
const LONGEST: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_parsed_into_a_machine() {
        let text = "noise\nskyward-machine p-a-n1-a2@gpu1:22\nskyward-launch p-a-n1-a2\nskyward-pool p-a\nskyward-node 1\nskyward-folder /t/m\nskyward-slot 3\nskyward-devices 0,2\nskyward-address 10.0.0.1\nskyward-keeper 7\nskyward-remaining 150\nskyward-end\nskyward-machine cut";
        let found = machines(text, &Host::new("gpu1"));
        let [Told { machine, place, ends_in }] = &found[..] else { panic!("{found:?}") };
        assert_eq!(*ends_in, Some(Duration::from_millis(1500)));
        let over = text.replace("remaining 150", "remaining -3");
        assert_eq!(machines(&over, &Host::new("gpu1"))[0].ends_in, Some(Duration::ZERO));
        let endless = text.replace("skyward-remaining 150\n", "");
        assert_eq!(machines(&endless, &Host::new("gpu1"))[0].ends_in, None);
        assert_eq!(machine.launch.as_str(), "p-a-n1-a2");
        assert_eq!(machine.pool.as_str(), "p-a");
        assert_eq!(machine.number.0, 1);
        assert_eq!(place.folder.as_str(), "/t/m");
        assert_eq!(place.address.as_str(), "10.0.0.1");
        assert!(!place.on_client_host);
        assert_eq!(machine.facts[SLOT].as_str(), "3");
        assert_eq!(machine.facts[DEVICES].as_str(), "0,2");
        assert_eq!(host_of(&machine.id), Some("gpu1:22"));
        assert_eq!(machines(text, &Host::new("gpu1").address("10.9.9.9"))[0].place.address, "10.9.9.9");
    }

    #[test]
    fn pools_are_parsed_with_their_owners_and_the_ends_of_their_leases() {
        let (now, second) = (SystemTime::now(), Duration::from_secs(1));
        let text = "skyward-pool p-a\nskyward-owner ada at a desk\nskyward-lease 60000\nskyward-age \nskyward-end\nskyward-pool p-b\nskyward-owner \nskyward-lease \nskyward-age 100\nskyward-end\nskyward-pool p-c\n";
        let found = pools(text, now, 30 * second);
        let lives = PoolRecord::new(PoolId::new("p-a"), now + 60 * second).owner("ada at a desk");
        assert_eq!(found, [lives, PoolRecord::new(PoolId::new("p-b"), now - 70 * second)]);
        assert_eq!(one_line(" a\nskyward-end\tb "), "a skyward-end b");
    }

    #[test]
    fn names_in_records_need_no_quoting() {
        assert!(simple("p-1f_2.x").is_ok());
        for bad in ["", "a b", "a/b", "$x", "a\nb", "a@b"] {
            simple(bad).unwrap_err();
        }
    }
}
