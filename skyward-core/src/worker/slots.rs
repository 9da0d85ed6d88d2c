//! The payloads that a worker keeps, by the digest of their source, in a limited number of slots.
//! No I/O.

use std::collections::HashMap;

/// The slots of one worker. A loaded payload takes a free slot, or that of the payload that was
/// used longest ago.
#[derive(Debug, Default)]
pub(super) struct Slots {
    by_digest: HashMap<String, u32>,
    slots: Vec<Option<Slot>>,
}

#[derive(Debug)]
struct Slot {
    digest: String,
    /// The run before which it was loaded.
    since: u64,
    /// The last run that uses it.
    used: u64,
}

impl Slots {
    /// The slot of a payload that the worker keeps, for this run.
    pub(super) fn get(&mut self, digest: &str, run: u64) -> Option<u32> {
        let number = *self.by_digest.get(digest)?;
        self.slots[number as usize].as_mut()?.used = run;
        Some(number)
    }

    /// Assigns a slot to a payload that is loaded just before this run.
    pub(super) fn take(&mut self, digest: &str, run: u64) -> u32 {
        let number = self.free();
        if let Some(old) = self.slots[number].replace(Slot { digest: digest.to_owned(), since: run, used: run }) {
            self.by_digest.remove(&old.digest);
        }
        self.by_digest.insert(digest.to_owned(), number as u32);
        number as u32
    }

    /// Forgets what was loaded after this run, because the worker may not have received it.
    pub(super) fn forget_after(&mut self, received: u64) {
        for slot in &mut self.slots {
            if let Some(lost) = slot.take_if(|slot| slot.since > received) {
                self.by_digest.remove(&lost.digest);
            }
        }
    }

    fn free(&mut self) -> usize {
        if let Some(free) = self.slots.iter().position(Option::is_none) {
            return free;
        }
        if self.slots.len() < SLOTS {
            self.slots.push(None);
            return self.slots.len() - 1;
        }
        let used = self.slots.iter().map(|slot| slot.as_ref().map_or(0, |slot| slot.used));
        used.enumerate().min_by_key(|(_, used)| *used).map_or(0, |(number, _)| number)
    }
}

/// The number of payloads that a worker keeps.
pub(super) const SLOTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn load(slots: &mut Slots, digest: &str, run: u64) -> (u32, bool) {
        match slots.get(digest, run) {
            Some(slot) => (slot, false),
            None => (slots.take(digest, run), true),
        }
    }

    #[test]
    fn the_payload_that_was_used_longest_ago_is_replaced() {
        let mut slots = Slots::default();
        for run in 0..SLOTS as u64 {
            assert_eq!(load(&mut slots, &run.to_string(), run), (run as u32, true));
        }
        assert_eq!(load(&mut slots, "0", 1000), (0, false));
        assert_eq!(load(&mut slots, "more", 1001), (1, true));
        assert_eq!(load(&mut slots, "0", 1002), (0, false));
        assert_eq!(load(&mut slots, "1", 1003), (2, true));
    }

    #[test]
    fn the_table_is_no_larger_than_the_slots() {
        let mut slots = Slots::default();
        for run in 0..10 * SLOTS as u64 {
            assert!((load(&mut slots, &run.to_string(), run).0 as usize) < SLOTS);
        }
        assert_eq!(slots.by_digest.len(), SLOTS);
        assert_eq!(slots.slots.len(), SLOTS);
    }

    #[test]
    fn a_payload_of_a_run_that_did_not_arrive_is_loaded_again() {
        let mut slots = Slots::default();
        assert!(load(&mut slots, "a", 1).1);
        assert!(load(&mut slots, "b", 3).1);
        slots.forget_after(2);
        assert!(!load(&mut slots, "a", 4).1);
        assert!(load(&mut slots, "b", 4).1);
        slots.forget_after(4);
        assert!(!load(&mut slots, "b", 5).1);
    }
}
