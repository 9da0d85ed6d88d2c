//! What moto does not keep of instances: when they were launched and ended, and why.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::phases::{Phase, Phases};

/// How an instance is paid for, as the capacity of a zone is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Market {
    /// On demand.
    OnDemand,
    /// Spot.
    Spot,
}

/// An instance that was launched.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) market: Market,
    /// The reserved capacity that it was launched in.
    pub(crate) reservation: Option<String>,
    /// The name of the placement group that it is in.
    pub(crate) placement_group: Option<String>,
    /// When it was launched, by the clock.
    pub(crate) launched: Duration,
    pub(crate) phases: Phases,
    pub(crate) end: Option<End>,
    /// Code and message of the reason why it was stopped or ended, in place of moto's.
    pub(crate) reason: Option<(String, String)>,
    /// Whether TerminateInstances is refused.
    pub(crate) is_protected: bool,
}

/// How far the end of an instance has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It shuts down.
    Begun,
    /// moto has terminated it, and with it what it held.
    Final,
}

impl Record {
    /// Whether EC2 does not list it yet.
    pub(crate) fn is_hidden(&self, now: Duration) -> bool {
        now < self.launched + self.phases.hidden
    }

    pub(crate) fn phase(&self, now: Duration) -> Phase {
        match self.end {
            Some(End::Final) => Phase::Terminated,
            Some(End::Begun) => Phase::ShuttingDown,
            None if now < self.launched + self.phases.pending => Phase::Pending,
            None => Phase::Up,
        }
    }

    /// Whether somebody has ended it.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// Whether it still has what it was launched with.
    fn holds(&self) -> bool {
        self.end != Some(End::Final)
    }
}

/// All launched instances by their ids.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) clock: Clock,
    all: Mutex<BTreeMap<String, Record>>,
}

impl Records {
    pub(crate) fn add(&self, id: &str, record: Record) {
        self.lock().insert(id.to_owned(), record);
    }

    pub(crate) fn get(&self, id: &str) -> Option<Record> {
        self.lock().get(id).cloned()
    }

    /// Records the end of an instance, and returns when it is terminated; none where it is unknown
    /// or has ended before. Without a reason, its user has ended it.
    pub(crate) fn end(&self, id: &str, reason: Option<(&str, &str)>) -> Option<Duration> {
        let now = self.clock.now();
        let mut records = self.lock();
        let record = records.get_mut(id).filter(|record| !record.is_over())?;
        let (code, message) = reason.unwrap_or(USER);
        let terminated = now + record.phases.ending;
        record.reason = Some((code.to_owned(), message.to_owned()));
        record.end = Some(End::Begun);
        Some(terminated)
    }

    /// Records that moto has terminated an instance.
    pub(crate) fn finish(&self, id: &str) {
        if let Some(record) = self.lock().get_mut(id) {
            record.end = Some(End::Final);
        }
    }

    /// Records why an instance stops, before moto learns of it.
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

    /// How many instances of a type take room, in a zone and market.
    pub(crate) fn alive(&self, instance_type: &str, zone: &str, market: Market) -> u32 {
        let is_one =
            |record: &Record| record.market == market && record.instance_type == instance_type && record.zone == zone;
        self.count(is_one)
    }

    /// How many instances are in reserved capacity.
    pub(crate) fn reserved(&self, reservation: &str) -> u32 {
        self.count(|record| record.reservation.as_deref() == Some(reservation))
    }

    /// Whether an instance is still in a placement group.
    pub(crate) fn is_placed(&self, group: &str) -> bool {
        self.count(|record| record.placement_group.as_deref() == Some(group)) > 0
    }

    /// The instances that are not terminated and of which this is so.
    fn count(&self, is_one: impl Fn(&Record) -> bool) -> u32 {
        let count = self.lock().values().filter(|record| record.holds() && is_one(record)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason for the end of an instance that its user has terminated.
const USER: (&str, &str) = ("Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown");

#[cfg(test)]
mod tests {
    use super::*;

    fn records(phases: Phases) -> Records {
        let records = Records::default();
        let record = Record {
            instance_type: "g5.xlarge".into(),
            zone: "a".into(),
            market: Market::Spot,
            reservation: Some("cr-1".into()),
            placement_group: Some("near".into()),
            launched: records.clock.now(),
            phases,
            end: None,
            reason: None,
            is_protected: false,
        };
        records.add("i-1", record);
        records
    }

    #[test]
    fn phases_follow_each_other_by_the_clock() {
        let [hidden, pending, ending] = [100, 200, 300].map(Duration::from_secs);
        let records = records(Phases { hidden, pending, ending });
        let seen = || {
            let (record, now) = (records.get("i-1").unwrap(), records.clock.now());
            (record.is_hidden(now), record.phase(now))
        };
        assert_eq!(seen(), (true, Phase::Pending));
        records.clock.pass(hidden);
        assert_eq!(seen(), (false, Phase::Pending));
        records.clock.pass(pending);
        assert_eq!(seen(), (false, Phase::Up));
        let terminated = records.end("i-1", None).unwrap();
        assert!(terminated >= hidden + pending + ending, "{terminated:?}");
        assert_eq!(records.end("i-1", None), None, "it has ended already");
        assert_eq!(seen(), (false, Phase::ShuttingDown));
        records.finish("i-1");
        assert_eq!(seen(), (false, Phase::Terminated));
    }

    #[test]
    fn an_instance_leaves_room_when_it_is_terminated_and_no_sooner() {
        let records = records(Phases::default());
        assert_eq!(records.alive("g5.xlarge", "a", Market::OnDemand), 0);
        assert_eq!(records.reserved("cr-2"), 0);
        assert!(!records.is_placed("far"));
        let room =
            || (records.alive("g5.xlarge", "a", Market::Spot), records.reserved("cr-1"), records.is_placed("near"));
        records.end("i-1", Some(("Server.SpotInstanceTermination", "words")));
        assert_eq!(records.get("i-1").unwrap().reason.unwrap().0, "Server.SpotInstanceTermination");
        assert_eq!(room(), (1, 1, true));
        records.finish("i-1");
        assert_eq!(room(), (0, 0, false));
    }
}
