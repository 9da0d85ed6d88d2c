//! The pace of a provider: calls of one kind wait for their turns, whichever pool makes them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::lock;
use super::timing::LONGEST_TURN_WAIT;
use crate::error::Result;
use crate::provider::Provider;

/// The lines in which the calls of a wrapper wait, once the provider's identity is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace(Arc<OnceLock<Arc<Lines>>>);

/// A line for each kind of call.
type Lines = Mutex<BTreeMap<&'static str, Arc<Line>>>;

impl Pace {
    /// Waits until a call of this kind may be made. Returns at once where the provider has no
    /// [pace](crate::provider::Capabilities::pace).
    ///
    /// # Errors
    ///
    /// The provider cannot report its identity.
    ///
    /// # Cancel safety
    ///
    /// Gives the turn to the next call in the line.
    pub(super) async fn turn(&self, provider: &dyn Provider, kind: &'static str) -> Result<()> {
        let pace = provider.capabilities().pace;
        if pace.is_zero() {
            return Ok(());
        }
        if self.0.get().is_none() {
            self.learn(provider.name(), &provider.identity().await?);
        }
        let line = self.0.get().map(|lines| Arc::clone(lock(lines).entry(kind).or_default()));
        if let Some(line) = line {
            line.turn(pace.min(LONGEST_TURN_WAIT)).await;
        }
        Ok(())
    }

    /// Notes the provider's identity, by which other wrappers of the provider find the same lines.
    pub(super) fn learn(&self, name: &str, identity: &str) {
        self.0.get_or_init(|| {
            let key = (name.to_owned(), identity.to_owned());
            Arc::clone(lock(&LINES).entry(key).or_default())
        });
    }
}

/// Calls of one kind, in the order in which they came.
#[derive(Debug, Default)]
struct Line {
    waiting: Mutex<Waiting>,
    /// Notified when a call leaves the line without having had its turn.
    moved: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// When the first in the line may go; none before the first call.
    next: Option<Instant>,
    tickets: VecDeque<u64>,
    last: u64,
}

impl Line {
    /// No lock is held while a call waits: a future that is not polled, for instance because its
    /// runtime does not run, would keep all others waiting. It loses its place when the turn of
    /// somebody behind it comes.
    async fn turn(&self, pace: Duration) {
        let ticket = Ticket { line: self, number: lock(&self.waiting).join(Instant::now()) };
        loop {
            // Made before the look at the line, so that no change between the two is missed.
            let moved = self.moved.notified();
            let Some(time) = lock(&self.waiting).time(ticket.number, pace, Instant::now()) else { return };
            tokio::select! {
                () = sleep_until(time) => {}
                () = moved => {}
            }
        }
    }
}

impl Waiting {
    fn join(&mut self, now: Instant) -> u64 {
        if self.tickets.is_empty() {
            self.next = self.next.max(Some(now));
        }
        self.last += 1;
        self.tickets.push_back(self.last);
        self.last
    }

    /// When the call with this ticket may go; none if it goes now.
    fn time(&mut self, ticket: u64, pace: Duration, now: Instant) -> Option<Instant> {
        let place = self.tickets.iter().position(|other| *other == ticket).unwrap_or_else(|| {
            self.tickets.push_back(ticket);
            self.tickets.len() - 1
        });
        let before = pace.saturating_mul(u32::try_from(place).unwrap_or(u32::MAX)).min(LONGEST_TURN_WAIT);
        let time = self.next.unwrap_or(now) + before;
        if time > now {
            return Some(time);
        }
        self.tickets.drain(..=place);
        self.next = Some(now + pace);
        None
    }
}

/// The place of a call in a line, which it leaves when it is dropped.
struct Ticket<'a> {
    line: &'a Line,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.line.waiting);
        let before = waiting.tickets.len();
        waiting.tickets.retain(|other| *other != self.number);
        if waiting.tickets.len() < before {
            self.line.moved.notify_waiters();
        }
    }
}

/// The lines of each provider that has a pace, by its name and identity: pools that do not know of
/// each other ask one service.
static LINES: Mutex<BTreeMap<(String, String), Arc<Lines>>> = Mutex::new(BTreeMap::new());
