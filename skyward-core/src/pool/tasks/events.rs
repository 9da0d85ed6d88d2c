//! Buffers the events that readers have not read yet, with a bound on their number, and for large
//! events also on their bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::broadcast;

use crate::event::{EventItem, Events, PoolEvent};

/// Sends events to all present readers.
#[derive(Debug)]
pub(crate) struct EventBuffer {
    sender: broadcast::Sender<Item>,
    large: Mutex<Large>,
}

#[derive(Debug, Clone)]
enum Item {
    Small(Arc<PoolEvent>),
    /// An event that may be dropped before it is read.
    Large(Arc<Droppable>),
}

type Droppable = Mutex<Option<Arc<PoolEvent>>>;

/// Large events that a reader may still have to read, the oldest first, and the sum of their bytes.
#[derive(Debug, Default)]
struct Large {
    events: VecDeque<(Weak<Droppable>, usize)>,
    bytes: usize,
}

impl EventBuffer {
    pub(crate) fn has_readers(&self) -> bool {
        self.sender.receiver_count() > 0
    }

    pub(crate) fn send(&self, event: PoolEvent) {
        if !self.has_readers() {
            return;
        }
        let bytes = event.size();
        let event = Arc::new(event);
        let item = if bytes < SMALL {
            Item::Small(event)
        } else {
            let event = Arc::new(Mutex::new(Some(event)));
            self.make_room(Arc::downgrade(&event), bytes);
            Item::Large(event)
        };
        // Sending fails only without a reader; then the event is not needed.
        let _ = self.sender.send(item);
    }

    /// A reader of all events from now on.
    pub(crate) fn subscribe(&self) -> Events {
        let reader = Reader { receiver: self.sender.subscribe(), missed: 0, next: None };
        Events::new(futures_util::stream::unfold(Some(reader), |reader| async move { reader?.item().await }))
    }

    /// Drops the oldest large events if they take more bytes, together with this event, than may be
    /// kept.
    fn make_room(&self, event: Weak<Droppable>, bytes: usize) {
        let mut large = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        large.events.push_back((event, bytes));
        large.bytes += bytes;
        while large.bytes > BYTES && large.events.len() > 1 {
            let Some((oldest, bytes)) = large.events.pop_front() else { return };
            large.bytes -= bytes;
            // An event that all readers have read is gone already.
            if let Some(oldest) = oldest.upgrade() {
                oldest.lock().unwrap_or_else(PoisonError::into_inner).take();
            }
        }
    }
}

impl Default for EventBuffer {
    fn default() -> Self {
        Self { sender: broadcast::channel(EVENTS).0, large: Mutex::default() }
    }
}

/// A reader of the events.
struct Reader {
    receiver: broadcast::Receiver<Item>,
    missed: u64,
    next: Option<Arc<PoolEvent>>,
}

impl Reader {
    async fn item(mut self) -> Option<(EventItem, Option<Self>)> {
        loop {
            if let Some(event) = self.next.take() {
                // Handles may keep the channel open, but no event follows this one.
                let closed = matches!(*event, PoolEvent::Closed);
                return Some((EventItem::Event(event), (!closed).then_some(self)));
            }
            match self.receiver.recv().await {
                Ok(Item::Small(event)) => self.next = Some(event),
                Ok(Item::Large(event)) => {
                    self.next = event.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    self.missed += u64::from(self.next.is_none());
                }
                Err(broadcast::error::RecvError::Lagged(missed)) => self.missed += missed,
                Err(broadcast::error::RecvError::Closed) if self.missed > 0 => {
                    return Some((EventItem::Missed(self.missed), None));
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
            if self.missed > 0 && self.next.is_some() {
                return Some((EventItem::Missed(std::mem::take(&mut self.missed)), Some(self)));
            }
        }
    }
}

/// How many events a reader may lag behind before it misses some.
const EVENTS: usize = 4096;
/// How many bytes of large events a reader may lag behind before it misses some.
const BYTES: usize = 16 << 20;
/// An event with fewer bytes is bounded only by the number of events.
const SMALL: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{OutputChunk, OutputStream};
    use crate::ids::{Generation, NodeIndex, Rank};

    const PIECE: usize = 256 << 10;

    fn output(offset: usize, bytes: usize) -> PoolEvent {
        let (node, rank) = (NodeIndex(0), Rank(0));
        let bytes = vec![b'x'; bytes];
        PoolEvent::Output(OutputChunk::new(node, rank, OutputStream::Stdout, Generation(1), offset as u64, bytes))
    }

    /// Reads the available events: how many were missed, and the offsets of those that were read.
    async fn read(events: &mut Events, until: usize) -> (u64, Vec<u64>) {
        let (mut missed, mut read) = (0, Vec::new());
        while let Some(item) = events.next().await {
            match item {
                EventItem::Missed(more) => missed += more,
                EventItem::Event(event) => {
                    let PoolEvent::Output(output) = &*event else { continue };
                    read.push(output.offset);
                    if output.offset == until as u64 {
                        break;
                    }
                }
            }
        }
        (missed, read)
    }

    #[tokio::test]
    async fn the_unread_events_of_a_slow_reader_take_a_bounded_number_of_bytes() {
        let buffer = EventBuffer::default();
        let mut slow = buffer.subscribe();
        for offset in 0..1000 {
            buffer.send(output(offset, PIECE));
        }
        let kept = || {
            buffer
                .large
                .lock()
                .unwrap()
                .events
                .iter()
                .filter(|(event, _)| event.upgrade().is_some_and(|it| it.lock().unwrap().is_some()))
                .count()
        };
        assert_eq!(kept(), BYTES / PIECE);
        let (missed, read) = read(&mut slow, 999).await;
        assert_eq!(missed as usize + read.len(), 1000);
        assert_eq!(read, (1000 - (BYTES / PIECE) as u64..1000).collect::<Vec<_>>(), "the latest, in order");
        assert_eq!(kept(), 0, "events that all readers have read are gone");
    }

    #[tokio::test]
    async fn a_reader_that_keeps_up_misses_nothing_and_small_events_are_kept() {
        let buffer = EventBuffer::default();
        let (mut quick, mut slow) = (buffer.subscribe(), buffer.subscribe());
        for offset in 0..1000 {
            buffer.send(output(offset, if offset % 2 == 0 { PIECE } else { 10 }));
            assert_eq!(read(&mut quick, offset).await, (0, vec![offset as u64]));
        }
        let (missed, read) = read(&mut slow, 999).await;
        assert_eq!(missed as usize, 500 - BYTES / PIECE);
        assert_eq!(read.len(), 500 + BYTES / PIECE);
        assert!(read.is_sorted());
    }

    #[tokio::test]
    async fn an_event_that_is_larger_than_the_bound_is_kept_alone() {
        let buffer = EventBuffer::default();
        let mut reader = buffer.subscribe();
        buffer.send(output(0, PIECE));
        buffer.send(output(1, 2 * BYTES));
        assert_eq!(read(&mut reader, 1).await, (1, vec![1]));
    }
}
