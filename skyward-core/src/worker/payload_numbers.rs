//! The payloads that a worker keeps, by the digest of their source, each under a number.
//! No I/O.

use std::collections::HashMap;

/// The payload numbers of one worker. A loaded payload takes a free number, or that of the payload
/// that was used longest ago.
#[derive(Debug, Default)]
pub(super) struct PayloadNumbers {
    by_digest: HashMap<String, u32>,
    kept: Vec<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    digest: String,
    /// The run before which it was loaded.
    since: u64,
    /// The last run that uses it.
    used: u64,
}

impl PayloadNumbers {
    /// The number of a payload that the worker keeps, for this run.
    pub(super) fn get(&mut self, digest: &str, run: u64) -> Option<u32> {
        let number = *self.by_digest.get(digest)?;
        self.kept[number as usize].as_mut()?.used = run;
        Some(number)
    }

    /// Assigns a number to a payload that is loaded just before this run.
    pub(super) fn take(&mut self, digest: &str, run: u64) -> u32 {
        let number = self.free();
        if let Some(old) = self.kept[number].replace(Kept { digest: digest.to_owned(), since: run, used: run }) {
            self.by_digest.remove(&old.digest);
        }
        self.by_digest.insert(digest.to_owned(), number as u32);
        number as u32
    }

    /// Forgets what was loaded after this run, because the worker may not have received it.
    pub(super) fn forget_after(&mut self, received: u64) {
        for kept in &mut self.kept {
            if let Some(lost) = kept.take_if(|kept| kept.since > received) {
                self.by_digest.remove(&lost.digest);
            }
        }
    }

    fn free(&mut self) -> usize {
        if let Some(free) = self.kept.iter().position(Option::is_none) {
            return free;
        }
        if self.kept.len() < PAYLOADS {
            self.kept.push(None);
            return self.kept.len() - 1;
        }
        let used = self.kept.iter().map(|kept| kept.as_ref().map_or(0, |kept| kept.used));
        used.enumerate().min_by_key(|(_, used)| *used).map_or(0, |(number, _)| number)
    }
}

/// The number of payloads that a worker keeps.
pub(super) const PAYLOADS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn load(numbers: &mut PayloadNumbers, digest: &str, run: u64) -> (u32, bool) {
        match numbers.get(digest, run) {
            Some(number) => (number, false),
            None => (numbers.take(digest, run), true),
        }
    }

    #[test]
    fn the_payload_that_was_used_longest_ago_is_replaced() {
        let mut numbers = PayloadNumbers::default();
        for run in 0..PAYLOADS as u64 {
            assert_eq!(load(&mut numbers, &run.to_string(), run), (run as u32, true));
        }
        assert_eq!(load(&mut numbers, "0", 1000), (0, false));
        assert_eq!(load(&mut numbers, "more", 1001), (1, true));
        assert_eq!(load(&mut numbers, "0", 1002), (0, false));
        assert_eq!(load(&mut numbers, "1", 1003), (2, true));
    }

    #[test]
    fn the_table_is_no_larger_than_a_worker_keeps() {
        let mut numbers = PayloadNumbers::default();
        for run in 0..10 * PAYLOADS as u64 {
            assert!((load(&mut numbers, &run.to_string(), run).0 as usize) < PAYLOADS);
        }
        assert_eq!(numbers.by_digest.len(), PAYLOADS);
        assert_eq!(numbers.kept.len(), PAYLOADS);
    }

    #[test]
    fn a_payload_of_a_run_that_did_not_arrive_is_loaded_again() {
        let mut numbers = PayloadNumbers::default();
        assert!(load(&mut numbers, "a", 1).1);
        assert!(load(&mut numbers, "b", 3).1);
        numbers.forget_after(2);
        assert!(!load(&mut numbers, "a", 4).1);
        assert!(load(&mut numbers, "b", 4).1);
        numbers.forget_after(4);
        assert!(!load(&mut numbers, "b", 5).1);
    }
}
