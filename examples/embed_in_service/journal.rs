//! The journal of one training: a bounded list of events that any number of followers read, each at
//! its own pace.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::Stream;
use serde::Serialize;
use tokio::sync::watch;

use super::problem::Problem;
use super::training::{Epoch, Report};

/// An event of a training.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    /// The training waits for a worker.
    Queued,
    /// A worker runs the training.
    Started {
        attempt: u32,
        rank: u32,
    },
    /// A line of the training's output.
    Output {
        stream: &'static str,
        line: String,
    },
    /// An epoch has ended.
    Progress(Epoch),
    /// The worker was lost. The training begins again, with its first epoch.
    Retried {
        attempt: u32,
        error: Problem,
    },
    /// The journal had dropped this many events before the follower read them.
    Missed {
        events: u64,
    },
    Finished {
        report: Report,
    },
    Failed {
        error: Problem,
    },
    Cancelled,
}

/// Keeps the latest events. Writing never waits for a follower.
#[derive(Debug)]
pub(crate) struct Journal {
    kept: Mutex<Kept>,
    most: usize,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    /// The number of the next event; the first one has the number 1.
    next: u64,
    ended: bool,
}

/// Events for a follower, with the numbers from which it can continue later.
pub(crate) type Told = (u64, Arc<Event>);

impl Journal {
    pub(crate) fn new(most: usize) -> Self {
        let kept = Kept { next: 1, ..Kept::default() };
        Self { kept: Mutex::new(kept), most: most.max(1), changed: watch::Sender::new(()) }
    }

    pub(crate) fn tell(&self, event: Event) {
        let mut kept = self.lock();
        if kept.events.len() == self.most {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::new(event));
        kept.next += 1;
        drop(kept);
        self.changed.send_replace(());
    }

    /// The last event.
    pub(crate) fn end(&self, event: Event) {
        self.tell(event);
        self.lock().ended = true;
        self.changed.send_replace(());
    }

    /// The events after this number, up to the last one of the training.
    pub(crate) fn follow(self: Arc<Self>, after: u64) -> impl Stream<Item = Told> + Send {
        let changed = self.changed.subscribe();
        futures_util::stream::unfold(
            (self, changed, after.saturating_add(1)),
            |(journal, mut changed, next)| async move {
                loop {
                    changed.mark_unchanged();
                    match journal.read(next) {
                        Some(Some((number, event))) => return Some(((number, event), (journal, changed, number + 1))),
                        Some(None) => changed.changed().await.ok()?,
                        None => return None,
                    }
                }
            },
        )
    }

    /// The event with this number, or the number of missed events if the journal has dropped it.
    /// `Some(None)`: the event has not happened yet. `None`: the training has ended before it.
    fn read(&self, next: u64) -> Option<Option<Told>> {
        let kept = self.lock();
        let oldest = kept.next - kept.events.len() as u64;
        if next < oldest {
            return Some(Some((oldest - 1, Arc::new(Event::Missed { events: oldest - next }))));
        }
        match kept.events.get((next - oldest) as usize) {
            Some(event) => Some(Some((next, Arc::clone(event)))),
            None if kept.ended => None,
            None => Some(None),
        }
    }

    /// A panic cannot leave the list half changed, so a poisoned lock is usable.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Event {
    /// The event's name on the wire.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Started { .. } => "started",
            Self::Output { .. } => "output",
            Self::Progress(_) => "progress",
            Self::Retried { .. } => "retried",
            Self::Missed { .. } => "missed",
            Self::Finished { .. } => "finished",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}
