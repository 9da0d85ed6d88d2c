//! Which machines will end, and when the pool acts on that: reports and notices go in, nodes come
//! out. No I/O, no clock.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::event::DrainReason;
use crate::ids::MachineId;

/// The known ends of a pool's machines.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    machines: BTreeMap<MachineId, Known>,
    /// How long it takes to make a successor ready.
    lead: Duration,
}

/// The notice that a machine will end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Notice {
    pub(crate) reason: DrainReason,
    pub(crate) at: Instant,
    pub(crate) words: Option<String>,
}

#[derive(Debug)]
struct Known {
    notice: Notice,
    /// When the pool should act on the notice; `None` after it has acted.
    due: Option<Instant>,
    /// Whether the workers are notified.
    announced: bool,
}

impl Notices {
    /// Sets how long the pool takes to make a successor ready.
    pub(crate) fn set_lead(&mut self, lead: Duration) {
        self.lead = lead;
    }

    /// How long the pool takes to make a successor ready.
    pub(crate) fn lead(&self) -> Duration {
        self.lead
    }

    /// Adds a notice that a machine will end. A notice without new information changes nothing.
    /// Returns whether the workers are notified of an end that is no longer the one that is known.
    pub(crate) fn add(&mut self, machine: &MachineId, notice: Notice, now: Instant) -> bool {
        let known = self.machines.get(machine);
        let sooner = |known: &Known| {
            notice.at + TOLERANCE < known.notice.at
                || known.notice.reason == DrainReason::Expired && notice.reason == DrainReason::Preempted
        };
        if known.is_some_and(|known| !sooner(known)) {
            return false;
        }
        let due = match notice.reason {
            // A walltime is known long before, so the pool waits; a preemption is acted on at once.
            DrainReason::Expired => {
                let left = notice.at.saturating_duration_since(now);
                notice.at - self.lead.min(left / 2)
            }
            _ => now,
        };
        let announced = known.is_some_and(|known| known.announced);
        // The pool has not acted if it was content with the first notice, and announced nothing.
        let acted = announced && known.is_some_and(|known| known.due.is_none());
        self.machines.insert(machine.clone(), Known { notice, due: (!acted).then_some(due), announced });
        announced
    }

    /// Whether the pool has acted on the notice of a machine.
    pub(crate) fn is_acted(&self, machine: &MachineId) -> bool {
        self.machines.get(machine).is_some_and(|known| known.due.is_none())
    }

    /// The notice that is due next for one of these machines, and when it is due.
    pub(crate) fn next_due<'m>(&self, machines: impl Iterator<Item = &'m MachineId>) -> Option<(MachineId, Instant)> {
        let due = machines.filter_map(|machine| Some((machine, self.machines.get(machine)?.due?)));
        due.min_by_key(|(_, due)| *due).map(|(machine, due)| (machine.clone(), due))
    }

    /// Marks that the pool acts on the notice of a machine, and returns the notice.
    pub(crate) fn act(&mut self, machine: &MachineId) -> Option<Notice> {
        let known = self.machines.get_mut(machine)?;
        known.due = None;
        Some(known.notice.clone())
    }

    /// Marks that the workers on a machine are notified of its end.
    pub(crate) fn announce(&mut self, machine: &MachineId) {
        if let Some(known) = self.machines.get_mut(machine) {
            known.announced = true;
        }
    }

    /// The end of a machine, if its workers are notified of it.
    pub(crate) fn announced(&self, machine: &MachineId) -> Option<&Notice> {
        self.machines.get(machine).filter(|known| known.announced).map(|known| &known.notice)
    }

    /// The ends of all machines whose workers are notified.
    pub(crate) fn all_announced(&self) -> impl Iterator<Item = &Notice> {
        self.machines.values().filter(|known| known.announced).map(|known| &known.notice)
    }

    /// Makes the pool act on the notice of a machine once more, at this time.
    pub(crate) fn again(&mut self, machine: &MachineId, at: Instant) {
        if let Some(known) = self.machines.get_mut(machine) {
            known.due = Some(at);
        }
    }

    /// Nothing more is done about machines that will end.
    pub(crate) fn give_up(&mut self) {
        self.machines.values_mut().for_each(|known| known.due = None);
    }

    /// Forgets the notice of a machine that is given up.
    pub(crate) fn forget(&mut self, machine: &MachineId) {
        self.machines.remove(machine);
    }
}

/// Two notices whose times differ by no more than this are the same notice.
const TOLERANCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    const LEAD: Duration = Duration::from_secs(60);

    fn notices() -> Notices {
        let mut notices = Notices::default();
        notices.set_lead(LEAD);
        notices
    }

    fn machine() -> MachineId {
        MachineId::new("m")
    }

    fn due(notices: &Notices) -> Option<Instant> {
        notices.next_due([machine()].iter()).map(|(_, due)| due)
    }

    fn notice(reason: DrainReason, at: Instant) -> Notice {
        Notice { reason, at, words: None }
    }

    #[test]
    fn a_preemption_is_due_at_once_and_a_walltime_is_due_early_enough_for_a_successor() {
        let now = Instant::now();
        for (reason, left, wanted) in [
            (DrainReason::Preempted, 120, 0),
            (DrainReason::Expired, 3600, 3540),
            // If little time is left, half of it is used for the successor.
            (DrainReason::Expired, 100, 50),
            (DrainReason::Expired, 0, 0),
        ] {
            let mut notices = self::notices();
            notices.add(&machine(), notice(reason, now + Duration::from_secs(left)), now);
            assert_eq!(due(&notices), Some(now + Duration::from_secs(wanted)), "{reason:?} in {left} s");
            assert!(!notices.is_acted(&machine()));
            assert_eq!(notices.act(&machine()).unwrap().reason, reason);
            assert_eq!((due(&notices), notices.is_acted(&machine())), (None, true));
            notices.forget(&machine());
            assert!(!notices.is_acted(&machine()));
        }
    }

    #[test]
    fn a_repeated_notice_changes_nothing_and_a_preemption_replaces_a_walltime() {
        let (mut notices, now) = (self::notices(), Instant::now());
        let hour = now + Duration::from_secs(3600);
        notices.add(&machine(), notice(DrainReason::Expired, hour), now);
        let first = due(&notices);
        notices.add(&machine(), notice(DrainReason::Expired, hour - Duration::from_secs(1)), now + LEAD);
        assert_eq!(due(&notices), first);
        notices.add(&machine(), notice(DrainReason::Preempted, hour + LEAD), now + LEAD);
        assert_eq!(due(&notices), Some(now + LEAD));
        notices.act(&machine());
        notices.announce(&machine());
        let nearer = notice(DrainReason::Preempted, now + LEAD * 2);
        assert!(notices.add(&machine(), nearer.clone(), now + LEAD), "the workers know another end");
        assert_eq!(due(&notices), None, "the pool has acted already");
        assert_eq!(notices.announced(&machine()), Some(&nearer));
        assert!(!notices.add(&machine(), nearer, now + LEAD), "nothing is new");
    }

    #[test]
    fn a_preemption_is_acted_on_after_a_walltime_that_was_not_announced() {
        let (mut notices, now) = (self::notices(), Instant::now());
        notices.add(&machine(), notice(DrainReason::Expired, now + LEAD * 9), now);
        notices.act(&machine());
        assert!(!notices.add(&machine(), notice(DrainReason::Preempted, now + LEAD * 2), now));
        assert_eq!((due(&notices), notices.announced(&machine())), (Some(now), None));
    }

    #[test]
    fn a_pool_that_has_failed_acts_on_no_notice_and_still_shows_those_that_it_announced() {
        let (mut notices, now) = (self::notices(), Instant::now());
        notices.add(&machine(), notice(DrainReason::Preempted, now + LEAD), now);
        notices.announce(&machine());
        notices.give_up();
        assert_eq!((due(&notices), notices.announced(&machine()).is_some()), (None, true));
    }
}
