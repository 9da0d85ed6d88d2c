//! Requests to an agent that wait for their answers, each by its number. No I/O.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::worker::message::FromAgent;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    last: AtomicU64,
    /// None when the connection has ended.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    closed: bool,
    answers: HashMap<u64, oneshot::Sender<FromAgent>>,
}

/// A request whose answer is awaited; one that is dropped is forgotten.
#[derive(Debug)]
pub(super) struct Request<'r> {
    number: u64,
    requests: &'r Requests,
    answer: oneshot::Receiver<FromAgent>,
}

impl Requests {
    /// A number that no other request of this connection has.
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Begins to wait for an answer.
    pub(super) fn begin(&self) -> Request<'_> {
        let number = self.number();
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.lock();
        if !waiting.closed {
            waiting.answers.insert(number, sender);
        }
        Request { number, requests: self, answer }
    }

    /// Hands an answer to whoever waits for it, or gives it back.
    pub(super) fn end(&self, number: u64, answer: FromAgent) -> Option<FromAgent> {
        match self.lock().answers.remove(&number) {
            Some(waiting) => waiting.send(answer).err(),
            None => Some(answer),
        }
    }

    /// No answer comes any more.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.answers.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request<'_> {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The answer; none when the connection ends before it comes.
    ///
    /// # Cancel safety
    ///
    /// An answer that comes later is nobody's.
    pub(super) async fn answer(mut self) -> Option<FromAgent> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.requests.lock().answers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn pong(sequence: u64) -> FromAgent {
        FromAgent::Pong { sequence }
    }

    #[test]
    fn each_request_gets_its_own_answer_however_late_the_others_come() {
        let requests = Requests::default();
        let given_up = requests.begin();
        let (first, second) = (requests.begin(), requests.begin());
        let old = given_up.number();
        drop(given_up);
        assert_eq!(requests.end(second.number(), pong(2)), None);
        assert_eq!(requests.end(old, pong(0)), Some(pong(0)), "nobody waits for it");
        assert_eq!(requests.end(first.number(), pong(1)), None);
        assert_eq!(first.answer().now_or_never(), Some(Some(pong(1))));
        assert_eq!(second.answer().now_or_never(), Some(Some(pong(2))));
        assert!(requests.lock().answers.is_empty());
    }

    #[test]
    fn without_a_connection_no_request_waits() {
        let requests = Requests::default();
        let before = requests.begin();
        requests.close();
        assert_eq!(before.answer().now_or_never(), Some(None));
        assert_eq!(requests.begin().answer().now_or_never(), Some(None));
    }
}
