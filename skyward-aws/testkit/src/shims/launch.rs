//! RunInstances: client tokens and capacity.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use super::instances::state;
use super::{Backend, Original, capacity, placement};
use crate::phases::Phase;
use crate::proxy::{Call, Reply};
use crate::records::{Market, Record};
use crate::xml::Element;

/// The instances that were launched.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    tokens: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<Launch>>>>>,
    zones: tokio::sync::Mutex<HashMap<String, String>>,
    /// Held by one launch at a time, so that two launches never count the same room, and no call
    /// sees an instance before its record is complete.
    room: tokio::sync::RwLock<()>,
}

impl Launches {
    /// Waits for the running launch, and keeps others from beginning.
    pub(crate) async fn settled(&self) -> tokio::sync::RwLockReadGuard<'_, ()> {
        self.room.read().await
    }

    /// Waits for all calls that look at instances, and keeps others from beginning.
    pub(crate) async fn alone(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.room.write().await
    }
}

/// A launch that has succeeded, by its client token.
#[derive(Debug)]
struct Launch {
    parameters: BTreeMap<String, String>,
    reply: Reply,
}

/// AWS documents: a client token makes RunInstances idempotent. A second call with the token
/// returns the same instances, and one with other parameters fails. moto stores the token, and
/// launches again.
pub(crate) async fn run(backend: &Arc<Backend>, call: &Call, original: Original) -> Result<Reply> {
    let token = call.get("ClientToken");
    if token.is_empty() || call.is_dry_run() {
        return fit(backend, call, original).await;
    }
    let slot = {
        let mut tokens = backend.launches.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tokens.entry(token.to_owned()).or_default())
    };
    // A call with the same token at the same time waits for the first one.
    let mut slot = slot.lock().await;
    if let Some(launch) = &*slot {
        if launch.parameters == call.parameters {
            return Ok(launch.reply.clone());
        }
        let message =
            "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).";
        return Ok(Reply::error(call, 400, "IdempotentParameterMismatch", message));
    }
    let reply = fit(backend, call, original).await?;
    if reply.is_success() {
        *slot = Some(Launch { parameters: call.parameters.clone(), reply: reply.clone() });
    }
    Ok(reply)
}

/// AWS documents: RunInstances launches as many instances as have room, at most MaxCount, and none
/// if there is room for fewer than MinCount. moto launches MinCount, and has unlimited capacity.
async fn fit(backend: &Arc<Backend>, call: &Call, original: Original) -> Result<Reply> {
    if call.is_dry_run() {
        let reply = backend.forward(original).await?;
        return Ok(unknown_profile(call, &reply).unwrap_or(reply));
    }
    let count = |name| call.get(name).parse::<u32>().unwrap_or(1);
    let (least, most) = (count("MinCount"), count("MaxCount"));
    if least == 0 || least > most {
        let message =
            format!("Value ({least}) for parameter minCount is invalid. It must be between 1 and maxCount ({most}).");
        return Ok(Reply::error(call, 400, "InvalidParameterValue", &message));
    }
    let market = match call.get("InstanceMarketOptions.MarketType") {
        "spot" => Market::Spot,
        _ => Market::OnDemand,
    };
    let kind = call.get("InstanceType");
    let zone = zone(backend, call).await?;
    let _room = backend.launches.alone().await;
    if let Some(refusal) = placement::missing(backend, call) {
        return Ok(refusal);
    }
    let reserved = match capacity::targeted(backend, call, kind, &zone) {
        Ok(reserved) => reserved,
        Err(refusal) => return Ok(*refusal),
    };
    let limit = backend.settings().capacity.get(&(kind.to_owned(), zone.clone(), market)).copied();
    let free = match &reserved {
        Some((_, free)) => *free,
        None => limit.map_or(most, |limit| limit.saturating_sub(backend.records.alive(kind, &zone, market))),
    };
    let launched = most.min(free);
    if launched < least && reserved.is_some() {
        return Ok(capacity::exceeded(call));
    }
    if launched < least {
        return Ok(Reply::error(call, 500, "InsufficientInstanceCapacity", &no_capacity(kind, &zone, market)));
    }
    let reply = backend.forward_with(original, &[(COUNT, launched.to_string())]).await?;
    if !reply.is_success() {
        return Ok(unknown_profile(call, &reply).unwrap_or(reply));
    }
    let phases = backend.settings().phases;
    let launched_at = backend.records.clock.now();
    let reply = reply.edit(|root| {
        let Some(set) = root.child_mut("instancesSet") else { return };
        for instance in &mut set.children {
            let (instance_type, zone) = (kind.to_owned(), zone.clone());
            let reservation = reserved.as_ref().map(|(reservation, _)| reservation.id.clone());
            let placement_group = Some(call.get("Placement.GroupName").to_owned()).filter(|name| !name.is_empty());
            let record = Record {
                instance_type,
                zone,
                market,
                reservation,
                placement_group,
                launched: launched_at,
                phases,
                end: None,
                reason: None,
                is_protected: false,
            };
            backend.records.add(instance.at(&["instanceId"]), record);
            if let Some(state) = state("instanceState", Phase::Pending) {
                instance.put(state);
            }
            hide_public(instance);
        }
    })?;
    let own = Arc::clone(backend);
    tokio::spawn(async move {
        // The hypervisor boots what runs.
        own.records.clock.until(launched_at + phases.pending).await;
        own.changed.notify_one();
    });
    Ok(reply)
}

/// EC2 names the parameter with the missing instance profile. moto returns IAM's own error.
fn unknown_profile(call: &Call, reply: &Reply) -> Option<Reply> {
    let is_unknown = String::from_utf8_lossy(&reply.body).contains("<Code>NoSuchEntity</Code>");
    let given = [("name", "Name", "name"), ("arn", "Arn", "ARN")].into_iter().filter(|_| is_unknown);
    let mut given =
        given.map(|(parameter, field, word)| (parameter, call.get(&format!("IamInstanceProfile.{field}")), word));
    let (parameter, value, word) = given.find(|(_, value, _)| !value.is_empty())?;
    let message = format!(
        "Value ({value}) for parameter iamInstanceProfile.{parameter} is invalid. Invalid IAM Instance Profile {word}"
    );
    Some(Reply::error(call, 400, "InvalidParameterValue", &message))
}

/// AWS documents: an instance has a public address once it runs. moto returns it with the launch.
pub(crate) fn hide_public(instance: &mut Element) {
    instance.take("ipAddress");
    instance.put(Element::new("dnsName"));
    let interfaces = instance.child_mut("networkInterfaceSet").into_iter().flat_map(|set| &mut set.children);
    interfaces.for_each(dissociate);
}

/// Removes the public addresses of an interface.
pub(crate) fn dissociate(interface: &mut Element) {
    interface.take("association");
    for address in interface.child_mut("privateIpAddressesSet").into_iter().flat_map(|set| &mut set.children) {
        address.take("association");
    }
}

/// The zone of the subnet, or the zone that the call names.
async fn zone(backend: &Backend, call: &Call) -> Result<String> {
    let subnet = [call.get("SubnetId"), call.get("NetworkInterface.1.SubnetId")];
    let Some(subnet) = subnet.into_iter().find(|subnet| !subnet.is_empty()) else {
        let zone = call.get("Placement.AvailabilityZone");
        // moto takes the first zone if the call names none.
        return Ok(if zone.is_empty() { format!("{}a", backend.region) } else { zone.to_owned() });
    };
    let mut zones = backend.launches.zones.lock().await;
    if !zones.contains_key(subnet) {
        let root = backend.ask("ec2", "DescribeSubnets", &[]).await?;
        for one in root.items("subnetSet") {
            zones.insert(one.at(&["subnetId"]).to_owned(), one.at(&["availabilityZone"]).to_owned());
        }
    }
    // moto refuses an unknown subnet.
    Ok(zones.get(subnet).cloned().unwrap_or_default())
}

fn no_capacity(kind: &str, zone: &str, market: Market) -> String {
    match market {
        Market::OnDemand => format!(
            "We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone}). \
             Our system will be working on provisioning additional capacity."
        ),
        Market::Spot => "There is no Spot capacity available that matches your request.".to_owned(),
    }
}

/// The header with the number of instances that moto launches.
const COUNT: &str = "x-testkit-count";
