//! How far a run has come: which of its rounds have ended, how long they took, and what they cost.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde::Serialize;

use crate::count::Counts;

/// The rounds of a run that have ended. They end in any order.
pub(crate) struct Progress {
    /// The first round that has not ended.
    next: u64,
    /// Where the rounds of the run end.
    end: u64,
    /// The rounds after `next` that have ended.
    ahead: BTreeSet<u64>,
    counts: Counts,
    failed: Vec<FailedRound>,
}

/// What a run prints as its last line.
#[derive(Serialize)]
pub(crate) struct Summary<'a> {
    #[serde(flatten)]
    counts: &'a Counts,
    seconds: f64,
    /// Of the run's time, not of the round's own: rounds run at the same time.
    seconds_per_round: Option<f64>,
    failed_rounds: &'a [FailedRound],
    /// The round from which the run can be continued, if some round has not ended.
    continue_from: Option<u64>,
}

/// A round that failed, with its own time.
#[derive(Debug, PartialEq, Serialize)]
struct FailedRound {
    round: u64,
    seconds: f64,
}

impl Progress {
    pub(crate) fn new(rounds: Range<u64>) -> Self {
        let (next, end) = (rounds.start, rounds.end);
        Self { next, end, ahead: BTreeSet::new(), counts: Counts::default(), failed: Vec::new() }
    }

    /// Adds a round that has ended.
    pub(crate) fn on_ended(&mut self, round: u64, counts: &Counts, took: Duration) {
        self.counts += counts;
        if !counts.is_clean() {
            self.failed.push(FailedRound { round, seconds: seconds(took) });
        }
        self.ahead.insert(round);
        while self.ahead.remove(&self.next) {
            self.next += 1;
        }
    }

    /// The first round that has not ended.
    pub(crate) fn next(&self) -> Option<u64> {
        (self.next < self.end).then_some(self.next)
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The counts and times after so much time.
    pub(crate) fn summary(&self, elapsed: Duration) -> Summary<'_> {
        let rounds = u32::try_from(self.counts.rounds).ok();
        Summary {
            counts: &self.counts,
            seconds: seconds(elapsed),
            seconds_per_round: rounds.and_then(|rounds| elapsed.checked_div(rounds)).map(seconds),
            failed_rounds: &self.failed,
            continue_from: self.next(),
        }
    }
}

/// One line of JSON.
impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

/// To a hundredth.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean() -> Counts {
        Counts { rounds: 1, tasks: 4, ..Counts::default() }
    }

    fn after(rounds: Range<u64>, ended: &[u64]) -> Progress {
        let mut progress = Progress::new(rounds);
        ended.iter().for_each(|round| progress.on_ended(*round, &clean(), Duration::from_secs(2)));
        progress
    }

    #[test]
    fn a_run_continues_from_the_first_round_that_has_not_ended() {
        assert_eq!(after(0..500, &[]).next(), Some(0));
        assert_eq!(after(0..500, &[0, 1, 2]).next(), Some(3));
        // With four jobs, rounds after the one that still runs have ended.
        assert_eq!(after(120..500, &[121, 122, 124]).next(), Some(120));
        assert_eq!(after(120..500, &[121, 122, 124, 120]).next(), Some(123));
        assert_eq!(after(120..123, &[122, 120]).next(), Some(121));
        assert_eq!(after(120..123, &[122, 120, 121]).next(), None);
        assert_eq!(after(13..14, &[13]).next(), None);
    }

    #[test]
    fn the_summary_has_the_verdict_the_times_and_the_failed_rounds() {
        let mut progress = after(0..4, &[0]);
        let failed = Counts { rounds: 1, lost: 2, ..Counts::default() };
        progress.on_ended(2, &failed, Duration::from_millis(3456));
        let line = progress.summary(Duration::from_secs(5)).to_string();
        assert!(line.starts_with(r#"{"rounds":2,"tasks":4,"lost":2,"doubled":0,"left_running":0,"#), "{line}");
        let times =
            r#""seconds":5.0,"seconds_per_round":2.5,"failed_rounds":[{"round":2,"seconds":3.46}],"continue_from":1}"#;
        assert!(line.ends_with(times), "{line}");
    }

    #[test]
    fn a_run_without_a_round_has_no_time_for_each() {
        let line = after(0..4, &[]).summary(Duration::from_secs(5)).to_string();
        assert!(line.contains(r#""seconds_per_round":null"#), "{line}");
    }
}
