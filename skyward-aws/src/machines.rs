//! Reads EC2's descriptions of instances. No I/O.

use std::time::{Duration, SystemTime};

use aws_sdk_ec2::primitives::{DateTime, DateTimeFormat as Format};
use aws_sdk_ec2::types::{Instance, InstanceStateName};
use skyward_core::ids::{MachineId, OfferId, PoolId};
use skyward_core::provider::{Facts, Machine, MachineReport, MachineState, Place, PoolRecord, Reason};

use crate::assign::Launch;
use crate::options::Addressing;
use crate::tags;
use crate::user_data::FOLDER;

/// The machine of an instance, which is this launch.
pub(crate) fn machine(instance: &Instance, pool: &PoolId, (launch, number): &Launch) -> Option<Machine> {
    let offer = OfferId::new(tags::value(instance.tags(), tags::OFFER).unwrap_or_default());
    let mut facts = Facts::new();
    let zone = instance.placement().and_then(|placement| placement.availability_zone());
    let known = [("zone", zone), ("type", instance.instance_type().map(|kind| kind.as_str()))];
    facts.extend(known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))));
    let id = MachineId::new(instance.instance_id()?);
    Some(Machine { id, launch: launch.clone(), pool: pool.clone(), number: *number, offer, facts })
}

/// Whether something of an instance may still run.
pub(crate) fn is_live(instance: &Instance) -> bool {
    life(instance) != Life::Over
}

/// How far the end of an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// It costs something.
    Running,
    /// It is on its way out, and costs nothing more.
    Ending,
    /// It is terminated.
    Over,
}

pub(crate) fn life(instance: &Instance) -> Life {
    match state(instance) {
        MachineState::Gone => Life::Over,
        MachineState::Released => Life::Ending,
        _ => Life::Running,
    }
}

/// The state of an instance. From `shutting-down` on, AWS charges nothing for it:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html>.
fn state(instance: &Instance) -> MachineState {
    match instance.state().and_then(|state| state.name()) {
        Some(InstanceStateName::Pending) => MachineState::Starting,
        Some(InstanceStateName::Running) => MachineState::Running,
        // Skyward never starts a stopped instance again.
        Some(InstanceStateName::Stopping | InstanceStateName::Stopped) => MachineState::Ending,
        Some(InstanceStateName::ShuttingDown) => MachineState::Released,
        Some(InstanceStateName::Terminated) => MachineState::Gone,
        _ => MachineState::Unknown,
    }
}

/// What EC2 reports of an instance at the time `now`. `block_ends` is the end of its capacity
/// block, if it is in one.
pub(crate) fn report(
    instance: &Instance,
    addressing: Addressing,
    watch: &[String],
    now: SystemTime,
    block_ends: Option<SystemTime>,
) -> MachineReport {
    let mut state = state(instance);
    let place = instance.private_ip_address().map(|address| Place::new(address, FOLDER).watch(watch.iter().cloned()));
    // An address can come later than the state.
    if state == MachineState::Running && (place.is_none() || reached_at(instance, addressing).is_none()) {
        state = MachineState::Starting;
    }
    let mut report = MachineReport::new(state);
    if state == MachineState::Running {
        report.place = place;
        let ends = tags::time(instance.tags(), tags::ENDS).into_iter().chain(block_ends).min();
        report.ends_in = ends.map(|ends| ends.duration_since(now).unwrap_or_default());
    }
    if state.is_over() {
        let code = instance.state_reason().and_then(|reason| reason.code());
        report.reason = code.and_then(reason);
        let words = instance.state_reason().and_then(|reason| reason.message());
        report.words =
            words.or(instance.state_transition_reason()).filter(|words| !words.is_empty()).map(str::to_owned);
        report.lived = lived(instance);
    }
    report
}

/// How long an instance was there that EC2 charges for no more: from its launch to its last change of
/// state, both by EC2's clock. EC2 gives the time of the change only where somebody requested it.
fn lived(instance: &Instance) -> Option<Duration> {
    if !state(instance).is_released() {
        return None;
    }
    // `User initiated (2026-11-22 13:17:21 GMT)`
    let (_, changed) = instance.state_transition_reason()?.rsplit_once('(')?;
    let changed = changed.strip_suffix(')')?;
    let changed = changed.strip_suffix(" GMT").or(changed.strip_suffix(" UTC"))?.replacen(' ', "T", 1) + "Z";
    let changed = DateTime::from_str(&changed, Format::DateTime).ok()?;
    u64::try_from(changed.secs() - instance.launch_time()?.secs()).ok().map(Duration::from_secs)
}

/// The address at which the client reaches an instance.
pub(crate) fn reached_at(instance: &Instance, addressing: Addressing) -> Option<&str> {
    let address = match addressing {
        Addressing::Public => instance.public_ip_address(),
        Addressing::Private => instance.private_ip_address(),
    };
    address.filter(|address| !address.is_empty())
}

/// Why an instance ended, by the codes of
/// <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html>.
fn reason(code: &str) -> Option<Reason> {
    Some(match code {
        "Server.SpotInstanceTermination" | "Server.SpotInstanceShutdown" | "Server.ScheduledStop" => Reason::Preempted,
        // The instance has powered itself off: its keeper does so at the end of its lease or its
        // time.
        "Client.InstanceInitiatedShutdown" => Reason::Expired,
        "Client.UserInitiatedShutdown" | "Client.UserInitiatedHibernate" => Reason::Asked,
        "Server.InsufficientInstanceCapacity"
        | "Server.InternalError"
        | "Client.InternalError"
        | "Client.InvalidSnapshot.NotFound"
        | "Client.VolumeLimitExceeded" => Reason::Failed,
        _ => return None,
    })
}

/// The record of the pool that a resource belongs to, by its tags, in EC2's time.
pub(crate) fn record(tags: &[aws_sdk_ec2::types::Tag]) -> Option<PoolRecord> {
    let pool = PoolId::new(tags::value(tags, tags::POOL)?);
    let expires = tags::time(tags, tags::EXPIRES).unwrap_or(SystemTime::UNIX_EPOCH);
    // A living client renews once in each period. A resource that has missed one renewal has not
    // expired yet.
    let expires = expires.checked_add(crate::timing::RENEWAL_PERIOD).unwrap_or(expires);
    Some(PoolRecord::new(pool, expires).owner(tags::value(tags, tags::OWNER).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{InstanceState, StateReason};

    use super::*;
    use crate::tags::Tags;

    fn instance(name: InstanceStateName) -> aws_sdk_ec2::types::builders::InstanceBuilder {
        Instance::builder()
            .instance_id("i-1")
            .state(InstanceState::builder().name(name).build())
            .private_ip_address("10.0.0.7")
            .public_ip_address("203.0.113.7")
    }

    fn report_of(instance: &Instance) -> MachineReport {
        report(instance, Addressing::Public, &["watch".to_owned()], SystemTime::now(), None)
    }

    #[test]
    fn states_are_those_of_the_contract() {
        for (name, state) in [
            (InstanceStateName::Pending, MachineState::Starting),
            (InstanceStateName::Running, MachineState::Running),
            (InstanceStateName::Stopping, MachineState::Ending),
            (InstanceStateName::Stopped, MachineState::Ending),
            (InstanceStateName::ShuttingDown, MachineState::Released),
            (InstanceStateName::Terminated, MachineState::Gone),
            (InstanceStateName::from("new-in-2030"), MachineState::Unknown),
        ] {
            assert_eq!(report_of(&instance(name).build()).state, state);
        }
    }

    #[test]
    fn a_machine_is_there_when_it_has_its_addresses() {
        let there = report_of(&instance(InstanceStateName::Running).build());
        let place = there.place.unwrap();
        assert_eq!(place.address.as_str(), "10.0.0.7");
        assert_eq!(place.folder.as_str(), FOLDER);
        let late = instance(InstanceStateName::Running).set_public_ip_address(None).build();
        assert_eq!(report_of(&late).state, MachineState::Starting);
        let within = report(&late, Addressing::Private, &[], SystemTime::now(), None);
        assert_eq!(within.state, MachineState::Running);
        assert_eq!(reached_at(&late, Addressing::Private), Some("10.0.0.7"));
    }

    #[test]
    fn a_machine_ends_with_its_budget_or_its_block_whichever_is_first() {
        let now = SystemTime::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let left = |budget: Option<u64>, block: Option<u64>| {
            let tags = budget.map(|budget| (tags::ENDS.to_owned(), tags::seconds(at(budget))));
            let tags = tags::list(&tags.into_iter().collect::<Tags>());
            let instance = instance(InstanceStateName::Running).set_tags(Some(tags)).build();
            let report = report(&instance, Addressing::Public, &[], now, block.map(at));
            // A tag has whole seconds.
            report.ends_in.map(|left| (left.as_secs_f64() / 10.0).round() * 10.0)
        };
        assert_eq!(left(None, None), None);
        assert_eq!(left(Some(100), None), Some(100.0));
        assert_eq!(left(None, Some(100)), Some(100.0));
        assert_eq!(left(Some(100), Some(200)), Some(100.0));
        assert_eq!(left(Some(200), Some(100)), Some(100.0));
    }

    #[test]
    fn the_reason_of_an_end_is_told() {
        for (code, expected) in [
            ("Server.SpotInstanceTermination", Some(Reason::Preempted)),
            ("Client.InstanceInitiatedShutdown", Some(Reason::Expired)),
            ("Client.UserInitiatedShutdown", Some(Reason::Asked)),
            ("Server.InsufficientInstanceCapacity", Some(Reason::Failed)),
            ("Server.Whatever", None),
        ] {
            let reason = StateReason::builder().code(code).message("words").build();
            let report = report_of(&instance(InstanceStateName::Terminated).state_reason(reason).build());
            assert_eq!(report.reason, expected);
            assert_eq!(report.words.as_deref(), Some("words"));
        }
    }

    #[test]
    fn the_life_of_an_instance_that_is_over_is_told_by_the_times_of_ec2() {
        let ended = |name: InstanceStateName, words: &str| {
            let instance = instance(name).launch_time(DateTime::from_secs(1_795_353_441));
            report_of(&instance.state_transition_reason(words).build()).lived.map(|lived| lived.as_secs())
        };
        let words = "User initiated (2026-11-22 13:19:21 GMT)";
        assert_eq!(ended(InstanceStateName::Terminated, words), Some(120));
        assert_eq!(ended(InstanceStateName::ShuttingDown, &words.replace("GMT", "UTC")), Some(120));
        for unknown in ["", "Server.SpotInstanceTermination", "User initiated", "(today)", "(2026-11-22 13:19 GMT)"] {
            assert_eq!(ended(InstanceStateName::Terminated, unknown), None, "{unknown}");
        }
        assert_eq!(ended(InstanceStateName::Terminated, &words.replace("13:19", "13:00")), None, "before its launch");
        assert_eq!(ended(InstanceStateName::Running, words), None);
        assert_eq!(report_of(&instance(InstanceStateName::Terminated).build()).lived, None);
    }

    #[test]
    fn the_expiry_and_the_end_of_a_machine_are_read_from_its_tags() {
        let now = SystemTime::now();
        let all = Tags::from([
            (tags::POOL.to_owned(), "p-x".to_owned()),
            (tags::OWNER.to_owned(), "ada".to_owned()),
            (tags::EXPIRES.to_owned(), tags::seconds(now)),
            (tags::ENDS.to_owned(), tags::seconds(now + Duration::from_secs(3600))),
        ]);
        let instance = instance(InstanceStateName::Running).set_tags(Some(tags::list(&all))).build();
        assert!(report_of(&instance).ends_in.unwrap() > Duration::from_secs(3500));
        let record = record(instance.tags()).unwrap();
        assert!(record.owner == "ada" && record.expires > now + crate::timing::RENEWAL_PERIOD - Duration::from_secs(2));
    }
}
