//! What the events of a rehearsed pool tell.

use std::time::Duration;

use tokio::time::Instant;

use super::finding::{Failure, Finding, FindingKind, Stage};
use crate::error::{Error, ErrorKind, RankStacks, WorkerExit, silence};
use crate::event::{EventItem, Events, PoolEvent};
use crate::ids::Rank;

/// What the events have told so far.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Ends of workers, the first one first, without those that followed from another's.
    pub(super) exits: Vec<(Rank, WorkerExit)>,
    pub(super) stalls: Vec<Stall>,
    /// Errors after which there was another try.
    pub(super) retried: Vec<Error>,
    /// How many events were dropped before they were read.
    missed: u64,
    /// Whether they were read up to the last one.
    complete: bool,
}

/// A report of ranks that made no progress.
#[derive(Debug)]
pub(super) struct Stall {
    /// When it came.
    at: Instant,
    pub(super) silent: Duration,
    /// Where each rank was.
    pub(super) stacks: Vec<RankStacks>,
    /// Whether a rank has given a sign since.
    went_on: bool,
}

impl Told {
    /// Reads all events up to the pool's end. What was read before it is dropped stays.
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
                // Any of them may have been a sign.
                return self.go_on();
            }
        };
        match &**event {
            PoolEvent::WorkerExited { rank, exit } if *exit != WorkerExit::WorldEnded => {
                self.exits.push((*rank, exit.clone()));
            }
            PoolEvent::GangStalled { silent, stacks, .. } => {
                self.stalls.push(Stall { at: now, silent: *silent, stacks: stacks.to_vec(), went_on: false });
            }
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

    fn go_on(&mut self) {
        if let Some(stall) = self.stalls.last_mut() {
            stall.went_on = true;
        }
    }

    /// Adds where the ranks of a call were that did not return in time, where they were asked
    /// shortly before it ended and have given no sign since. A gang without progress is ended
    /// after `longest`, so one that was asked before that has gone on.
    pub(super) fn add_places(&self, failure: &mut Failure, ended: Instant, longest: Duration) {
        let is_late = failure.stage == Stage::Call && failure.error.kind() == ErrorKind::Timeout;
        let Some(stall) = self.stalls.last().filter(|stall| is_late && !stall.went_on) else { return };
        let ago = ended.saturating_duration_since(stall.at);
        if ago > longest.saturating_sub(stall.silent) + LATE {
            return;
        }
        let (message, places) = (failure.error.message(), silence(stall.silent, &stall.stacks));
        let message = format!("{message}; when they were asked {ago:.0?} before that, {places}");
        failure.error = failure.error.clone().with_message(message).with_stacks(stall.stacks.clone());
    }

    /// That not all was heard, so that what is not told may have happened all the same.
    pub(super) fn gaps(&self) -> Option<Finding> {
        let message = match (self.missed, self.complete) {
            (0, true) => return None,
            (0, false) => format!("the rehearsed pool had not told its end {LAST:?} after it was over"),
            (1, _) => "1 event of the rehearsed pool was dropped before it was read".to_owned(),
            (missed, _) => format!("{missed} events of the rehearsed pool were dropped before they were read"),
        };
        Some(Finding {
            kind: FindingKind::Missed,
            ranks: Vec::new(),
            message: format!("{message}: what they told is not here, so this report cannot vouch for the call"),
            hint: "let the payload write less (fewer steps, `@sky.silent`), do not block the runtime of this program \
                   meanwhile, and rehearse again"
                .to_owned(),
            error: None,
        })
    }
}

/// What the last events get to come, after the pool is over.
pub(super) const LAST: Duration = Duration::from_secs(5);
/// How late the end of a gang without progress may be: ranks get 5 seconds to say where they are.
const LATE: Duration = Duration::from_secs(6);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::{Output, OutputStream};
    use crate::ids::{Attempt, Generation, NodeIndex, TaskId};
    use crate::pool::events::EventBuffer;

    const STALL: Duration = Duration::from_secs(60);

    fn retried() -> PoolEvent {
        PoolEvent::TaskRetried { task: TaskId(1), attempt: Attempt(2), error: Error::new(ErrorKind::Io, "it broke") }
    }

    fn output() -> PoolEvent {
        let (node, rank) = (NodeIndex(0), Rank(0));
        PoolEvent::Output(Output::new(node, rank, OutputStream::Stdout, Generation(1), 0, &b"."[..]))
    }

    fn stalled() -> PoolEvent {
        let text = "Current thread 0x1 (most recent call first):\n  File \"a.py\", line 5 in meet\n";
        PoolEvent::GangStalled {
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

    /// What a call that ended so long after its last event is told with.
    fn told(events: Vec<PoolEvent>, after: Duration) -> Failure {
        let (mut told, now) = (Told::default(), Instant::now());
        events.into_iter().for_each(|event| told.take(&EventItem::Event(Arc::new(event)), now));
        let mut failure = late();
        told.add_places(&mut failure, now + after, STALL);
        failure
    }

    #[tokio::test]
    async fn all_that_waits_is_read_however_much_that_is() {
        let buffer = EventBuffer::new();
        let events = buffer.subscribe();
        // More than a task may do at a time before the runtime has it wait.
        for _ in 0..1000 {
            buffer.send(retried());
        }
        buffer.send(PoolEvent::Closed);
        let mut told = Told::default();
        told.follow(events).await;
        assert_eq!(told.retried.len(), 1000);
        assert!(told.gaps().is_none());
    }

    #[tokio::test]
    async fn events_that_were_missed_are_a_finding() {
        let buffer = EventBuffer::new();
        let events = buffer.subscribe();
        for _ in 0..5000 {
            buffer.send(output());
        }
        buffer.send(PoolEvent::Closed);
        let mut told = Told::default();
        told.follow(events).await;
        let gap = told.gaps().unwrap();
        assert_eq!((gap.kind, gap.is_hint()), (FindingKind::Missed, false));
        assert!(gap.message.starts_with("905 events of the rehearsed pool were dropped"), "{gap}");
        assert!(gap.hint.contains("rehearse again"), "{gap}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_that_never_tells_its_end_is_a_finding() {
        let buffer = EventBuffer::new();
        let events = buffer.subscribe();
        buffer.send(retried());
        let mut told = Told::default();
        assert!(tokio::time::timeout(LAST, told.follow(events)).await.is_err());
        assert_eq!(told.retried.len(), 1, "what came stays");
        assert!(told.gaps().unwrap().message.starts_with("the rehearsed pool had not told its end 5s after"));
    }

    #[test]
    fn a_call_that_is_late_is_told_with_the_places_of_shortly_before() {
        let failure = told(vec![output(), stalled()], Duration::from_secs(20));
        assert_eq!(
            failure.error.message(),
            "the task ran too long; when they were asked 20s before that, no rank of the gang made progress for 30s: \
             rank 0 was in `meet` (a.py:5)"
        );
        assert_eq!(failure.error.stacks().len(), 1);
        assert_eq!((failure.error.hint(), failure.error.context().len()), (Some("give it more"), 1), "nothing is lost");
    }

    #[test]
    fn places_of_long_before_are_left_out() {
        let second = Duration::from_secs(1);
        let started = PoolEvent::TaskStarted { task: TaskId(1), attempt: Attempt(1), rank: Rank(1) };
        for (events, after) in [
            // Had there been no sign since, the gang would have been ended.
            (vec![stalled()], 40 * second),
            (vec![stalled(), output()], second),
            (vec![stalled(), retried(), started], second),
        ] {
            let failure = told(events, after);
            assert_eq!((failure.error.message(), failure.error.stacks().len()), ("the task ran too long", 0));
        }
    }
}
