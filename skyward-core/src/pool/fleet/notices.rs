//! Which machines will end, and when the pool acts on that: reports and notices go in, nodes come
//! out. No I/O, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::timing::SAME_NOTICE;
use crate::event::DrainReason;
use crate::ids::{MachineId, NodeIndex};

/// The known ends of the machines of a pool's nodes.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    machines: BTreeMap<MachineId, Known>,
    /// The machines whose notices the pool should act on, by time.
    due: BTreeSet<(Instant, MachineId)>,
    /// The machines whose workers are notified, by the time of their ends.
    announced: BTreeSet<(Instant, MachineId)>,
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

/// A machine that will end, and that the pool acts on now.
#[derive(Debug)]
pub(crate) struct Due {
    pub(crate) node: NodeIndex,
    pub(crate) machine: MachineId,
    pub(crate) notice: Notice,
}

#[derive(Debug)]
struct Known {
    node: NodeIndex,
    notice: Notice,
    /// When the pool should act on the notice; `None` after it has acted.
    due: Option<Instant>,
    /// Whether the workers are notified.
    announced: bool,
}

impl Notice {
    /// Whether this notice has news for whoever has the other notice of the same machine.
    pub(crate) fn replaces(&self, known: &Self) -> bool {
        self.at + SAME_NOTICE < known.at
            || known.reason == DrainReason::Expired && self.reason == DrainReason::Preempted
    }
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

    /// Adds a notice that the machine of a node will end. A notice without new information changes
    /// nothing. Returns whether the workers are notified of an end that is no longer the one that
    /// is known.
    pub(crate) fn add(&mut self, node: NodeIndex, machine: &MachineId, notice: Notice, now: Instant) -> bool {
        let known = self.machines.get(machine);
        if known.is_some_and(|known| !notice.replaces(&known.notice)) {
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
        self.forget(machine);
        self.put(machine.clone(), Known { node, notice, due: (!acted).then_some(due), announced });
        announced
    }

    /// Whether the pool has acted on the notice of a machine.
    pub(crate) fn is_acted(&self, machine: &MachineId) -> bool {
        self.machines.get(machine).is_some_and(|known| known.due.is_none())
    }

    /// When the next notice is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Marks that the pool acts on all notices that are due, and returns them.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<Due> {
        let mut all = Vec::new();
        while self.next_due().is_some_and(|due| due <= now) {
            let Some((_, machine)) = self.due.pop_first() else { break };
            let Some(known) = self.machines.get_mut(&machine) else { continue };
            known.due = None;
            all.push(Due { node: known.node, machine, notice: known.notice.clone() });
        }
        all
    }

    /// Marks that the workers on a machine are notified of its end. Returns the node of the
    /// machine, if its end is known.
    pub(crate) fn announce(&mut self, machine: &MachineId) -> Option<NodeIndex> {
        self.change(machine, |known| known.announced = true);
        self.machines.get(machine).map(|known| known.node)
    }

    /// The end of a machine, if its workers are notified of it.
    pub(crate) fn announced(&self, machine: &MachineId) -> Option<&Notice> {
        self.machines.get(machine).filter(|known| known.announced).map(|known| &known.notice)
    }

    /// The nearest of all ends that workers are notified of.
    pub(crate) fn nearest_announced(&self) -> Option<&Notice> {
        self.announced.first().and_then(|(_, machine)| self.announced(machine))
    }

    /// Makes the pool act on the notice of a machine once more, at this time.
    pub(crate) fn again(&mut self, machine: &MachineId, at: Instant) {
        self.change(machine, |known| known.due = Some(at));
    }

    /// Nothing more is done about machines that will end.
    pub(crate) fn give_up(&mut self) {
        self.due.clear();
        self.machines.values_mut().for_each(|known| known.due = None);
    }

    /// Forgets the notice of a machine that is given up.
    pub(crate) fn forget(&mut self, machine: &MachineId) {
        self.take(machine);
    }

    fn change(&mut self, machine: &MachineId, change: impl FnOnce(&mut Known)) {
        if let Some(mut known) = self.take(machine) {
            change(&mut known);
            self.put(machine.clone(), known);
        }
    }

    fn take(&mut self, machine: &MachineId) -> Option<Known> {
        let known = self.machines.remove(machine)?;
        if let Some(due) = known.due {
            self.due.remove(&(due, machine.clone()));
        }
        self.announced.remove(&(known.notice.at, machine.clone()));
        Some(known)
    }

    fn put(&mut self, machine: MachineId, known: Known) {
        if let Some(due) = known.due {
            self.due.insert((due, machine.clone()));
        }
        if known.announced {
            self.announced.insert((known.notice.at, machine.clone()));
        }
        self.machines.insert(machine, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAD: Duration = Duration::from_secs(60);
    const NODE: NodeIndex = NodeIndex(3);

    fn notices() -> Notices {
        let mut notices = Notices::default();
        notices.set_lead(LEAD);
        notices
    }

    fn machine() -> MachineId {
        MachineId::new("m")
    }

    fn add(notices: &mut Notices, notice: Notice, now: Instant) -> bool {
        notices.add(NODE, &machine(), notice, now)
    }

    /// Acts on the notice of the machine, whenever it is due.
    fn act(notices: &mut Notices) -> Option<Notice> {
        let due = notices.next_due()?;
        notices.take_due(due).pop().map(|due| due.notice)
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
            add(&mut notices, notice(reason, now + Duration::from_secs(left)), now);
            assert_eq!(notices.next_due(), Some(now + Duration::from_secs(wanted)), "{reason:?} in {left} s");
            assert!(!notices.is_acted(&machine()));
            assert_eq!(act(&mut notices).unwrap().reason, reason);
            assert_eq!(notices.next_due(), None);
            assert!(notices.is_acted(&machine()));
            notices.forget(&machine());
            assert!(!notices.is_acted(&machine()));
        }
    }

    #[test]
    fn a_repeated_notice_changes_nothing_and_a_preemption_replaces_a_walltime() {
        let (mut notices, now) = (self::notices(), Instant::now());
        let hour = now + Duration::from_secs(3600);
        add(&mut notices, notice(DrainReason::Expired, hour), now);
        let first = notices.next_due();
        add(&mut notices, notice(DrainReason::Expired, hour - Duration::from_secs(1)), now + LEAD);
        assert_eq!(notices.next_due(), first);
        add(&mut notices, notice(DrainReason::Preempted, hour + LEAD), now + LEAD);
        assert_eq!(notices.next_due(), Some(now + LEAD));
        act(&mut notices);
        notices.announce(&machine());
        let nearer = notice(DrainReason::Preempted, now + LEAD * 2);
        assert!(add(&mut notices, nearer.clone(), now + LEAD), "the workers know another end");
        assert_eq!(notices.next_due(), None, "the pool has acted already");
        assert_eq!(notices.announced(&machine()), Some(&nearer));
        assert!(!add(&mut notices, nearer, now + LEAD), "nothing is new");
    }

    #[test]
    fn a_preemption_is_acted_on_after_a_walltime_that_was_not_announced() {
        let (mut notices, now) = (self::notices(), Instant::now());
        add(&mut notices, notice(DrainReason::Expired, now + LEAD * 9), now);
        act(&mut notices);
        assert!(!add(&mut notices, notice(DrainReason::Preempted, now + LEAD * 2), now));
        assert_eq!(notices.next_due(), Some(now));
        assert_eq!(notices.announced(&machine()), None);
    }

    #[test]
    fn a_pool_that_has_failed_acts_on_no_notice_and_still_shows_those_that_it_announced() {
        let (mut notices, now) = (self::notices(), Instant::now());
        add(&mut notices, notice(DrainReason::Preempted, now + LEAD), now);
        notices.announce(&machine());
        notices.give_up();
        assert_eq!(notices.next_due(), None);
        assert!(notices.announced(&machine()).is_some());
    }

    #[test]
    fn all_notices_that_are_due_are_taken_at_once_and_the_others_stay() {
        let (mut notices, now) = (self::notices(), Instant::now());
        let machine = |number: u32| MachineId::new(format!("m-{number}"));
        let ends = [(DrainReason::Expired, 3600), (DrainReason::Preempted, 10), (DrainReason::Preempted, 20)];
        for (number, (reason, left)) in (0..).zip(ends) {
            notices.add(NodeIndex(number), &machine(number), notice(reason, now + Duration::from_secs(left)), now);
        }
        assert_eq!(notices.nearest_announced(), None);
        let due = notices.take_due(now);
        assert_eq!(due.iter().map(|due| due.node.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(notices.next_due(), Some(now + Duration::from_secs(3540)));
        for due in due.iter().rev() {
            assert_eq!(notices.announce(&due.machine), Some(due.node));
        }
        assert_eq!(notices.nearest_announced(), Some(&due[0].notice));
        notices.forget(&machine(1));
        assert_eq!(notices.nearest_announced(), Some(&due[1].notice));
        assert_eq!(notices.announce(&machine(1)), None, "it is forgotten");
    }
}
