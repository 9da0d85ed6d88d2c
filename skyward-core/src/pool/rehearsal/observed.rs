//! Reads the events of a rehearsed pool and keeps those that explain the outcome of the call.

use std::time::Duration;

use tokio::time::Instant;

use super::finding::{Failure, Finding, FindingKind, Stage};
use super::timing::{LAST_EVENTS, STALL_END};
use crate::error::{Error, ErrorKind, RankStacks, WorkerExit, silence};
use crate::event::{EventItem, Events, PoolEvent};
use crate::ids::Rank;

/// What the events have reported so far.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Ends of workers in their order, without workers that ended because another worker of their
    /// world had ended.
    pub(super) exits: Vec<(Rank, WorkerExit)>,
    pub(super) stalls: Vec<Stall>,
    /// What had no effect, with the ranks on which it had none.
    pub(super) warnings: Vec<Finding>,
    /// Errors after which the task was tried again.
    pub(super) retried: Vec<Error>,
    /// The number of events that were dropped before they were read.
    missed: u64,
    /// Whether all events were read up to the last one.
    complete: bool,
}

/// A report of ranks that made no progress.
#[derive(Debug)]
pub(super) struct Stall {
    /// When the report came.
    at: Instant,
    pub(super) silent: Duration,
    /// Where each rank was.
    pub(super) stacks: Vec<RankStacks>,
    /// Whether a rank has shown progress since the report.
    went_on: bool,
}

impl Observed {
    /// Reads all events up to the pool's end. When the future is dropped, the events read so far
    /// are kept.
    pub(super) async fn follow(&mut self, mut events: Events) {
        while let Some(item) = events.next().await {
            self.take(&item, Instant::now());
        }
        self.complete = true;
    }

    fn take(&mut self, item: &EventItem, now: Instant) {
        let event = match item {
            EventItem::Event(event) => event,
            EventItem::Missed(missed) => {
                self.missed += missed;
                // Any of the missed events may have been a sign of progress.
                return self.go_on();
            }
        };
        match &**event {
            PoolEvent::WorkerExited { rank, exit } if *exit != WorkerExit::WorldEnded => {
                self.exits.push((*rank, exit.clone()));
            }
            PoolEvent::TaskStalled { silent, stacks, .. } => {
                self.stalls.push(Stall { at: now, silent: *silent, stacks: stacks.to_vec(), went_on: false });
            }
            PoolEvent::TaskWarned { rank, message, hint, .. } => self.warn(*rank, message, hint),
            PoolEvent::TaskRetried { error, .. } => {
                self.retried.push(error.clone());
                self.go_on();
            }
            PoolEvent::Output(_)
            | PoolEvent::Report(_)
            | PoolEvent::TaskStarted { .. }
            | PoolEvent::TaskFinished { .. } => self.go_on(),
            _ => {}
        }
    }

    fn warn(&mut self, rank: Rank, message: &str, hint: &str) {
        if let Some(known) = self.warnings.iter_mut().find(|one| one.message == message) {
            // A task that is tried again warns again.
            if let Err(place) = known.ranks.binary_search(&rank) {
                known.ranks.insert(place, rank);
            }
            return;
        }
        self.warnings.push(Finding {
            kind: FindingKind::NoEffect,
            ranks: vec![rank],
            message: message.to_owned(),
            hint: hint.to_owned(),
            error: None,
        });
    }

    fn go_on(&mut self) {
        if let Some(stall) = self.stalls.last_mut() {
            stall.went_on = true;
        }
    }

    /// For a call that did not return in time: adds where its ranks were, unless its error has that.
    /// A stall report is used if it came shortly before the call ended and no rank has shown progress since. A gang without
    /// progress is ended after `longest`, so a gang with an older report has made progress since
    /// then.
    pub(super) fn add_places(&self, failure: &mut Failure, ended: Instant, longest: Duration) {
        let is_late = failure.stage == Stage::Call && failure.error.kind() == ErrorKind::Timeout;
        let is_late = is_late && failure.error.stacks().is_empty();
        let Some(stall) = self.stalls.last().filter(|stall| is_late && !stall.went_on) else { return };
        let ago = ended.saturating_duration_since(stall.at);
        if ago > longest.saturating_sub(stall.silent) + STALL_END {
            return;
        }
        let (message, places) = (failure.error.message(), silence(stall.silent, &stall.stacks));
        let message = format!("{message}; at the last report, {ago:.0?} before that, {places}");
        failure.error = failure.error.clone().with_message(message).with_stacks(stall.stacks.clone());
    }

    /// A finding if events were missed, because there may be problems that no event reported.
    pub(super) fn gaps(&self) -> Option<Finding> {
        let message = match (self.missed, self.complete) {
            (0, true) => return None,
            (0, false) => format!("the rehearsed pool had not reported its end {LAST_EVENTS:?} after it had ended"),
            (1, _) => "1 event of the rehearsed pool was dropped before it was read".to_owned(),
            (missed, _) => format!("{missed} events of the rehearsed pool were dropped before they were read"),
        };
        Some(Finding {
            kind: FindingKind::Missed,
            ranks: Vec::new(),
            message: format!("{message}; problems of the call may be missing from this report"),
            hint: "reduce the output of the payload (fewer steps, `@sky.silent`), do not block the runtime of this program \
                   during the rehearsal, and rehearse again"
                .to_owned(),
            error: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::{OutputChunk, OutputStream};
    use crate::ids::{Attempt, Generation, NodeIndex, TaskId};
    use crate::pool::tasks::events::EventBuffer;

    const STALL: Duration = Duration::from_secs(60);

    fn retried() -> PoolEvent {
        PoolEvent::TaskRetried { task: TaskId(1), attempt: Attempt(2), error: Error::new(ErrorKind::Io, "it broke") }
    }

    fn output() -> PoolEvent {
        let (node, rank) = (NodeIndex(0), Rank(0));
        PoolEvent::Output(OutputChunk::new(node, rank, OutputStream::Stdout, Generation(1), 0, &b"."[..]))
    }

    fn stalled() -> PoolEvent {
        let text = "Current thread 0x1 (most recent call first):\n  File \"a.py\", line 5 in meet\n";
        PoolEvent::TaskStalled {
            task: TaskId(1),
            entry: "f".into(),
            payload: "a.py".into(),
            silent: STALL / 2,
            message: "no progress".into(),
            stacks: Arc::new([RankStacks::new(Rank(0), text, 1000)]),
        }
    }

    fn late() -> Failure {
        let error = Error::new(ErrorKind::Timeout, "the task ran too long").with_hint("give it more");
        Failure { stage: Stage::Call, ranks: vec![Rank(0)], error: error.with_context("task", 7) }
    }

    /// The failure of a call that ended `after` its last event, with what the events add to it.
    fn observed(events: Vec<PoolEvent>, after: Duration) -> Failure {
        let (mut observed, now) = (Observed::default(), Instant::now());
        events.into_iter().for_each(|event| observed.take(&EventItem::Event(Arc::new(event)), now));
        let mut failure = late();
        observed.add_places(&mut failure, now + after, STALL);
        failure
    }

    #[tokio::test]
    async fn all_queued_events_are_read() {
        let buffer = EventBuffer::default();
        let events = buffer.subscribe();
        // More events than a tokio task may read before it must yield to the runtime.
        for _ in 0..1000 {
            buffer.send(retried());
        }
        buffer.send(PoolEvent::Closed);
        let mut observed = Observed::default();
        observed.follow(events).await;
        assert_eq!(observed.retried.len(), 1000);
        assert!(observed.gaps().is_none());
    }

    #[tokio::test]
    async fn events_that_were_missed_are_a_finding() {
        let buffer = EventBuffer::default();
        let events = buffer.subscribe();
        for _ in 0..5000 {
            buffer.send(output());
        }
        buffer.send(PoolEvent::Closed);
        let mut observed = Observed::default();
        observed.follow(events).await;
        let gap = observed.gaps().unwrap();
        assert_eq!(gap.kind, FindingKind::Missed);
        assert!(!gap.is_hint());
        assert!(gap.message.starts_with("905 events of the rehearsed pool were dropped"), "{gap}");
        assert!(gap.hint.contains("rehearse again"), "{gap}");
    }

    #[test]
    fn the_same_warning_of_several_ranks_is_one_finding() {
        let mut observed = Observed::default();
        let warned = |rank, message: &str| PoolEvent::TaskWarned {
            task: TaskId(1),
            rank: Rank(rank),
            message: message.into(),
            hint: "change it".into(),
        };
        for event in [warned(2, "a"), warned(0, "a"), warned(1, "b"), warned(0, "a")] {
            observed.take(&EventItem::Event(Arc::new(event)), Instant::now());
        }
        let found: Vec<_> = observed.warnings.iter().map(|one| (one.message.as_str(), one.ranks.clone())).collect();
        assert_eq!(found, [("a", vec![Rank(0), Rank(2)]), ("b", vec![Rank(1)])]);
        let text = observed.warnings[0].to_string();
        assert_eq!(text, "no effect, ranks 0, 2: a\nhint: change it");
        assert!(!observed.warnings[0].is_hint());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_that_never_reports_its_end_is_a_finding() {
        let buffer = EventBuffer::default();
        let events = buffer.subscribe();
        buffer.send(retried());
        let mut observed = Observed::default();
        assert!(tokio::time::timeout(LAST_EVENTS, observed.follow(events)).await.is_err());
        assert_eq!(observed.retried.len(), 1, "events that were read are kept");
        assert!(observed.gaps().unwrap().message.starts_with("the rehearsed pool had not reported its end 5s after"));
    }

    #[test]
    fn the_error_of_a_late_call_shows_where_its_ranks_were_shortly_before() {
        let failure = observed(vec![output(), stalled()], Duration::from_secs(20));
        assert_eq!(
            failure.error.message(),
            "the task ran too long; at the last report, 20s before that, no progress for 30s: \
             rank 0 was in `meet` (a.py:5)"
        );
        assert_eq!(failure.error.stacks().len(), 1);
        assert_eq!(failure.error.hint(), Some("give it more"), "hint and context are kept");
        assert_eq!(failure.error.context().len(), 1, "hint and context are kept");
    }

    #[test]
    fn outdated_reports_of_where_ranks_were_are_left_out() {
        let second = Duration::from_secs(1);
        let started = PoolEvent::TaskStarted { task: TaskId(1), attempt: Attempt(1), rank: Rank(1) };
        for (events, after) in [
            // Without a sign of progress since, the gang would have been ended by now.
            (vec![stalled()], 40 * second),
            (vec![stalled(), output()], second),
            (vec![stalled(), retried(), started], second),
        ] {
            let failure = observed(events, after);
            assert_eq!(failure.error.message(), "the task ran too long");
            assert_eq!(failure.error.stacks().len(), 0);
        }
    }
}
