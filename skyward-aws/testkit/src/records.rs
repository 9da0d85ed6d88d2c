//! What moto does not keep of instances: the phases that are still to come, and the reasons of
//! their ends.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How an instance is paid for, as the capacity of a zone is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Market {
    /// On demand.
    OnDemand,
    /// Spot.
    Spot,
}

/// For how many calls that describe an instance it stays in each phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases {
    /// EC2 neither lists the instance nor finds it by its id.
    pub hidden: u32,
    /// Then the instance is pending, without addresses.
    pub pending: u32,
    /// After its end the instance is shutting down, and still uses its security groups.
    pub ending: u32,
}

/// An instance that was launched.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) market: Market,
    pub(crate) groups: Vec<String>,
    /// The reserved capacity that it was launched in.
    pub(crate) reservation: Option<String>,
    /// The name of the placement group that it is in.
    pub(crate) placement_group: Option<String>,
    pub(crate) phases: Phases,
    /// Code and message of the reason for its end, in place of moto's.
    pub(crate) reason: Option<(String, String)>,
    pub(crate) is_over: bool,
    /// Whether TerminateInstances is refused.
    pub(crate) is_protected: bool,
}

impl Record {
    /// Whether the instance still uses its groups.
    fn holds(&self) -> bool {
        !self.is_over || self.phases.ending > 0
    }
}

/// All launched instances by their ids.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<BTreeMap<String, Record>>);

impl Records {
    pub(crate) fn add(&self, id: &str, record: Record) {
        self.lock().insert(id.to_owned(), record);
    }

    pub(crate) fn get(&self, id: &str) -> Option<Record> {
        self.lock().get(id).cloned()
    }

    /// Records the end of an instance. Without a reason, moto's counts.
    pub(crate) fn end(&self, id: &str, reason: Option<(&str, &str)>) {
        if let Some(record) = self.lock().get_mut(id)
            && !record.is_over
        {
            record.is_over = true;
            record.reason = reason.map(|(code, message)| (code.to_owned(), message.to_owned()));
        }
    }

    /// Records a reason before moto learns of the end.
    pub(crate) fn explain(&self, id: &str, code: &str, message: &str) {
        if let Some(record) = self.lock().get_mut(id) {
            record.reason = Some((code.to_owned(), message.to_owned()));
        }
    }

    /// Sets whether an instance is protected from termination.
    pub(crate) fn protect(&self, id: &str, is_protected: bool) {
        if let Some(record) = self.lock().get_mut(id) {
            record.is_protected = is_protected;
        }
    }

    /// Counts a call that describes an instance, and returns the phase that the call sees.
    pub(crate) fn describe(&self, id: &str) -> Option<Record> {
        let mut records = self.lock();
        let record = records.get_mut(id)?;
        let seen = record.clone();
        let phases = &mut record.phases;
        for left in [&mut phases.hidden, &mut phases.pending] {
            if *left > 0 {
                *left -= 1;
                return Some(seen);
            }
        }
        if seen.is_over {
            phases.ending = phases.ending.saturating_sub(1);
        }
        Some(seen)
    }

    /// How many instances of a type exist, in a zone and market.
    pub(crate) fn alive(&self, instance_type: &str, zone: &str, market: Market) -> u32 {
        let records = self.lock();
        let alive = records.values().filter(|record| !record.is_over && record.market == market);
        let alive = alive.filter(|record| record.instance_type == instance_type && record.zone == zone);
        u32::try_from(alive.count()).unwrap_or(u32::MAX)
    }

    /// How many instances are in reserved capacity.
    pub(crate) fn reserved(&self, reservation: &str) -> u32 {
        let records = self.lock();
        let alive = records.values().filter(|record| !record.is_over);
        let within = alive.filter(|record| record.reservation.as_deref() == Some(reservation));
        u32::try_from(within.count()).unwrap_or(u32::MAX)
    }

    /// Whether an instance still uses a security group.
    pub(crate) fn uses(&self, group: &str) -> bool {
        self.lock().values().any(|record| record.holds() && record.groups.iter().any(|one| one == group))
    }

    /// Whether an instance is still in a placement group.
    pub(crate) fn is_placed(&self, group: &str) -> bool {
        self.lock().values().any(|record| record.holds() && record.placement_group.as_deref() == Some(group))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(phases: Phases) -> Records {
        let records = Records::default();
        let record = Record {
            instance_type: "g5.xlarge".into(),
            zone: "a".into(),
            market: Market::Spot,
            groups: vec!["sg-1".into()],
            reservation: Some("cr-1".into()),
            placement_group: Some("near".into()),
            phases,
            reason: None,
            is_over: false,
            is_protected: false,
        };
        records.add("i-1", record);
        records
    }

    #[test]
    fn phases_follow_each_other_call_by_call() {
        let records = records(Phases { hidden: 1, pending: 2, ending: 1 });
        let left = || {
            let phases = records.describe("i-1").unwrap().phases;
            (phases.hidden, phases.pending, phases.ending)
        };
        assert_eq!([left(), left(), left(), left()], [(1, 2, 1), (0, 2, 1), (0, 1, 1), (0, 0, 1)]);
    }

    #[test]
    fn an_instance_that_has_ended_leaves_room_and_then_its_group() {
        let records = records(Phases { ending: 1, ..Phases::default() });
        assert_eq!(records.alive("g5.xlarge", "a", Market::Spot), 1);
        assert_eq!(records.alive("g5.xlarge", "a", Market::OnDemand), 0);
        assert_eq!(records.reserved("cr-1"), 1);
        assert_eq!(records.reserved("cr-2"), 0);
        records.end("i-1", Some(("Server.SpotInstanceTermination", "words")));
        assert_eq!(records.alive("g5.xlarge", "a", Market::Spot), 0);
        assert_eq!(records.reserved("cr-1"), 0);
        assert!(records.uses("sg-1") && !records.uses("sg-2"));
        assert!(records.is_placed("near") && !records.is_placed("far"));
        assert_eq!(records.describe("i-1").unwrap().reason.unwrap().0, "Server.SpotInstanceTermination");
        assert!(!records.uses("sg-1") && !records.is_placed("near"));
    }
}
