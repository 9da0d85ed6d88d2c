//! Capacity reservations and capacity blocks that a test has declared. moto has none.

use anyhow::Result;

use super::{Backend, Original, prices, refused};
use crate::proxy::{Call, Reply};
use crate::reservation::Reservation;
use crate::xml::Element;

/// AWS documents: DescribeCapacityReservations returns the reservations with these ids, and how
/// many instances each has left. An unknown id fails the call.
pub(crate) async fn describe(backend: &Backend, call: &Call, original: Original) -> Result<Reply> {
    if let Some(refusal) = refused(backend, original).await? {
        return Ok(refusal);
    }
    let all = backend.settings().reservations.clone();
    let ids = call.list("CapacityReservationId");
    if let Some(missing) = ids.iter().find(|id| !all.contains_key(**id)) {
        let message = format!("The capacity reservation ID '{missing}' does not exist.");
        return Ok(Reply::error(call, 400, "InvalidCapacityReservationId.NotFound", &message));
    }
    let asked = all.values().filter(|one| ids.is_empty() || ids.contains(&one.id.as_str()));
    let items = asked.map(|one| item(one, free(backend, one)));
    let set = Element::new("capacityReservationSet").with(items);
    Ok(Reply::xml(&Element::answer("DescribeCapacityReservations").with([set])))
}

/// The reservation that a launch names, and its number of instances.
///
/// AWS documents: a launch must match the type, zone and platform of the reservation that it
/// targets, and the market type of a block. It fails with ReservationCapacityExceeded if the
/// reservation has fewer instances left than MinCount. AWS does not document the codes for a
/// mismatch, so they are made up here.
pub(crate) fn targeted(
    backend: &Backend,
    call: &Call,
    kind: &str,
    zone: &str,
) -> Result<Option<(Reservation, u32)>, Box<Reply>> {
    let id = call.get("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId");
    if id.is_empty() {
        return Ok(None);
    }
    let refused = |code: &str, message: String| Box::new(Reply::error(call, 400, code, &message));
    let wrong = |message| refused("InvalidParameterCombination", message);
    let Some(found) = backend.settings().reservations.get(id).cloned() else {
        let message = format!("The capacity reservation ID '{id}' does not exist.");
        return Err(refused("InvalidCapacityReservationId.NotFound", message));
    };
    if found.state != "active" {
        return Err(wrong(format!("The capacity reservation '{id}' is {}.", found.state)));
    }
    if (found.instance_type.as_str(), found.zone.as_str()) != (kind, zone) {
        let message = format!("'{id}' reserves {} in {}, not {kind} in {zone}.", found.instance_type, found.zone);
        return Err(wrong(message));
    }
    let market = call.get("InstanceMarketOptions.MarketType");
    if market != if found.is_block { "capacity-block" } else { "" } {
        return Err(wrong(format!("The market type '{market}' does not match the reservation '{id}'.")));
    }
    let free = free(backend, &found);
    Ok(Some((found, free)))
}

/// EC2's error for a launch when too few instances are left.
pub(crate) fn exceeded(call: &Call) -> Reply {
    let message = "The targeted Capacity Reservation does not have enough available instance capacity to fulfill your \
                   request. Either increase the instance capacity of the targeted Capacity Reservation or target a \
                   different Capacity Reservation.";
    Reply::error(call, 400, "ReservationCapacityExceeded", message)
}

fn free(backend: &Backend, reservation: &Reservation) -> u32 {
    reservation.count.saturating_sub(backend.records.reserved(&reservation.id))
}

fn item(reservation: &Reservation, free: u32) -> Element {
    let time = |time: std::time::SystemTime| {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        prices::time(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
    };
    let mut leaves = vec![
        ("capacityReservationId", reservation.id.clone()),
        ("ownerId", "123456789012".to_owned()),
        ("instanceType", reservation.instance_type.clone()),
        ("instancePlatform", reservation.platform.clone()),
        ("availabilityZone", reservation.zone.clone()),
        ("tenancy", "default".to_owned()),
        ("totalInstanceCount", reservation.count.to_string()),
        ("availableInstanceCount", free.to_string()),
        ("state", reservation.state.clone()),
        ("startDate", time(reservation.starts)),
        ("endDateType", if reservation.ends.is_some() { "limited" } else { "unlimited" }.to_owned()),
        ("instanceMatchCriteria", "targeted".to_owned()),
        ("reservationType", if reservation.is_block { "capacity-block" } else { "default" }.to_owned()),
    ];
    leaves.extend(reservation.ends.map(|ends| ("endDate", time(ends))));
    Element::new("item").with(leaves.into_iter().map(|(name, text)| Element::leaf(name, text)))
}
