//! What a host's claims say about machines.

use std::collections::BTreeMap;

use super::host::Host;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::{LaunchId, MachineId, MachineNumber, OfferId, PoolId};
use crate::provider::{Facts, Machine, Place};

/// The id of the machine that a launch has on a host: who has the id knows the host.
pub(super) fn machine_id(launch: &LaunchId, host: &str) -> Result<MachineId> {
    Ok(MachineId::new(format!("{}@{host}", simple(launch.as_str())?)))
}

/// The host that a machine is on.
pub(super) fn host_of(machine: &MachineId) -> Option<&str> {
    machine.as_str().split_once('@').map(|(_, host)| host)
}

/// A word that stands for itself in a record.
pub(super) fn simple(name: &str) -> Result<&str> {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if plain && !name.is_empty() {
        return Ok(name);
    }
    Err(Error::new(ErrorKind::Provider, format!("`{name}` cannot be the name of a pool or a launch on hosts"))
        .with_hint("names are made of letters, digits, `-`, `_` and `.`"))
}

/// The machines that a script tells, and where they are.
pub(super) fn machines(text: &str, host: &Host) -> Vec<(Machine, Place)> {
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

fn machine(record: &BTreeMap<&str, &str>, host: &Host) -> Option<(Machine, Place)> {
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
    Some((machine, place))
}

/// The one offer of hosts that somebody has already.
pub(super) const OFFER: &str = "host";
/// The fact that holds which slot of its host a machine has.
pub(super) const SLOT: &str = "slot";
/// The fact that holds a node's accelerators, and the variable that shows them to its processes.
pub(super) const DEVICES: &str = "CUDA_VISIBLE_DEVICES";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_machine() {
        let text = "noise\nskyward-machine p-a-n1-a2@gpu1:22\nskyward-launch p-a-n1-a2\nskyward-pool p-a\nskyward-node 1\nskyward-folder /t/m\nskyward-slot 3\nskyward-devices 0,2\nskyward-address 10.0.0.1\nskyward-keeper 7\nskyward-end\nskyward-machine cut";
        let found = machines(text, &Host::new("gpu1"));
        let [(machine, place)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((machine.launch.as_str(), machine.pool.as_str(), machine.number.0), ("p-a-n1-a2", "p-a", 1));
        assert_eq!((place.folder.as_str(), place.address.as_str(), place.on_client_host), ("/t/m", "10.0.0.1", false));
        assert_eq!((machine.facts[SLOT].as_str(), machine.facts[DEVICES].as_str()), ("3", "0,2"));
        assert_eq!(host_of(&machine.id), Some("gpu1:22"));
        assert_eq!(machines(text, &Host::new("gpu1").address("10.9.9.9"))[0].1.address, "10.9.9.9");
    }

    #[test]
    fn names_stand_for_themselves() {
        assert!(simple("p-1f_2.x").is_ok());
        for bad in ["", "a b", "a/b", "$x", "a\nb", "a@b"] {
            simple(bad).unwrap_err();
        }
    }
}
