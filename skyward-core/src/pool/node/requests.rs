//! Matches the requests to an agent with their answers, by number. No I/O.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::worker::message::FromAgent;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    last: AtomicU64,
    /// The requests that wait for an answer; closed when the connection has ended.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    closed: bool,
    answers: HashMap<u64, oneshot::Sender<FromAgent>>,
}

/// A request that waits for its answer. Dropping it forgets the request.
#[derive(Debug)]
pub(crate) struct Request<'r> {
    number: u64,
    requests: &'r Requests,
    answer: oneshot::Receiver<FromAgent>,
}

impl Requests {
    /// A number that no other request of this connection has.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Begins a request, which waits for an answer.
    pub(crate) fn begin(&self) -> Request<'_> {
        let number = self.number();
        let (sender, answer) = oneshot::channel();
        let mut waiting = self.lock();
        if !waiting.closed {
            waiting.answers.insert(number, sender);
        }
        Request { number, requests: self, answer }
    }

    /// Passes an answer to the request that waits for it; returns the answer if no request does.
    pub(crate) fn end(&self, number: u64, answer: FromAgent) -> Option<FromAgent> {
        match self.lock().answers.remove(&number) {
            Some(waiting) => waiting.send(answer).err(),
            None => Some(answer),
        }
    }

    /// Ends all requests, since no answer comes any more.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.answers.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request<'_> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The answer; `None` if the connection ends before the answer arrives.
    ///
    /// # Cancel safety
    ///
    /// An answer that arrives later is dropped.
    pub(crate) async fn answer(mut self) -> Option<FromAgent> {
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
    fn each_request_gets_its_own_answer_in_any_order() {
        let requests = Requests::default();
        let given_up = requests.begin();
        let (first, second) = (requests.begin(), requests.begin());
        let old = given_up.number();
        drop(given_up);
        assert_eq!(requests.end(second.number(), pong(2)), None);
        assert_eq!(requests.end(old, pong(0)), Some(pong(0)), "no request waits for it");
        assert_eq!(requests.end(first.number(), pong(1)), None);
        assert_eq!(first.answer().now_or_never(), Some(Some(pong(1))));
        assert_eq!(second.answer().now_or_never(), Some(Some(pong(2))));
        assert!(requests.lock().answers.is_empty());
    }

    #[test]
    fn a_closed_connection_ends_all_requests() {
        let requests = Requests::default();
        let before = requests.begin();
        requests.close();
        assert_eq!(before.answer().now_or_never(), Some(None));
        assert_eq!(requests.begin().answer().now_or_never(), Some(None));
    }
}
