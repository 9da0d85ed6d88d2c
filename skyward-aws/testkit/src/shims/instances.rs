//! Calls about existing instances: the phases of a launch, the reasons of an end, the console.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Backend, Original, launch, pages};
use crate::phases::Phase;
use crate::proxy::{Call, Reply};
use crate::records::Record;
use crate::xml::Element;

/// AWS documents: a launched instance may not be found at first; then it is pending and has no
/// public address; then it runs; after its end it shuts down, and is terminated then. EC2 lists a
/// terminated instance for about an hour, without addresses and with the reason of its end. In moto
/// an instance runs at once and keeps its addresses, and the reason is always the user.
pub(crate) async fn describe(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    let _settled = backend.settled().await;
    let now = backend.records.clock.now();
    let is_hidden = |id: &str| backend.records.get(id).is_some_and(|record| record.is_hidden(now));
    if let Some(missing) = call.list("InstanceId").into_iter().find(|id| is_hidden(id)) {
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
                let id = instance.at(&["instanceId"]).to_owned();
                if let Some(record) = backend.records.get(&id) {
                    show(instance, &record, record.phase(now));
                }
                !is_hidden(&id) && has_asked_state(call, instance)
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
    let _settled = backend.settled().await;
    let now = backend.records.clock.now();
    let is_hidden = |id: &str| backend.records.get(id).is_some_and(|record| record.is_hidden(now));
    if let Some(missing) = call.list("InstanceId").into_iter().find(|id| is_hidden(id)) {
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
            let id = status.at(&["instanceId"]).to_owned();
            let phase = backend.records.get(&id).map_or(Phase::Up, |record| record.phase(now));
            if let Some(state) = state("instanceState", phase) {
                status.put(state);
            }
            !is_hidden(&id) && (wants_all || phase == Phase::Up)
        });
    })
}

/// StopInstances and StartInstances. The hypervisor looks for changes at once.
///
/// AWS documents: an instance that shuts down or is terminated can be neither stopped nor started.
pub(crate) async fn change(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    drop(backend.settled().await);
    let is_over = |id: &str| backend.records.get(id).is_some_and(|record| record.is_over());
    if let Some(over) = call.list("InstanceId").into_iter().find(|id| is_over(id)).filter(|_| !call.is_dry_run()) {
        let message = format!("The instance '{over}' is not in a state from which it can be stopped or started.");
        return Ok(Reply::error(call, 400, "IncorrectInstanceState", &message));
    }
    let reply = backend.forward(original).await?;
    if reply.is_success() && !call.is_dry_run() {
        backend.changed.notify_one();
    }
    Ok(reply)
}

/// AWS documents: returns what was posted of the serial console shortly after the instance started,
/// stopped, rebooted or terminated, in base64; or with `Latest` what it says now. Only types of the
/// Nitro system know `Latest`, which are all that this EC2 offers
/// (<https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html>). moto returns
/// the same text for all instances.
pub(crate) async fn console(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    let reply = backend.forward(original).await?;
    if !reply.is_success() {
        return Ok(reply);
    }
    let id = call.get("InstanceId");
    let consoles = &backend.consoles;
    let output = if call.get("Latest") == "true" { consoles.read(id) } else { consoles.posted(id) };
    let output = output.map(|output| Element::leaf("output", STANDARD.encode(output)));
    let told = [Element::leaf("instanceId", id), Element::leaf("timestamp", super::prices::now())];
    Ok(Reply::xml(&Element::answer("GetConsoleOutput").with(told.into_iter().chain(output))))
}

/// Attributes that moto does not have.
fn show(instance: &mut Element, record: &Record, phase: Phase) {
    if let Some(state) = state("instanceState", phase) {
        instance.put(state);
    }
    match phase {
        Phase::Pending => launch::hide_public(instance),
        Phase::Terminated => hide_addresses(instance),
        Phase::Up | Phase::ShuttingDown => {}
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

/// An element with the state of a phase; none where moto's is right.
pub(crate) fn state(element: &str, phase: Phase) -> Option<Element> {
    let (code, word) = match phase {
        Phase::Pending => ("0", "pending"),
        Phase::Up => return None,
        Phase::ShuttingDown => ("32", "shutting-down"),
        Phase::Terminated => ("48", "terminated"),
    };
    Some(Element::new(element).with([Element::leaf("code", code), Element::leaf("name", word)]))
}

fn not_found(call: &Call, id: &str) -> Reply {
    Reply::error(call, 400, "InvalidInstanceID.NotFound", &format!("The instance ID '{id}' does not exist"))
}

/// The header that makes moto return all states.
const STATES: &str = "x-testkit-all-states";
/// The largest page of EC2.
const INSTANCES: usize = 1000;
