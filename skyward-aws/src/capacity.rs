//! Reserved capacity: what EC2 reports of it, and whether machines can be launched in it.

use std::time::SystemTime;

use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat};
use aws_sdk_ec2::types::{
    CapacityReservation, CapacityReservationInstancePlatform as Platform, CapacityReservationState as State,
    CapacityReservationTenancy as Tenancy, CapacityReservationType as Type,
};
use skyward_core::error::{Error, Refusal, Result};

use crate::client::Clients;
use crate::errors::Failure;
use crate::options::Capacity;
use crate::timing::{BLOCK_ENDS_EARLY, ULTRA_BLOCK_ENDS_EARLY};

/// Reserved capacity in which machines can be launched now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    /// Whether it is a capacity block, which is paid for when it is bought.
    pub(crate) is_block: bool,
    /// When EC2 begins to end the machines in it; a plain reservation ends none.
    pub(crate) ends: Option<SystemTime>,
}

impl Capacity {
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Reservation(id) | Self::Block(id) => id,
        }
    }

    /// For errors: `the capacity block cr-1`.
    fn named(&self) -> String {
        match self {
            Self::Reservation(id) => format!("the capacity reservation {id}"),
            Self::Block(id) => format!("the capacity block {id}"),
        }
    }
}

/// Asks EC2 about reserved capacity.
///
/// # Errors
///
/// [`Refusal::Misconfigured`] or [`Refusal::Capacity`] when no machine can be launched in it now,
/// with what to do.
///
/// # Cancel safety
///
/// The call changes nothing.
pub(crate) async fn find(clients: &Clients, capacity: &Capacity, now: SystemTime) -> Result<Reserved> {
    let asked = clients.ec2.describe_capacity_reservations().capacity_reservation_ids(capacity.id()).send().await;
    let found = match asked.map_err(|error| Failure::of("DescribeCapacityReservations", error)) {
        Ok(answer) => answer.capacity_reservations.unwrap_or_default(),
        Err(failure) if NOT_FOUND.iter().any(|code| failure.has_code(code)) => Vec::new(),
        Err(failure) => return Err(failure.into_error()),
    };
    let found = found.iter().find(|one| one.capacity_reservation_id() == Some(capacity.id()));
    usable(capacity, found, &clients.region, now)
}

/// Whether machines can be launched in reserved capacity.
fn usable(capacity: &Capacity, found: Option<&CapacityReservation>, region: &str, now: SystemTime) -> Result<Reserved> {
    let named = capacity.named();
    let refused = |refusal: Refusal, why: String, hint: &str| {
        Err(Error::refused(refusal, format!("{named} {why}")).with_hint(hint.to_owned()))
    };
    let Some(found) = found else {
        let hint = format!(
            "`aws ec2 describe-capacity-reservations --region {region}` lists the reservations of the account; an id begins with `cr-` and is valid in one region"
        );
        return refused(Refusal::Misconfigured, format!("does not exist in {region}"), &hint);
    };
    let is_block = found.reservation_type() == Some(&Type::CapacityBlock);
    match (is_block, capacity) {
        (true, Capacity::Reservation(id)) => {
            let hint = format!("name it by `.capacity_block(\"{id}\")`");
            return refused(Refusal::Misconfigured, "is a capacity block".to_owned(), &hint);
        }
        (false, Capacity::Block(id)) => {
            let hint = format!("name it by `.capacity_reservation(\"{id}\")`");
            return refused(Refusal::Misconfigured, "is a plain reservation".to_owned(), &hint);
        }
        _ => {}
    }
    let time = |time: Option<&DateTime>| time.and_then(|time| SystemTime::try_from(*time).ok());
    let state = found.state().map_or("unknown", State::as_str);
    match found.state() {
        Some(State::Active) => {}
        Some(State::Scheduled | State::Pending | State::PaymentPending | State::Assessing | State::Delayed) => {
            let starts = match found.start_date() {
                Some(starts) => format!("it starts at {}", shown(starts)),
                None => "EC2 does not say when it starts".to_owned(),
            };
            let why = format!("is not active yet: its state is `{state}`, and {starts}");
            return refused(Refusal::Capacity, why, "start the pool when it is active");
        }
        _ => {
            let ended = found.end_date().map(|ends| format!(", and its end was at {}", shown(ends)));
            let why = format!("cannot be used any more: its state is `{state}`{}", ended.unwrap_or_default());
            return refused(Refusal::Misconfigured, why, "reserve anew and name the new one, or leave the option out");
        }
    }
    let Some((instance_type, zone)) = found.instance_type().zip(found.availability_zone()) else {
        let hint = "`aws ec2 describe-capacity-reservations` shows what it is";
        return refused(Refusal::Misconfigured, "has no instance type or no zone".to_owned(), hint);
    };
    if found.instance_platform() != Some(&Platform::LinuxUnix) {
        let platform = found.instance_platform().map_or("unknown", Platform::as_str);
        let why = format!("is for the platform `{platform}`, and the images of this provider are `Linux/UNIX`");
        return refused(Refusal::Misconfigured, why, "reserve for `Linux/UNIX`");
    }
    if found.tenancy().is_some_and(|tenancy| *tenancy != Tenancy::Default) {
        let why = "is on dedicated hardware, and this provider launches on shared hardware".to_owned();
        return refused(Refusal::Misconfigured, why, "reserve with the tenancy `default`");
    }
    let early = if is_of_ultra_servers(found) { ULTRA_BLOCK_ENDS_EARLY } else { BLOCK_ENDS_EARLY };
    let ends = time(found.end_date()).filter(|_| is_block).map(|ends| ends.checked_sub(early).unwrap_or(ends));
    if ends.is_some_and(|ends| ends <= now) {
        let end = found.end_date().map(shown).unwrap_or_default();
        let minutes = early.as_secs() / 60;
        let why = format!("ends at {end}, and EC2 has begun to end its machines {minutes} minutes before that");
        return refused(Refusal::Capacity, why, "buy another block, or extend this one");
    }
    let (left, all) = (found.available_instance_count(), found.total_instance_count());
    if left == Some(0) {
        let all = all.map_or_else(|| "its".to_owned(), |all| all.to_string());
        let why = format!("has no instance left: all {all} of {instance_type} in {zone} are used");
        let hint = format!(
            "end what runs in it, or reserve more; `aws ec2 describe-instances --region {region} --filters Name=capacity-reservation-id,Values={}` lists it",
            capacity.id()
        );
        return refused(Refusal::Capacity, why, &hint);
    }
    Ok(Reserved {
        id: capacity.id().to_owned(),
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        is_block,
        ends,
    })
}

/// Whether a block is of UltraServers: only those have a launch status, and only they have these
/// types: <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CapacityReservation.html>,
/// <https://aws.amazon.com/ec2/ultraservers/>.
fn is_of_ultra_servers(found: &CapacityReservation) -> bool {
    let name = found.instance_type().unwrap_or_default();
    found.launch_status().is_some() || ["p6e-", "trn2u."].iter().any(|series| name.starts_with(series))
}

fn shown(time: &DateTime) -> String {
    DateTime::from_secs(time.secs()).fmt(DateTimeFormat::DateTime).unwrap_or_default()
}

const NOT_FOUND: [&str; 2] = ["InvalidCapacityReservationId.NotFound", "InvalidCapacityReservationId.Malformed"];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use aws_sdk_ec2::types::CapacityReservationLaunchStatus as LaunchStatus;
    use aws_sdk_ec2::types::builders::CapacityReservationBuilder;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn at(seconds: i64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.unsigned_abs())
    }

    fn active() -> CapacityReservationBuilder {
        CapacityReservation::builder()
            .capacity_reservation_id("cr-1")
            .instance_type("p5.48xlarge")
            .availability_zone("eu-west-1b")
            .instance_platform(Platform::LinuxUnix)
            .tenancy(Tenancy::Default)
            .state(State::Active)
            .total_instance_count(4)
            .available_instance_count(2)
            .start_date(DateTime::from_secs(NOW - 60))
    }

    fn block() -> CapacityReservationBuilder {
        active().reservation_type(Type::CapacityBlock).end_date(DateTime::from_secs(NOW + 7200))
    }

    fn plain() -> Capacity {
        Capacity::Reservation("cr-1".into())
    }

    #[test]
    fn what_is_active_and_has_room_can_be_used() {
        let found = usable(&plain(), Some(&active().build()), "eu-west-1", at(NOW)).unwrap();
        assert_eq!(found.instance_type.as_str(), "p5.48xlarge");
        assert_eq!(found.zone.as_str(), "eu-west-1b");
        assert!(!found.is_block);
        assert_eq!(found.ends, None);
        // Machines of a plain reservation go on when it ends.
        let limited = active().end_date(DateTime::from_secs(NOW + 60)).reservation_type(Type::Default).build();
        assert_eq!(usable(&plain(), Some(&limited), "eu-west-1", at(NOW)).unwrap().ends, None);
        let found = usable(&Capacity::Block("cr-1".into()), Some(&block().build()), "eu-west-1", at(NOW)).unwrap();
        assert!(found.is_block);
        assert_eq!(found.ends, Some(at(NOW + 5400)));
        let ultra = [block().instance_type("trn2u.48xlarge"), block().launch_status(LaunchStatus::Launchable)];
        for ultra in ultra.map(CapacityReservationBuilder::build) {
            let found = usable(&Capacity::Block("cr-1".into()), Some(&ultra), "eu-west-1", at(NOW)).unwrap();
            assert_eq!(found.ends, Some(at(NOW + 3600)), "an hour before the end");
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_what_to_do() {
        let of_block = || Capacity::Block("cr-1".into());
        let mut cases = vec![
            (plain(), None, "does not exist in eu-west-1", "describe-capacity-reservations", false),
            (plain(), Some(block()), "is a capacity block", ".capacity_block(\"cr-1\")", false),
            (of_block(), Some(active()), "plain reservation", ".capacity_reservation(\"cr-1\")", false),
            (plain(), Some(active().instance_platform(Platform::Windows)), "`Windows`", "`Linux/UNIX`", false),
            (plain(), Some(active().tenancy(Tenancy::Dedicated)), "dedicated", "`default`", false),
            (plain(), Some(active().available_instance_count(0)), "no instance left: all 4", "reserve more", true),
            (plain(), Some(active().set_instance_type(None)), "no instance type", "describe", false),
            (of_block(), Some(block().end_date(DateTime::from_secs(NOW + 1799))), "30 minutes", "extend", true),
        ];
        for state in [State::Scheduled, State::Pending, State::PaymentPending, State::Assessing, State::Delayed] {
            let later = active().state(state).start_date(DateTime::from_secs(NOW + 60));
            cases.push((plain(), Some(later), "not active yet", "when it is active", true));
        }
        for state in [State::Expired, State::Cancelled, State::Cancelling, State::Failed, State::from("new")] {
            let over = active().state(state).end_date(DateTime::from_secs(NOW - 1));
            cases.push((plain(), Some(over), "cannot be used any more", "reserve anew", false));
        }
        for (capacity, found, why, hint, is_capacity) in cases {
            let found = found.map(CapacityReservationBuilder::build);
            let error = usable(&capacity, found.as_ref(), "eu-west-1", at(NOW)).unwrap_err();
            assert!(error.message().contains("cr-1") && error.message().contains(why), "{why}: {error}");
            assert!(error.hint().is_some_and(|told| told.contains(hint)), "{why}: {error}");
            let refusal = if is_capacity { Refusal::Capacity } else { Refusal::Misconfigured };
            assert_eq!(error.refusal(), Some(&refusal), "{why}");
        }
        let later = active().state(State::Scheduled).start_date(DateTime::from_secs(NOW)).build();
        let error = usable(&plain(), Some(&later), "eu-west-1", at(NOW)).unwrap_err();
        assert!(error.message().contains("`scheduled`") && error.message().contains("2027-01-15T08:00:00Z"), "{error}");
    }
}
