//! Calls about existing instances: the phases of a launch, the reasons of an end, the console.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Backend, Original, launch, pages};
use crate::proxy::{Call, Reply};
use crate::records::Record;
use crate::xml::Element;

/// AWS documents: a launched instance may not be found at first; then it is pending and has no
/// public address; then it runs. EC2 lists a terminated instance for about an hour, without
/// addresses and with the reason of its end. In moto an instance runs at once and keeps its
/// addresses, and the reason is always the user.
pub(crate) async fn describe(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    let _settled = backend.launches.settled().await;
    let is_first_page = call.get("NextToken").is_empty();
    let seen = |id: &str| if is_first_page { backend.records.describe(id) } else { backend.records.get(id) };
    let named = call.list("InstanceId");
    let hidden = |id: &&str| backend.records.get(id).is_some_and(|record| record.phases.hidden > 0);
    if let Some(missing) = named.iter().copied().find(|id| hidden(id)) {
        for id in &named {
            seen(id);
        }
        return Ok(not_found(call, missing));
    }
    let reply = backend.forward_with(original, &[(STATES, "1".to_owned())]).await?;
    if !reply.is_success() {
        return Ok(reply);
    }
    let mut root = reply.parse()?;
    if let Some(reservations) = root.child_mut("reservationSet") {
        for reservation in &mut reservations.children {
            let Some(set) = reservation.child_mut("instancesSet") else { continue };
            set.children.retain_mut(|instance| {
                let record = seen(instance.at(&["instanceId"]));
                let is_listed = record.as_ref().is_none_or(|record| record.phases.hidden == 0);
                show(instance, record.as_ref());
                is_listed && has_asked_state(call, instance)
            });
        }
        reservations.children.retain(|reservation| reservation.items("instancesSet").next().is_some());
    }
    let most = backend.settings().page.unwrap_or(INSTANCES);
    let weight = |reservation: &Element| reservation.items("instancesSet").count();
    let refusal = pages::cut(&mut root, "reservationSet", most, call, weight);
    Ok(refusal.unwrap_or_else(|| reply.with_body(root.to_string())))
}

/// The same for DescribeInstanceStatus, which lists running instances, and others only on request.
pub(crate) async fn status(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    let phases = |id: &str| backend.records.get(id).map(|record| record.phases).unwrap_or_default();
    if let Some(missing) = call.list("InstanceId").into_iter().find(|id| phases(id).hidden > 0) {
        return Ok(not_found(call, missing));
    }
    let reply = backend.forward(original).await?;
    if !reply.is_success() {
        return Ok(reply);
    }
    let wants_all = call.get("IncludeAllInstances") == "true";
    reply.edit(|root| {
        let Some(set) = root.child_mut("instanceStatusSet") else { return };
        set.children.retain_mut(|status| {
            let phases = phases(status.at(&["instanceId"]));
            if phases.pending > 0 {
                status.put(state("instanceState", 0, "pending"));
            }
            phases.hidden == 0 && (wants_all || phases.pending == 0)
        });
    })
}

/// TerminateInstances and similar calls. The hypervisor looks for changes at once.
pub(crate) async fn change(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    let _settled = backend.launches.settled().await;
    let ids = call.list("InstanceId");
    let is_end = call.action == "TerminateInstances" && !call.is_dry_run();
    if is_end && let Some(refusal) = protected(backend, call, &ids).await? {
        return Ok(refusal);
    }
    let reply = backend.forward(original).await?;
    if reply.is_success() && !call.is_dry_run() {
        if is_end {
            ids.into_iter().for_each(|id| backend.records.end(id, None));
            backend.terminated.notify_one();
        }
        backend.changed.notify_one();
    }
    Ok(reply)
}

/// AWS documents: TerminateInstances fails if one of its instances is protected. The other
/// instances in that zone stay, and those in zones without a protected one end all the same. moto
/// ends those that the call names before it.
async fn protected(backend: &Backend, call: &Call, ids: &[&str]) -> Result<Option<Reply>> {
    let records: Vec<(&str, Record)> = ids.iter().filter_map(|id| Some((*id, backend.records.get(id)?))).collect();
    let kept: Vec<&(&str, Record)> =
        records.iter().filter(|(_, record)| record.is_protected && !record.is_over).collect();
    let Some((first, _)) = kept.first() else { return Ok(None) };
    let ends = |record: &Record| kept.iter().all(|(_, kept)| kept.zone != record.zone);
    for (id, _) in records.iter().filter(|(_, record)| ends(record)) {
        backend.records.end(id, None);
        backend.ask("ec2", "TerminateInstances", &[("InstanceId.1", id)]).await?;
    }
    backend.terminated.notify_one();
    let message = format!(
        "The instance '{first}' may not be terminated. Modify its 'disableApiTermination' instance attribute and try \
         again."
    );
    Ok(Some(Reply::error(call, 400, "OperationNotPermitted", &message)))
}

/// AWS documents: returns the output of the serial console, in base64. moto returns the same text
/// for all instances.
pub(crate) async fn console(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    let reply = backend.forward(original).await?;
    let id = call.get("InstanceId");
    let Some(output) = backend.consoles.read(id).filter(|_| reply.is_success()) else { return Ok(reply) };
    let output = Element::leaf("output", STANDARD.encode(output));
    let time = Element::leaf("timestamp", super::prices::now());
    Ok(Reply::xml(&Element::answer("GetConsoleOutput").with([Element::leaf("instanceId", id), time, output])))
}

/// Attributes that moto does not have.
fn show(instance: &mut Element, record: Option<&Record>) {
    let Some(record) = record else { return };
    let is_terminated = instance.at(&["instanceState", "name"]) == "terminated";
    if record.phases.pending > 0 && !is_terminated {
        instance.put(state("instanceState", 0, "pending"));
        hide_addresses(instance);
    }
    if is_terminated {
        if record.phases.ending > 0 {
            instance.put(state("instanceState", 32, "shutting-down"));
        } else {
            hide_addresses(instance);
        }
    }
    if instance.at(&["stateReason", "code"]).is_empty() {
        instance.take("stateReason");
    }
    let has_ended = !["pending", "running"].contains(&instance.at(&["instanceState", "name"]));
    if let Some((code, message)) = record.reason.as_ref().filter(|_| has_ended) {
        let words = [Element::leaf("code", code), Element::leaf("message", message)];
        instance.put(Element::new("stateReason").with(words));
        let is_user = code.starts_with("Client.");
        instance.put(Element::leaf("reason", if is_user { "User initiated" } else { code }));
    }
}

fn hide_addresses(instance: &mut Element) {
    launch::hide_public(instance);
    instance.take("privateIpAddress");
    instance.put(Element::new("privateDnsName"));
    instance.put(Element::new("networkInterfaceSet"));
}

/// Filters by state, which moto leaves to this shim.
fn has_asked_state(call: &Call, instance: &Element) -> bool {
    call.filters().into_iter().all(|(name, values)| match name {
        "instance-state-name" => values.contains(&instance.at(&["instanceState", "name"])),
        "instance-state-code" => values.contains(&instance.at(&["instanceState", "code"])),
        _ => true,
    })
}

fn state(name: &str, code: u8, word: &str) -> Element {
    Element::new(name).with([Element::leaf("code", code.to_string()), Element::leaf("name", word)])
}

fn not_found(call: &Call, id: &str) -> Reply {
    Reply::error(call, 400, "InvalidInstanceID.NotFound", &format!("The instance ID '{id}' does not exist"))
}

/// The header that makes moto return all states.
const STATES: &str = "x-testkit-all-states";
/// The largest page of EC2.
const INSTANCES: usize = 1000;
